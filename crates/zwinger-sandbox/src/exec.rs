//! A command between vfork(2) and exec(2).

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::process::{Resource, Rlimit};

use crate::sys::{self, StringArray, c_string};

/// The variables as execve(2) takes them.
pub(crate) fn assignments(environment: &[(OsString, OsString)]) -> impl Iterator<Item = OsString> {
    environment.iter().map(|(name, value)| {
        let mut assignment = name.clone();
        assignment.push("=");
        assignment.push(value);
        assignment
    })
}

/// Everything that a child needs between vfork and exec, allocated beforehand: the child itself must not allocate.
pub(crate) struct Exec {
    candidates: Vec<CString>,
    argv: StringArray,
    envp: StringArray,
    directory: OwnedFd,
    stdio: [OwnedFd; 3],
    new_session: bool,
    limits: Vec<(Resource, u64)>,
}

/// What [`Exec::new`] takes.
pub(crate) struct ExecParts<'a> {
    pub(crate) argv: &'a [OsString],
    pub(crate) environment: &'a [(OsString, OsString)],
    pub(crate) directory: OwnedFd,
    pub(crate) stdio: [OwnedFd; 3],
    pub(crate) new_session: bool,
    pub(crate) limits: Vec<(Resource, u64)>,
}

impl Exec {
    pub(crate) fn new(parts: ExecParts<'_>) -> io::Result<Self> {
        let program = parts.argv.first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let path = parts.environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        Ok(Self {
            candidates: candidates(program, path.unwrap_or(OsStr::new("/usr/bin:/bin")))?,
            argv: StringArray::new(parts.argv.iter().cloned())?,
            envp: StringArray::new(assignments(parts.environment))?,
            directory: parts.directory,
            stdio: parts.stdio,
            new_session: parts.new_session,
            limits: parts.limits,
        })
    }

    /// The child's side after vfork(2): system calls only, no allocation, no lock. Returns the errno of the failure.
    pub(crate) fn enter(&self) -> i32 {
        sys::reset_signals();
        match self.try_enter() {
            Ok(never) => never,
            Err(errno) => errno.raw_os_error(),
        }
    }

    fn try_enter(&self) -> rustix::io::Result<i32> {
        let [stdin, stdout, stderr] = &self.stdio;
        // All three come from descriptors above 2 (see `spawn::stdio`), so no dup2 overwrites a source.
        rustix::stdio::dup2_stdin(stdin)?;
        rustix::stdio::dup2_stdout(stdout)?;
        rustix::stdio::dup2_stderr(stderr)?;
        rustix::process::fchdir(&self.directory)?;
        if self.new_session {
            rustix::process::setsid()?;
        }
        for (resource, maximum) in &self.limits {
            // Only a privileged process may raise a limit that the caller has set lower already (setrlimit(2)).
            let own = rustix::process::getrlimit(*resource).maximum.unwrap_or(u64::MAX);
            let maximum = Some(own.min(*maximum));
            let limit = Rlimit { current: maximum, maximum };
            rustix::process::setrlimit(*resource, limit)?;
        }
        let mut answer = libc::ENOENT;
        for candidate in &self.candidates {
            // As execvp(3): go on after "not there", remember "not permitted", stop at anything else.
            match sys::execve(candidate, &self.argv, &self.envp) {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => answer = libc::EACCES,
                other => return Ok(other),
            }
        }
        Ok(answer)
    }
}

/// The files that execvp(3) would try; relative entries of PATH are left out, for a workspace may hold anything.
fn candidates(program: &OsStr, path: &OsStr) -> io::Result<Vec<CString>> {
    if program.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(program)?]);
    }
    path.as_bytes()
        .split(|byte| *byte == b':')
        .filter(|dir| dir.starts_with(b"/"))
        .map(|dir| c_string(OsString::from_vec([dir, b"/", program.as_bytes()].concat())))
        .collect()
}
