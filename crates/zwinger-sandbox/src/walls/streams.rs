//! Files that the person passes as streams, to be read alone.
//!
//! Whoever has a file open can open it again (proc(5), /proc/PID/fd), by the mount that it was opened on: the host's, on which
//! nothing is read-only, and Landlock looks at where the file lies and not at that mount. So it is opened again here, on a mount of
//! its own that is read-only.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, OFlags, SeekFrom};

use super::mounts::Host;
use crate::host_path::HostPath;
use crate::plan::{Plan, Rights, Rule};

/// The streams as they were passed. What was read is told to them when this is dropped, for whoever reads on.
#[derive(Default)]
pub(crate) struct Passed(Vec<(u8, OwnedFd)>);

impl Drop for Passed {
    fn drop(&mut self) {
        for (number, passed) in &self.0 {
            if let Ok(at) = rustix::fs::tell(stream(*number)) {
                let _ = rustix::fs::seek(passed, SeekFrom::Start(at));
            }
        }
    }
}

fn stream(number: u8) -> BorrowedFd<'static> {
    match number {
        0 => rustix::stdio::stdin(),
        1 => rustix::stdio::stdout(),
        _ => rustix::stdio::stderr(),
    }
}

/// Puts files that were opened to be read on mounts that are read-only, and lets the plan's rules permit reading them.
/// One that was opened to be written can be, and must not be a secret, for it could be read too.
///
/// # Errors
/// When a stream of the workspace cannot be held so.
pub(super) fn hold(host: &Host, plan: &mut Plan) -> io::Result<Passed> {
    let mut passed = Passed::default();
    for number in 0..3 {
        let fd = stream(number);
        let status = rustix::fs::fstat(fd)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            continue;
        }
        let is = |found: &rustix::fs::Stat| (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino);
        match rustix::fs::fcntl_getfl(fd)? & OFlags::RWMODE {
            OFlags::RDONLY => {
                let path = std::fs::read_link(format!("/proc/self/fd/{number}"))?;
                match host.file(&path, is).and_then(|tree| tree.map(|tree| reopen(&tree, fd)).transpose()) {
                    Ok(Some(file)) => {
                        passed.0.push((number, rustix::io::fcntl_dupfd_cloexec(fd, 3)?));
                        replace(number, &file)?;
                        let rule = Rule { path: format!("/proc/self/fd/{number}").into(), rights: Rights::Read };
                        plan.seal.iter_mut().for_each(|seal| seal.rules.push(rule.clone()));
                    }
                    // Landlock lets nobody open it to write, or nobody else has it any more.
                    _ if !is_writable(plan, &path) || status.st_nlink == 0 => {}
                    Ok(None) => return Err(io::Error::other(format!("{} was moved meanwhile", path.display()))),
                    Err(error) => return Err(error),
                }
            }
            // Also one that was opened for both: `1<>.env`.
            _ => {
                let path = std::fs::read_link(format!("/proc/self/fd/{number}"))?;
                let secret = |secret: &&HostPath| {
                    path.starts_with(&***secret)
                        || host.status(secret).is_ok_and(|found| found.as_ref().is_some_and(is))
                };
                if let Some(secret) = plan.secrets.iter().find(secret) {
                    let text = "is hidden, and could be read by whoever may write it (--show permits that)";
                    return Err(io::Error::other(format!("{} {text}", secret.display())));
                }
            }
        }
    }
    Ok(passed)
}

fn is_writable(plan: &Plan, path: &Path) -> bool {
    let rules = plan.seal.iter().flat_map(|seal| &seal.rules);
    rules.filter(|rule| rule.rights == Rights::Write).any(|rule| path.starts_with(&*rule.path))
}

/// At the place where it was left.
fn reopen(tree: &OwnedFd, passed: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", tree.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    rustix::fs::seek(&file, SeekFrom::Start(rustix::fs::tell(passed)?))?;
    Ok(file)
}

fn replace(number: u8, by: &OwnedFd) -> rustix::io::Result<()> {
    match number {
        0 => rustix::stdio::dup2_stdin(by),
        1 => rustix::stdio::dup2_stdout(by),
        _ => rustix::stdio::dup2_stderr(by),
    }
}
