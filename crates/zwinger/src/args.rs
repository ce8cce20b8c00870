//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use zwinger_core::sandbox::{Backend, Confinement, Network, WorkspaceError};
use zwinger_core::session::Reference;
use zwinger_core::{policy, tools};

use crate::terminal::Approve;

#[derive(Parser)]
#[command(name = "zwinger", version, about = "Files and a shell for language models, between two walls")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a command inside the walls, with this terminal's streams
    Run(Run),
    /// Call one tool and print its result as JSON
    Tool(Tool),
    /// Show what holds on this machine, and why not more
    Doctor(Doctor),
    /// Give a task to a model that works with the tools
    Ask(Ask),
    /// The sessions that are kept for a workspace
    Session(Session),
    /// What was called, who permitted it, and what came of it
    Audit(Audit),
    /// See the walls, the questions and the audit at work; no model, no network
    Demo(Demo),
}

#[derive(Debug, Default, PartialEq, Args)]
#[command(after_help = STATUSES_OF_RUN)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) walls: Walls,
    /// What the command may do to the workspace
    #[arg(long, value_enum, default_value = "sandbox")]
    pub(crate) mode: Mode,
    /// Keep the command's output and print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the result without the output to FILE, as JSON
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) report: Option<PathBuf>,
    /// Bytes that --json keeps of each stream [default: 1048576]
    #[arg(long, value_name = "BYTES", requires = "json", value_parser = clap::value_parser!(u64).range(1024..=8_388_608))]
    pub(crate) output_limit: Option<u64>,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const STATUSES_OF_RUN: &str = "Exit status: the command's own; 124 at the time limit, 125 when zwinger failed or the walls could not be \
built, 126 when the command cannot be executed, 127 when it is not found, 128 + N when signal N ended it, 137 when it was stopped at \
another limit.";

#[derive(Args)]
#[command(after_help = tools())]
pub(crate) struct Tool {
    /// Name of the tool, such as read_file
    pub(crate) name: String,
    /// Its arguments as a JSON object; - reads them from standard input
    pub(crate) json: String,
    /// Go on with a stored session, its mode and what was granted for it under the same terms: a name that "zwinger session
    /// list" shows, or last
    #[arg(long = "session", value_name = "ID")]
    pub(crate) resume: Option<Reference>,
    #[command(flatten)]
    pub(crate) walls: Walls,
    #[command(flatten)]
    pub(crate) session: SessionArguments,
}

/// The tools with their arguments, for help.
fn tools() -> String {
    let line = |tool: &&tools::Tool| format!("\n  {:<15} {}", tool.name, tool.arguments().unwrap_or_default());
    let lines: String = tools::ALL.iter().map(line).collect();
    let lines = lines.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    format!("Tools (? may be left out):{lines}\n\nExample: zwinger tool read_file '{{\"path\": \"README.md\"}}'")
}

#[derive(Args)]
pub(crate) struct Ask {
    /// What is to be done
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) task: String,
    #[command(flatten)]
    pub(crate) walls: Walls,
    #[command(flatten)]
    pub(crate) session: SessionArguments,
    /// Name of the model; the endpoint's first one if left out
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// OpenAI-compatible endpoint, such as http://127.0.0.1:8080/v1; the usual local ports are looked at if left out
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// How the model calls tools: with its own calls, or as JSON held by a schema (for small models)
    #[arg(long, value_enum, default_value = "native")]
    pub(crate) tool_calls: ToolCalls,
    /// Steps (answers of the model) at most
    #[arg(long, value_name = "N", default_value_t = crate::agent::DEFAULT_MAX_STEPS, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_steps: u32,
    /// Write every request to the model and its answer to FILE, as JSON Lines
    #[arg(long, value_name = "FILE")]
    pub(crate) transcript: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Session {
    #[command(subcommand)]
    pub(crate) command: SessionCommand,
    #[command(flatten)]
    pub(crate) workspace: Workspace,
}

