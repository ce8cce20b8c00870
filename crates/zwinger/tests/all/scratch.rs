//! A workspace, and beside it a directory that must stay as it is; a home and a state of their own for zwinger.
#![expect(clippy::disallowed_methods, reason = "tests arrange files and look at them from outside")]

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Gid, Uid};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::caller::{Caller, NOBODY};
use crate::process::{self, SOON};

pub(crate) const ZWINGER: &str = env!("CARGO_BIN_EXE_zwinger");

/// Who owns the workspace and what lies beside it.
#[derive(Clone, Copy)]
pub(crate) enum System {
    /// The caller.
    Own,
    /// Another user than the caller, who is root.
    Of(u32),
}

pub(crate) struct Scratch {
    /// All of it.
    pub(crate) base: PathBuf,
    /// The workspace, `work`.
    pub(crate) work: PathBuf,
    /// `work-evil`, beside the workspace, with a file `marker`. Nothing may read or change it.
    pub(crate) out: PathBuf,
    pub(crate) home: PathBuf,
    state: PathBuf,
    /// What stands in `marker`.
    pub(crate) secret: String,
    pub(crate) caller: Caller,
    zwinger: PathBuf,
    started: AtomicUsize,
    _directory: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self::of(Caller::Plain, System::Own)
    }

    pub(crate) fn of(caller: Caller, system: System) -> Self {
        // Beside what was built, or where another user gets too: there the walls themselves have to hold, while a private
        // /tmp would cover all of it.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let beside =
            if !rustix::process::geteuid().is_root() || reachable_by_all(target) { target } else { Path::new("/srv") };
        let directory = tempfile::Builder::new().prefix("it-").tempdir_in(beside).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        let base = directory.path().canonicalize().unwrap();
        let [work, out, home, state, temporary] = ["work", "work-evil", "home", "state", "tmp"].map(|name| {
            fs::create_dir(base.join(name)).unwrap();
            base.join(name)
        });
        let secret = format!("secret-{}", base.file_name().unwrap().to_string_lossy());
        fs::write(out.join("marker"), &secret).unwrap();
        fs::write(home.join("private"), &secret).unwrap();
        fs::create_dir(base.join("etc")).unwrap();
        fs::write(base.join("etc/passwd"), &secret).unwrap();
        fs::create_dir(work.join("sub")).unwrap();
        fs::write(work.join("sub/inside.txt"), "inside\n").unwrap();
        let zwinger = base.join("zwinger");
        if fs::hard_link(ZWINGER, &zwinger).is_err() {
            // By another process: a child of another test's thread could hold our descriptor, and the file would be busy.
            assert!(process::succeeds(&["cp", ZWINGER, zwinger.to_str().unwrap()]));
        }
        let caller_id = caller.is_ordinary().then_some(NOBODY);
        let owner = match system {
            System::Own => caller_id,
            System::Of(owner) => Some(owner),
        };
        for path in [&work, &out, &work.join("sub"), &work.join("sub/inside.txt"), &out.join("marker")] {
            give(path, owner);
        }
        for path in [&home, &state, &temporary, &home.join("private")] {
            give(path, caller_id);
        }
        let started = AtomicUsize::new(0);
        Self { base, work, out, home, state, secret, caller, zwinger, started, _directory: directory }
    }

    /// Makes everything in the workspace the caller's.
    pub(crate) fn give_all(&self) {
        let mut open = vec![self.work.clone()];
        while let Some(path) = open.pop() {
            give(&path, self.caller.is_ordinary().then_some(NOBODY));
            open.extend(list(&path).into_iter().map(|name| path.join(name)));
        }
    }

    /// A zwinger of this scratch's caller, in the workspace, without a terminal.
    pub(crate) fn zwinger(&self, arguments: &[&str]) -> Command {
        let zwinger = self.zwinger.to_str().unwrap();
        let mut command = self.command(&[&[zwinger], arguments].concat());
        command.env("HOME", &self.home).env("XDG_STATE_HOME", &self.state).env("TERM", "dumb");
        // What a zwinger that was killed could not take away goes with the scratch.
        command.env("TMPDIR", self.base.join("tmp"));
        command
    }

    /// Another program of this scratch's caller.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let prefix = self.caller.prefix();
        // setsid(1) ends in exec(2) too, for a process that leads no group.
        let mut command = process::command(&[&["setsid"], prefix.as_slice(), words].concat());
        command.current_dir(&self.work).stdin(Stdio::null());
        command
    }

    pub(crate) fn start(&self, mut command: Command) -> Running {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        // Files and not pipes: what a command leaves running cannot hold the test up.
        let [stdout, stderr] = ["stdout", "stderr"].map(|name| self.base.join(format!("{name}-{number}")));
        command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
        Running { child: command.spawn().unwrap(), stdout, stderr }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.start(self.zwinger(&[&["run"], arguments].concat())).end()
    }

    /// `zwinger run -- sh -c SCRIPT`.
    pub(crate) fn sh(&self, script: &str) -> Ended {
        self.run(&["--", "sh", "-c", script])
    }

    /// As [`Scratch::sh`] with options of `run`.
    pub(crate) fn sh_with(&self, options: &[&str], script: &str) -> Ended {
        self.run(&[options, &["--", "sh", "-c", script]].concat())
    }

    /// `zwinger tool NAME JSON OPTIONS…`.
    pub(crate) fn tool(&self, name: &str, arguments: &Value, options: &[&str]) -> Ended {
        let arguments = arguments.to_string();
        self.start(self.zwinger(&[&["tool", name, &arguments], options].concat())).end()
    }

    /// The records of the audit, in their order.
    pub(crate) fn audit(&self) -> Vec<Value> {
        let lines = read_text(self.audit_log());
        lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.state().join("audit/audit.jsonl")
    }

    /// Zwinger's own directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.state.join("zwinger")
    }

    /// Leaves no place where a session could keep a journal or a quarantine; there is an audit all the same.
    pub(crate) fn block_quarantine(&self) {
        self.sh("true");
        rename(self.state().join("workspaces"), self.state().join("workspaces-before"));
        write(self.state().join("workspaces"), "");
    }

    /// The processes that run this scratch's own zwinger.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let runs = |pid: &Pid| Path::new(&format!("/proc/{}/exe", pid.as_raw_pid())).read_link();
        process::all().into_iter().filter(|pid| runs(pid).is_ok_and(|program| program == self.zwinger)).collect()
    }

    /// Nothing beside the workspace was made, changed or removed.
    pub(crate) fn assert_out_untouched(&self) {
        assert_eq!(list(&self.out), ["marker"]);
        assert_eq!(read_text(self.out.join("marker")), self.secret);
        assert_eq!(list(&self.home), ["private"]);
        assert_eq!(list(&self.base.join("etc")), ["passwd"]);
        assert_eq!(read_text(self.base.join("etc/passwd")), self.secret);
    }

    /// What can be seen of `work-evil` from outside: names, contents, modes, owners, times.
    pub(crate) fn out_listing(&self) -> String {
        let of = |path: PathBuf| {
            let found = path.symlink_metadata().ok();
            let status = found.map(|found| (found.mode(), found.uid(), found.gid(), found.mtime(), found.nlink()));
            format!("{} {status:?} {}\n", path.display(), read_text(&path))
        };
        let inside = list(&self.out).into_iter().map(|name| of(self.out.join(name)));
        std::iter::once(of(self.out.clone())).chain(inside).collect()
    }

    /// Puts links, a FIFO and, for root, a device into the workspace that lead or belong outside. None leads to a file of the
    /// machine: the day that a wall is broken, these tests write there.
    pub(crate) fn plant(&self) {
        let link = |target: &Path, name: &str| symlink(target, self.work.join(name)).unwrap();
        link(&self.base.join("etc"), "etc-link");
        link(&self.out, "absolute-link");
        link(Path::new("../work-evil"), "relative-link");
        link(Path::new("relative-link"), "chain-2");
        link(Path::new("chain-2"), "chain-1");
        link(&self.out.join("marker"), "file-link");
        link(&self.out.join("made"), "dangling-link");
        link(Path::new("/proc/self/root"), "magic-link");
        link(Path::new("/dev/zero"), "device-link");
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, self.work.join("fifo"), fifo, mode, 0).unwrap();
        let device = rustix::fs::FileType::CharacterDevice;
        let zero = rustix::fs::makedev(1, 5);
        // Only root may.
        let _ = rustix::fs::mknodat(rustix::fs::CWD, self.work.join("device"), device, mode, zero);
    }

    /// What [`Scratch::plant`] made to lead outside, and other spellings of ways out: none may be read, listed or written.
    pub(crate) fn ways_out(&self) -> Vec<String> {
        let mut ways: Vec<String> = [
            "../work-evil/marker",
            "sub/../../work-evil/marker",
            "etc-link/passwd",
            "absolute-link/marker",
            "relative-link/marker",
            "chain-1/marker",
            "file-link",
            "dangling-link",
            "absolute-link/made",
            "sub/../../work-evil/made",
            "fifo",
            "device-link",
        ]
        .map(String::from)
        .into();
        let base = self.base.to_str().unwrap();
        ways.extend(["magic-link", "", "/proc/self/root"].map(|before| format!("{before}{base}/etc/passwd")));
        ways.extend(["marker", "made"].map(|name| self.out.join(name).to_str().unwrap().to_owned()));
        ways.extend(self.work.join("device").exists().then(|| "device".into()));
        ways
    }
}

