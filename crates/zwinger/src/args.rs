//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use zwinger_core::sandbox::{Backend, Confinement, Network, WorkspaceError};

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
    /// See the walls, the questions and the audit at work; no model, no network
    Demo(Demo),
}

#[derive(Args)]
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
    /// Bytes that --json keeps of each stream
    #[arg(long, value_name = "BYTES", requires = "json", value_parser = clap::value_parser!(u64).range(1024..=8_388_608))]
    pub(crate) output_limit: Option<u64>,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
pub(crate) struct Tool {
    /// Name of the tool, such as read_file
    pub(crate) name: String,
    /// Its arguments as a JSON object; - reads them from standard input
    pub(crate) json: String,
    #[command(flatten)]
    pub(crate) walls: Walls,
    #[command(flatten)]
    pub(crate) session: SessionArguments,
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

/// What the kernel holds.
#[derive(Args, Default)]
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
    /// A .env file that commands may read
    #[arg(long, value_name = "PATH")]
    show: Vec<PathBuf>,
    /// The network of commands
    #[arg(long, value_enum, default_value = "off")]
    net: Net,
    /// Time limit of a command in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,
    /// Memory of a command and all it starts, in MiB; also the size of each file that it writes
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(16..=1_048_576))]
    memory: Option<u64>,
    /// Processes that a command may have at once, threads not counted; raises the ceiling of 256 tasks to 8 a process
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    processes: Option<u32>,
}

#[derive(Args)]
pub(crate) struct SessionArguments {
    /// Who decides what needs approval
    #[arg(long, value_enum, default_value = "ask")]
    pub(crate) approve: Approve,
    /// Bytes that are kept of a command's output
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1024..=8_388_608))]
    output_limit: Option<u64>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Net {
    /// Nothing but a loopback of its own
    #[default]
    Off,
    /// The host's network
    On,
}

/// Modes are walls.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Read it: the workspace cannot be written
    Plan,
    /// Read and write it, and nothing else
    Sandbox,
    /// Anything: no walls
    FullAccess,
}

impl Run {
    /// What builds the walls of the mode.
    pub(crate) fn backend(&self) -> Result<Backend, WallsError> {
        match (self.mode, self.walls.backend) {
            (Mode::FullAccess, _) if !self.walls.hide.is_empty() => Err(WallsError::Hide),
            (Mode::FullAccess, None | Some(Backend::None)) => Ok(Backend::None),
            (Mode::FullAccess, Some(Backend::Landlock)) => {
                Err(WallsError::Mode("full-access has no walls; leave --backend out"))
            }
            (Mode::Plan, Some(Backend::None)) => {
                Err(WallsError::Mode("plan is held by walls, and --backend none has none"))
            }
            (Mode::Plan | Mode::Sandbox, _) => Ok(self.walls.backend()),
        }
    }
}

/// Why the walls that were asked for make no sense.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WallsError {
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error("the current directory cannot be found: {0}")]
    CurrentDirectory(std::io::Error),
    #[error("--hide is held by walls, and --backend none has none")]
    Hide,
    #[error("mode {0}")]
    Mode(&'static str),
    #[error("{0} {1}: {2}")]
    Grant(&'static str, PathBuf, std::io::Error),
}

impl Walls {
    /// The terms as plain data. Without `--timeout`, `unless_asked` is the time limit.
    pub(crate) fn confinement(&self, unless_asked: Option<Duration>) -> Result<Confinement, WallsError> {
        let workdir = match &self.workdir {
            Some(workdir) => workdir.clone(),
            None => std::env::current_dir().map_err(WallsError::CurrentDirectory)?,
        };
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let mut confinement = Confinement::new(&workdir, home.as_deref())?;
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

    /// As [`Walls::confinement`], for a session with tools.
    pub(crate) fn session(&self, session: &SessionArguments) -> Result<Confinement, WallsError> {
        let defaults = zwinger_core::sandbox::Limits::default();
        let mut confinement = self.confinement(defaults.time)?;
        if let Some(limit) = session.output_limit.and_then(|limit| usize::try_from(limit).ok()) {
            confinement.limits.output = limit;
        }
        Ok(confinement)
    }
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
            let _ = error.print();
            let of_run = std::env::args_os().nth(1).is_some_and(|command| command == "run");
            let status = if error.use_stderr() && of_run { i32::from(crate::BROKEN) } else { error.exit_code() };
            std::process::exit(status)
        }
    }
}

/// What can be typed.
pub(crate) fn help() -> String {
    Arguments::command().render_help().to_string()
}

/// `run` by itself: clap builds every command before it reads a word, which would be a tenth of a short run. What does not parse
/// is left to the whole, for its texts.
fn parse_run() -> Option<Run> {
    let mut arguments = std::env::args_os();
    let _program = arguments.next()?;
    if arguments.next()? != "run" {
        return None;
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
}
