//! The question at a real terminal: what it shows, and which keys answer it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use serde_json::{Value, json};

use crate::process::until;
use crate::scratch::{Ended, Running, Scratch, list, read_text, write};
use crate::scripted_model::{ScriptedModel, calls, says};

/// The last words of a question.
const PROMPT: &str = "[n] no: ";

/// A terminal whose keyboard and screen are ours.
pub(crate) struct Terminal {
    ours: Option<File>,
    theirs: OwnedFd,
    shown: Vec<u8>,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        rustix::pty::grantpt(&ours).unwrap();
        rustix::pty::unlockpt(&ours).unwrap();
        let name = rustix::pty::ptsname(&ours, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = rustix::fs::open(&*name, flags, Mode::empty()).unwrap();
        Self { ours: Some(ours.into()), theirs, shown: Vec::new() }
    }

    fn tool(&self, scratch: &Scratch, name: &str, arguments: &Value, before: &str) -> Running {
        self.zwinger(scratch, &["tool", name, &arguments.to_string()], before)
    }

    /// Zwinger with this terminal as its controlling one. Its standard input is something else.
    pub(crate) fn zwinger(&self, scratch: &Scratch, words: &[&str], before: &str) -> Running {
        let script = format!("{before}exec \"$@\" < /dev/null");
        let zwinger = scratch.base.join("zwinger");
        let shell = ["setsid", "--ctty", "sh", "-c", &script, "sh", zwinger.to_str().unwrap()];
        let mut command = crate::process::command(&[&shell, words].concat());
        command.current_dir(&scratch.work).env("HOME", &scratch.home).env("XDG_STATE_HOME", scratch.base.join("state"));
        command.stdin(Stdio::from(self.theirs.try_clone().unwrap()));
        scratch.start(command)
    }

    fn press(&self, keys: &str) {
        self.ours.as_ref().expect("open").write_all(keys.as_bytes()).unwrap();
    }

    /// Takes what is on the screen by now.
    fn look(&mut self) {
        let Some(mut ours) = self.ours.as_ref() else { return };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut buffer = [0_u8; 4096];
        while rustix::event::poll(&mut [PollFd::from_borrowed_fd(ours.as_fd(), PollFlags::IN)], Some(&now)).unwrap() > 0
        {
            // EIO: nobody has it open any more.
            match ours.read(&mut buffer) {
                Ok(count) if count > 0 => self.shown.extend(buffer.iter().take(count)),
                _ => return,
            }
        }
    }