fn give(path: &Path, owner: Option<u32>) {
    if let Some(id) = owner {
        rustix::fs::chown(path, Some(Uid::from_raw(id)), Some(Gid::from_raw(id))).unwrap();
    }
}

fn reachable_by_all(path: &Path) -> bool {
    path.ancestors().all(|dir| fs::metadata(dir).is_ok_and(|found| found.permissions().mode() & 0o5 == 0o5))
}

/// A started process; killed when dropped.
pub(crate) struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Its standard input, where it is a pipe; closed when the value is dropped.
    pub(crate) fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().expect("a pipe")
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end, which must come.
    pub(crate) fn end(self) -> Ended {
        self.end_within(SOON)
    }

    /// As [`Running::end`], for what takes its time.
    pub(crate) fn end_within(mut self, limit: Duration) -> Ended {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < limit, "does not end; stderr so far: {}", read_text(&self.stderr));
            process::pause();
        };
        Ended {
            code: status.code().or(status.signal().map(|signal| 128 + signal)).unwrap(),
            stdout: fs::read(&self.stdout).unwrap(),
            stderr: read_text(&self.stderr),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process left: its exit status as a shell shows it, and its output.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The field `error` of a tool's result, or nothing.
    pub(crate) fn error(&self) -> String {
        self.json().get("error").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    pub(crate) fn shows(&self, text: &str) -> bool {
        self.text().contains(text) || self.stderr.contains(text)
    }
}

/// The text of a file; what is no UTF-8 replaced, nothing for a file that is not there.
pub(crate) fn read_text(path: impl AsRef<Path>) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

pub(crate) fn read_plainly(path: &Path) -> std::io::Result<Vec<u8>> {
    fs::read(path)
}

pub(crate) fn open(path: &Path) -> File {
    File::open(path).unwrap()
}

pub(crate) fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    File::create(path).and_then(|mut file| file.write_all(content.as_ref())).unwrap();
}

pub(crate) fn link(target: &str, path: impl AsRef<Path>) {
    symlink(target, path).unwrap();
}

pub(crate) fn make_dir(path: impl AsRef<Path>) {
    fs::create_dir(path).unwrap();
}

pub(crate) fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    std::fs::rename(from, to).unwrap();
}

pub(crate) fn remove(path: impl AsRef<Path>) {
    fs::remove_file(path).unwrap();
}

pub(crate) fn remove_dir(path: &Path) {
    fs::remove_dir(path).unwrap();
}

pub(crate) fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// The names in a directory, sorted; none for one that is not there.
pub(crate) fn list(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