#[derive(Subcommand)]
pub(crate) enum SessionCommand {
    /// One line a session, the one last used first
    List,
    /// What is known of one, with all that was granted for it
    Show {
        /// Its name, or last
        id: Reference,
    },
    /// Remove one that no process uses
    Delete {
        /// Its name, or last
        id: Reference,
    },
}

#[derive(Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    pub(crate) command: AuditCommand,
}

#[derive(Subcommand)]
pub(crate) enum AuditCommand {
    /// The last lines of the log
    Tail {
        /// How many
        #[arg(short = 'n', value_name = "N", default_value_t = 10)]
        lines: usize,
        /// Go on with what comes, until interrupted
        #[arg(short, long)]
        follow: bool,
        /// Lines as they are stored
        #[arg(long)]
        json: bool,
    },
    /// One line a call, or all that is known of one
    Show {
        /// The call's id, or how it begins
        id: Option<String>,
        /// The calls of one session
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        /// Lines as they are stored
        #[arg(long)]
        json: bool,
    },
    /// Whether all lines are there and in their order; 1 and the first wrong one if not
    Verify,
}

#[derive(Args)]
pub(crate) struct Demo {
    /// Who decides what needs approval
    #[arg(long, value_enum, default_value = "ask")]
    pub(crate) approve: Approve,
}

#[derive(Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) walls: Walls,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what would make more hold; nothing is run
    #[arg(long, conflicts_with = "json")]
    pub(crate) fix: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ToolCalls {
    /// The endpoint's tool calls
    Native,
    /// One JSON object a step
    Json,
}

/// Which workspace.
#[derive(Args)]
pub(crate) struct Workspace {
    /// The workspace [default: the current directory]
    #[arg(long, value_name = "DIR", global = true)]
    workdir: Option<PathBuf>,
}

/// What the kernel holds.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct Walls {
    /// The workspace [default: the current directory]
    #[arg(long, value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// What builds the walls: auto, landlock, none [default: auto]
    #[arg(long, value_name = "NAME")]
    backend: Option<Backend>,
    /// A file or directory that commands may read besides
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// A file or directory that commands may write besides
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// A file or directory that is hidden from commands besides .env files
    #[arg(long, value_name = "PATH")]
    hide: Vec<PathBuf>,
    /// A .env file that commands may read; what is not hidden is refused here
    #[arg(long, value_name = "PATH")]
    show: Vec<PathBuf>,
    /// The network of commands
    #[arg(long, value_enum, default_value = "off")]
    net: Net,
    /// Time limit of a command in seconds [default: none for run, 600 for the tools]
    #[arg(long, value_name = "SECONDS", value_parser = |text: &str| whole(text, "seconds", 1..=86_400))]
    timeout: Option<u64>,
    /// Memory of a command and all it starts, in MiB; also the size of each file that it writes [default: no limit]
    #[arg(long, value_name = "MB", value_parser = |text: &str| whole(text, "MiB", 16..=1_048_576))]
    memory: Option<u64>,
    /// Processes that a command may have at once, threads not counted; raises the ceiling of 256 tasks to 8 a process
    /// [default: no limit but that ceiling]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    processes: Option<u32>,
}

#[derive(Args)]
pub(crate) struct SessionArguments {
    /// What may be done to the workspace [default: that of the stored session, or sandbox]
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Who decides what needs approval
    #[arg(long, value_enum, default_value = "ask")]
    pub(crate) approve: Approve,
    /// Bytes that are kept of a command's output [default: 1048576]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1024..=8_388_608))]
    output_limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Net {
    /// Nothing but a loopback of its own
    #[default]
    Off,
    /// The host's network
    On,
}

/// Modes are walls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Read it: the workspace cannot be written
    Plan,
    /// Read and write it, and nothing else
    #[default]
    Sandbox,
    /// Anything: no walls
    FullAccess,
}

impl From<Mode> for policy::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Plan => Self::Plan,
            Mode::Sandbox => Self::Sandbox,
            Mode::FullAccess => Self::FullAccess,
        }
    }
}