    fn screen(&mut self) -> String {
        self.look();
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    fn wait_for_prompt(&mut self) -> String {
        until("a question", || Some(self.screen()).filter(|screen| screen.contains(PROMPT)))
    }

    /// Presses a key until the process has ended: keys that arrive while the question is being put up are dropped.
    pub(crate) fn answer(&mut self, mut running: Running, keys: &str) -> Ended {
        self.wait_for_prompt();
        until("an end after the answer", || {
            // Once it is answered the terminal is as before, and an interrupt would be one.
            if self.screen().ends_with(PROMPT) {
                self.press(keys);
            }
            running.has_ended().then_some(())
        });
        running.end()
    }
}

#[test]
fn a_no_in_the_demo_leaves_the_file() {
    for (key, price) in [("y", "340"), ("n", "320")] {
        let scratch = Scratch::new();
        let mut terminal = Terminal::new();
        let running = terminal.zwinger(&scratch, &["demo"], "");
        let ended = terminal.answer(running, key);
        assert_eq!((ended.code, ended.text().as_str()), (0, "Nothing got out.\n"), "{ended:?}");
        assert!(terminal.screen().contains("-320") && terminal.screen().contains("+340"));
        let read = ended.stderr.split("{\"command\": \"cat prices.txt\", \"read_only\": true}").nth(1).unwrap();
        assert!(read.lines().nth(1).unwrap().trim() == price, "{key}: {read}");
        assert!(!ended.stderr.contains("NOT HELD"), "{ended:?}");
    }
}

#[test]
fn alone_it_says_what_works_here() {
    let scratch = Scratch::new();
    write(scratch.work.join(".env.local"), "SECRET=1");
    let mut terminal = Terminal::new();
    let ended = terminal.zwinger(&scratch, &[], "exec > /dev/tty; ").end();
    let screen = terminal.screen();
    assert_eq!(ended.code, 0, "{ended:?} {screen}");
    for says in [
        "between two walls",
        "Landlock ABI ",
        " + seccomp",
        " · memory none · metadata ",
        "1 hidden (.env.local)",
        "  zwinger demo ",
    ] {
        assert!(screen.contains(says), "{says:?} is not in {screen}");
    }
    let mut terminal = Terminal::new();
    let ended = terminal.zwinger(&scratch, &[], "cd /; exec > /dev/tty; ").end();
    assert_eq!(ended.code, 0);
    assert!(terminal.screen().contains("none here: / cannot be a workspace"), "{}", terminal.screen());
    assert!(terminal.screen().contains("files full · network full"), "{}", terminal.screen());
    // Where nobody reads it, it is a mistake.
    let ended = scratch.start(scratch.zwinger(&[])).end();
    assert_eq!((ended.code, ended.text().as_str()), (2, ""));
    assert!(ended.stderr.contains("Usage: zwinger"), "{ended:?}");
}

fn answered(scratch: &Scratch, keys: &str) -> (Ended, String) {
    let mut terminal = Terminal::new();
    let running = terminal.tool(scratch, "write_file", &json!({"path": "sub/inside.txt", "content": "one\ntwo\n"}), "");
    let ended = terminal.answer(running, keys);
    (ended, terminal.screen())
}

#[test]
fn yes_writes_what_was_shown() {
    for key in ["y", "Y", "a"] {
        let scratch = Scratch::new();
        let (ended, screen) = answered(&scratch, key);
        assert_eq!(ended.json(), json!({"success": true, "output": "Wrote sub/inside.txt (8 bytes)."}));
        assert_eq!(read_text(scratch.work.join("sub/inside.txt")), "one\ntwo\n");
        for line in ["write_file", "sub/inside.txt", "8 bytes", "-inside", "+one", "+two", "landlock", "this file"] {
            assert!(screen.contains(line), "{line:?} is not in {screen:?}");
        }
        assert!(!screen.contains(scratch.work.to_str().unwrap()), "the path is shown as the model gave it");
        let decided = scratch.audit().first().unwrap().clone();
        assert_eq!((&decided["by"], &decided["event"]), (&json!("terminal"), &json!("begin")));
    }
}

/// Settings that a person saw and let be written stay; what nobody saw, or what was changed since, does not.
#[test]
fn what_was_seen_stays() {
    let scratch = Scratch::new();
    let arguments = json!({"path": "sub/CLAUDE.md", "content": "seen\n"});
    let ended = scratch.tool("write_file", &arguments, &["--approve", "yes"]);
    assert!(ended.stderr.contains("zwinger: quarantined sub/CLAUDE.md ("), "{ended:?}");
    assert_eq!(list(&scratch.work.join("sub")), ["inside.txt"]);
    let mut terminal = Terminal::new();
    let running = terminal.tool(&scratch, "write_file", &arguments, "");
    let ended = terminal.answer(running, "y");
    assert!(ended.json()["success"] == true && !ended.stderr.contains("quarantined"), "{ended:?}");
    assert_eq!(read_text(scratch.work.join("sub/CLAUDE.md")), "seen\n");
    let edit = json!({"path": "sub/CLAUDE.md", "old_text": "seen", "new_text": "seen again"});
    let mut terminal = Terminal::new();
    let running = terminal.tool(&scratch, "edit_file", &edit, "");
    let ended = terminal.answer(running, "y");
    assert!(ended.json()["success"] == true && !ended.stderr.contains("quarantined"), "{ended:?}");
    assert_eq!(read_text(scratch.work.join("sub/CLAUDE.md")), "seen again\n");
    let ended = scratch.sh("echo more >> sub/CLAUDE.md");
    assert!(ended.stderr.contains("quarantined sub/CLAUDE.md (changed: "), "{ended:?}");
    assert_eq!(read_text(scratch.work.join("sub/CLAUDE.md")), "seen again\n");
}

#[test]
fn a_task_waits_for_the_answer_and_goes_on() {
    for (key, result) in [("y", "Wrote f (1 byte)."), ("n", "Error: write to f declined by the user.")] {
        let scratch = Scratch::new();
        let write = calls("1", "write_file", &json!({"path": "f", "content": "x"}));
        let model = ScriptedModel::start(vec![write, says("done")]).unwrap();
        let mut terminal = Terminal::new();
        let running = terminal.zwinger(&scratch, &["ask", "--base-url", &model.base_url(), "do it"], "");
        terminal.wait_for_prompt();
        assert_eq!((model.requests().len(), list(&scratch.work)), (1, vec!["sub".to_owned()]));
        let ended = terminal.answer(running, key);
        assert_eq!((ended.code, ended.text().as_str()), (0, "done\n"), "{ended:?}");
        assert_eq!(model.requests()[1]["messages"][3]["content"], result);
    }
}

#[test]
fn everything_else_is_a_no() {
    // n, escape, interrupt, end of file; other keys do not answer at all.
    for keys in ["n", "N", "\u{1b}", "\u{3}", "\u{4}", "xq1 \r\nn"] {
        let scratch = Scratch::new();
        let (ended, _) = answered(&scratch, keys);
        assert_eq!(ended.code, 3, "{keys:?} {ended:?}");
        assert_eq!(ended.error(), "Error: write to sub/inside.txt declined by the user.", "{keys:?}");
        assert_eq!(read_text(scratch.work.join("sub/inside.txt")), "inside\n");
        assert_eq!(scratch.audit().first().unwrap()["event"], "denied");
    }
}

#[test]
fn keys_pressed_before_the_question_do_not_answer_it() {
    let scratch = Scratch::new();
    let mut terminal = Terminal::new();
    terminal.press("y\ny\na\n");
    let running = terminal.tool(&scratch, "write_file", &json!({"path": "f", "content": "x"}), "");
    let ended = terminal.answer(running, "n");
    assert_eq!(ended.code, 3, "{ended:?}");
    assert_eq!(list(&scratch.work), ["sub"]);
}

#[test]
fn a_terminal_that_goes_away_is_a_no() {
    // With and without the signal that it sends.
    for before in ["", "trap '' HUP; "] {
        let scratch = Scratch::new();
        let mut terminal = Terminal::new();
        let running = terminal.tool(&scratch, "write_file", &json!({"path": "f", "content": "x"}), before);
        terminal.wait_for_prompt();
        terminal.ours = None;
        let ended = running.end();
        assert!(matches!(ended.code, 3 | 129), "{ended:?}");
        assert_eq!(list(&scratch.work), ["sub"]);
    }
}

#[test]
fn f04_nothing_hides_in_a_question() {
    let scratch = Scratch::new();
    let mut terminal = Terminal::new();
    let spaces = " ".repeat(400);
    let command = format!("echo a\u{1b}[2K\r\u{202e}b\u{200b}\u{e0041}{spaces}; touch payload\n# ```\n[n] yes: ");
    let running = terminal.tool(&scratch, "run_command", &json!({"command": command}), "");
    let ended = terminal.answer(running, "n");
    let screen = terminal.screen();
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(screen.contains(r"echo a\e[2K\r\u{202e}b\u{200b}\u{e0041}"), "{screen:?}");
    assert!(screen.contains(r"; touch payload\n# ```\n[n] yes: "), "{screen:?}");
    assert!(screen.contains(&format!("{} bytes", command.len())), "{screen:?}");
    let hidden = |character: char| character.is_control() && !matches!(character, '\r' | '\n');
    assert!(!screen.contains(hidden) && !screen.contains(['\u{202e}', '\u{200b}', '\u{e0041}']), "{screen:?}");
    // A carriage return only where the terminal itself makes one of a newline.
    assert!(screen.split('\r').skip(1).all(|rest| rest.starts_with('\n')), "{screen:?}");
}

#[test]
fn f04_nothing_hides_in_a_difference_or_a_name() {
    let scratch = Scratch::new();
    write(scratch.work.join("f"), "old\u{1b}[1A\n");
    for (path, shows) in [("f", "-old\\e[1A"), ("g\u{1b}[2J\n[y]", "g\\e[2J\\n[y]")] {
        let mut terminal = Terminal::new();
        let arguments = json!({"path": path, "content": "new\u{9b}2K\u{2028}\r\n"});
        let running = terminal.tool(&scratch, "write_file", &arguments, "");
        let ended = terminal.answer(running, "n");
        let screen = terminal.screen();
        assert_eq!(ended.code, 3, "{ended:?}");
        assert!(screen.contains(shows) && screen.contains(r"+new\u{9b}2K\u{2028}\r"), "{screen:?}");
        assert!(!screen.contains(['\u{1b}', '\u{9b}', '\u{2028}']), "{screen:?}");
    }
}

#[test]
fn the_terminal_is_left_as_it_was() {
    let scratch = Scratch::new();
    let mut terminal = Terminal::new();
    let modes = |terminal: &Terminal| rustix::termios::tcgetattr(&terminal.theirs).unwrap().local_modes;
    let before = modes(&terminal);
    let running = terminal.tool(&scratch, "write_file", &json!({"path": "f", "content": "x"}), "");
    terminal.wait_for_prompt();
    until("keys one by one", || (modes(&terminal) != before).then_some(()));
    terminal.answer(running, "y");
    assert_eq!(modes(&terminal), before);
}

#[test]
fn a_refused_path_asks_nothing() {
    let scratch = Scratch::new();
    scratch.plant();
    let mut terminal = Terminal::new();
    for way in scratch.ways_out() {
        let running = terminal.tool(&scratch, "write_file", &json!({"path": way, "content": "x"}), "");
        assert_eq!(running.end().code, 1, "{way}");
    }
    let running = terminal.tool(&scratch, "run_command", &json!({"command": "sudo id"}), "");
    assert_eq!(running.end().code, 3);
    assert_eq!(terminal.screen(), "");
    scratch.assert_out_untouched();
}
