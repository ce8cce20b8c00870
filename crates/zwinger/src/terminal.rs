//! The person at the terminal: questions go to /dev/tty and are answered there, never on standard input.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios};
use zwinger_core::gate::{Approver, Decision, Question};

/// `--approve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Approve {
    /// Ask at the terminal; denied where there is none
    Ask,
    /// Once for everything that would be asked; denials stay
    Yes,
    /// Deny everything that would be asked
    No,
}

pub(crate) fn approver(approve: Approve) -> Box<dyn Approver> {
    match approve {
        Approve::Ask => Box::new(Terminal::default()),
        Approve::Yes => Box::new(Always(Decision::Once, "--approve yes")),
        Approve::No => Box::new(Always(Decision::Deny, "--approve no")),
    }
}

/// Decided beforehand on the command line; what is decided is shown all the same.
struct Always(Decision, &'static str);

impl Approver for Always {
    fn decide(&self, question: &Question) -> Decision {
        crate::tell(&format!("{}  {}", page(question), self.1));
        self.0.clone()
    }

    fn name(&self) -> &str {
        self.1
    }

    fn is_person(&self) -> bool {
        false
    }
}

static ASKING: AtomicBool = AtomicBool::new(false);

/// Whether a question is open.
pub(crate) fn is_asking() -> bool {
    ASKING.load(Ordering::SeqCst)
}

/// One question at a time; the others wait.
#[derive(Default)]
struct Terminal(std::sync::Mutex<()>);

impl Approver for Terminal {
    fn decide(&self, question: &Question) -> Decision {
        let _one_at_a_time = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        ASKING.store(true, Ordering::SeqCst);
        let asked = open_terminal().and_then(|terminal| ask(terminal, question));
        ASKING.store(false, Ordering::SeqCst);
        match asked {
            Ok(decision) => decision,
            Err(_) => Decision::Unanswered("needs approval and there is no terminal. Use --approve yes".into()),
        }
    }

    fn name(&self) -> &str {
        "terminal"
    }
}

#[expect(clippy::disallowed_methods, reason = "the terminal is no file of the workspace or of zwinger")]
fn open_terminal() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty")
}

fn ask(mut terminal: File, question: &Question) -> io::Result<Decision> {
    let answer = {
        // Before the question is shown, so that an early interrupt is an answer too.
        let _raw = RawMode::enter(&terminal)?;
        write!(&terminal, "{}  [y] once  [a] {} for this session  [n] no: ", page(question), question.scope)?;
        keys(&terminal)?
    };
    let said = match &answer {
        Decision::Once => "yes, once",
        Decision::Session => "yes, for this session",
        Decision::Deny | Decision::Unanswered(_) => "no",
    };
    writeln!(terminal, "{said}")?;
    Ok(answer)
}

fn page(question: &Question) -> String {
    let mut page = format!("\n{} · {}\n", question.tool, question.summary);
    for line in question.detail.lines() {
        page.push_str("  ");
        page.push_str(line);
        page.push('\n');
    }
    page.push_str(&format!("  ({})\n", question.walls));
    page
}

/// Reads keys until one of them is an answer. What was typed before the question was there never answers it.
fn keys(terminal: &File) -> io::Result<Decision> {
    rustix::termios::tcflush(terminal, QueueSelector::IFlush)?;
    let mut key = [0_u8];
    let mut input = terminal;
    Ok(match (input.read(&mut key)?, key) {
        (1, [b'y' | b'Y']) => Decision::Once,
        (1, [b'a' | b'A']) => Decision::Session,
        // Whatever else: a word that was meant for the shell must not go on to its first y or a.
        _ => Decision::Deny,
    })
}

/// A terminal that gives each key at once and unseen; as it was before when dropped.
struct RawMode<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> RawMode<'a> {
    fn enter(terminal: &'a File) -> io::Result<Self> {
        let before = rustix::termios::tcgetattr(terminal)?;
        let mut raw = before.clone();
        // Without ISIG an interrupt arrives as a key, so that the terminal is never left in this mode.
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        rustix::termios::tcsetattr(terminal, OptionalActions::Now, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for RawMode<'_> {
    fn drop(&mut self) {
        let _ = rustix::termios::tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}