impl SessionArguments {
    /// What the person asked for.
    pub(crate) fn mode(&self) -> Option<policy::Mode> {
        self.mode.map(policy::Mode::from)
    }
}

impl Workspace {
    /// Its terms, of which only the place counts.
    pub(crate) fn confinement(&self) -> Result<Confinement, WallsError> {
        terms(self.workdir.as_deref())
    }
}

/// The strictest ones of a workspace.
fn terms(workdir: Option<&std::path::Path>) -> Result<Confinement, WallsError> {
    let option = if workdir.is_some() { "--workdir " } else { "" };
    let workdir = match workdir {
        Some(workdir) => workdir.to_owned(),
        None => current_directory().map_err(WallsError::CurrentDirectory)?,
    };
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    Confinement::new(&workdir, home.as_deref()).map_err(|error| WallsError::Workspace(option, error))
}

impl Walls {
    /// What builds the walls of the mode.
    pub(crate) fn backend_of(&self, mode: Mode) -> Result<Backend, WallsError> {
        match (mode, self.backend) {
            (Mode::FullAccess, _) if !self.hide.is_empty() => Err(WallsError::Hide),
            (Mode::FullAccess, None | Some(Backend::None)) => Ok(Backend::None),
            (Mode::FullAccess, Some(Backend::Landlock)) => {
                Err(WallsError::Mode("full-access has no walls; leave --backend out"))
            }
            (Mode::Plan, Some(Backend::None)) => {
                Err(WallsError::Mode("plan is held by walls, and --backend none has none"))
            }
            (Mode::Plan | Mode::Sandbox, _) => Ok(self.backend()),
        }
    }
}

/// Why the walls that were asked for make no sense.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WallsError {
    #[error("{0}{1}")]
    Workspace(&'static str, WorkspaceError),
    #[error("the current directory cannot be found: {0}")]
    CurrentDirectory(std::io::Error),
    #[error("--hide is held by walls, and --backend none has none")]
    Hide,
    #[error("mode {0}")]
    Mode(&'static str),
    #[error("{0} {1}: {2}")]
    Grant(&'static str, PathBuf, std::io::Error),
}

/// By the name that the person's shell gives it, where that is right: it may go through a link (pwd(1), `-L`).
fn current_directory() -> std::io::Result<PathBuf> {
    let identity = |path: &std::path::Path| rustix::fs::stat(path).ok().map(|found| (found.st_dev, found.st_ino));
    let real = std::env::current_dir()?;
    let named = std::env::var_os("PWD").map(PathBuf::from).filter(|named| named.is_absolute());
    Ok(named.filter(|named| identity(named).is_some() && identity(named) == identity(&real)).unwrap_or(real))
}

impl Walls {
    /// The terms as plain data. Without `--timeout`, `unless_asked` is the time limit.
    pub(crate) fn confinement(&self, unless_asked: Option<Duration>) -> Result<Confinement, WallsError> {
        let mut confinement = terms(self.workdir.as_deref())?;
        type Grant = fn(&mut Confinement, &std::path::Path) -> std::io::Result<()>;
        let grants: [(&str, &[PathBuf], Grant); 4] = [
            ("--read", &self.read, Confinement::grant_read),
            ("--write", &self.write, Confinement::grant_write),
            ("--hide", &self.hide, Confinement::hide),
            ("--show", &self.show, Confinement::show),
        ];
        for (option, paths, grant) in grants {
            for path in paths {
                grant(&mut confinement, path).map_err(|error| WallsError::Grant(option, path.clone(), error))?;
            }
        }
        if self.backend() == Backend::None && !self.hide.is_empty() {
            return Err(WallsError::Hide);
        }
        confinement.set_network(self.network());
        confinement.limits.time = self.timeout.map(Duration::from_secs).or(unless_asked);
        confinement.limits.memory = self.memory.map(|mebibytes| mebibytes << 20);
        if let Some(processes) = self.processes {
            confinement.limits.set_processes(processes);
        }
        Ok(confinement)
    }

    /// Around another workspace, of which nothing is hidden or shown.
    pub(crate) fn elsewhere(&self, workspace: &std::path::Path) -> Self {
        Self { workdir: Some(workspace.to_owned()), hide: Vec::new(), show: Vec::new(), ..self.clone() }
    }

    /// What builds the walls.
    pub(crate) fn backend(&self) -> Backend {
        self.backend.unwrap_or(Backend::Landlock)
    }

    /// What the network is to be.
    pub(crate) fn network(&self) -> Network {
        match self.net {
            Net::Off => Network::Off,
            Net::On => Network::On,
        }
    }

    /// As [`Walls::confinement`], for a session with tools, and what builds its walls. Of a mode that stands in a stored session
    /// nothing is known here; none of them has other walls.
    pub(crate) fn session(&self, session: &SessionArguments) -> Result<(Confinement, Backend), WallsError> {
        let backend = self.backend_of(session.mode.unwrap_or(Mode::Sandbox))?;
        let defaults = zwinger_core::sandbox::Limits::default();
        let mut confinement = self.confinement(defaults.time)?;
        if let Some(limit) = session.output_limit.and_then(|limit| usize::try_from(limit).ok()) {
            confinement.limits.output = limit;
        }
        Ok((confinement, backend))
    }
}

/// A number in the unit of its option, which nobody can write with another.
fn whole(text: &str, unit: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("give whole {unit} without a unit, {} to {}", range.start(), range.end()))
}

/// The program of a `run` without `--`.
fn is_command_of_run(error: &clap::Error) -> bool {
    let word = error.get(clap::error::ContextKind::InvalidArg);
    error.kind() == clap::error::ErrorKind::UnknownArgument
        && matches!(word, Some(clap::error::ContextValue::String(word)) if !word.starts_with('-'))
}

/// Parses this process's arguments; ends it with help or a usage error (2, and 125 for `run`, whose other codes are its command's).
/// `None`: there are none.
pub(crate) fn parse() -> Option<Command> {
    if let Some(run) = parse_run() {
        return Some(Command::Run(run));
    }
    match Arguments::try_parse() {
        Ok(arguments) => arguments.command,
        Err(error) => {
            let of_run = std::env::args_os().nth(1).is_some_and(|command| command == "run");
            match of_run && is_command_of_run(&error) {
                true => crate::complain(
                    &"put -- before the command: zwinger run [OPTIONS] -- COMMAND…, as in zwinger run -- npm test",
                ),
                false => drop(error.print()),
            }
            let status = if error.use_stderr() && of_run { i32::from(crate::BROKEN) } else { error.exit_code() };
            std::process::exit(status)
        }
    }
}

/// What can be typed.
pub(crate) fn help() -> String {
    Arguments::command().render_help().to_string()
}

/// `run` by itself: clap builds every command before it reads a word, which would be a tenth of a short run; without an option
/// there is nothing to parse. What does not parse is left to the whole, for its texts.
fn parse_run() -> Option<Run> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != "run" {
        return None;
    }
    run_of(arguments.collect())
}

fn run_of(mut arguments: Vec<OsString>) -> Option<Run> {
    if arguments.len() > 1 && arguments.first().is_some_and(|first| first == "--") {
        return Some(Run { command: arguments.split_off(1), ..Run::default() });
    }
    let run = Run::augment_args(clap::Command::new("run").no_binary_name(true).disable_help_flag(true));
    Run::from_arg_matches(&run.try_get_matches_from(arguments).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_is_not_parsed_is_what_would_be() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let parsed = Arguments::try_parse_from(words(&["zwinger", "run", "--", "a", "--json", "--"])).unwrap();
        let Some(Command::Run(parsed)) = parsed.command else { panic!("no run") };
        assert_eq!(run_of(words(&["--", "a", "--json", "--"])), Some(parsed));
        assert_eq!(run_of(words(&["--"])), None);
        assert_eq!(run_of(words(&["--net", "on", "--", "a"])).unwrap().walls.net, Net::On);
    }
}
