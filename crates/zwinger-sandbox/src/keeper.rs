//! The keeper: a process outside the session's process namespace that raises the walls, holds them, and starts executors in them.
//!
//! It obeys the host alone, over the socket that is its standard input, and ends when that closes. Commands can neither see
//! nor signal it.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::processors::Processors;
use crate::supervisor;
use crate::sys::{self, Cloned};
use crate::walls::{self, OwnIds, PrivateNetwork, Processes, Tree, WallError, mounts};
use crate::watch::Watch;

/// What the host orders.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Raise these walls.
    Raise(Box<Plan>),
    /// The ids are mapped (root callers map them from outside).
    Mapped,
    /// Start an executor inside.
    Start,
}

/// What the keeper answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// In the new namespaces; ids may be mapped now.
    Entered,
    /// The walls stand.
    Raised,
    /// They do not, and nothing runs.
    Failed { text: String, not_permitted: bool },
    /// An executor runs; the message carries the host's ends of its stdin and stdout.
    Started,
}

/// Bytes of a message that travels by itself; a longer one (a plan with many pins) lies in a file in memory that travels instead.
const INLINE: usize = 1 << 13;

/// Bytes of the longest message; a plan has some hundred thousand paths then.
const LONGEST: u64 = 1 << 26;

pub(crate) fn send<M: Serialize>(socket: BorrowedFd<'_>, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let mut fds = fds.to_vec();
    let file = match bytes.len() > INLINE {
        true => Some(in_memory(&bytes)?),
        false => None,
    };
    fds.extend(file.iter().map(AsFd::as_fd));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let head = [u8::from(file.is_some())];
    let body = if file.is_some() { &[] } else { bytes.as_slice() };
    rustix::net::sendmsg(socket, &[IoSlice::new(&head), IoSlice::new(body)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn in_memory(bytes: &[u8]) -> io::Result<File> {
    use std::io::Seek;
    let mut file = File::from(rustix::fs::memfd_create("zwinger", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// The next message with its descriptors; `None` when the other side is gone.
pub(crate) fn receive<M: for<'de> Deserialize<'de>>(socket: BorrowedFd<'_>) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage};
    let mut buffer = vec![0_u8; INLINE + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut reset = false;
    let received = loop {
        let mut parts = [io::IoSliceMut::new(&mut buffer)];
        match rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received.bytes,
            Err(rustix::io::Errno::INTR) => {}
            // Its end left something of ours unread; what it said before is still to be had (net/unix/af_unix.c).
            Err(rustix::io::Errno::CONNRESET) if !reset => reset = true,
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    };
    let mut fds: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds.collect::<Vec<_>>()),
            _ => None,
        })
        .flatten()
        .collect();
    let message = match buffer.get(..received) {
        Some([0, body @ ..]) => postcard::from_bytes(body),
        Some([_, ..]) => {
            use std::io::Read;
            let file = fds.pop().ok_or(io::ErrorKind::InvalidData)?;
            let mut bytes = Vec::new();
            File::from(file).take(LONGEST).read_to_end(&mut bytes)?;
            postcard::from_bytes(&bytes)
        }
        _ => return Ok(None),
    };
    Ok(Some((message.map_err(io::Error::other)?, fds)))
}

/// The keeper's whole life. Called by the binary when it was started as [`crate::KEEPER`].
pub fn main() -> ! {
    let status = match Keeper::begin().and_then(|mut keeper| keeper.serve()) {
        Ok(()) => 0,
        // The host is told of walls that fail by `Report::Failed`; this is a broken socket.
        Err(error) => {
            let _ = writeln!(io::stderr(), "zwinger: the keeper ended: {error}");
            1
        }
    };
    sys::exit_now(status)
}

struct Keeper {
    socket: OwnedFd,
    /// Our own program, opened before the walls hide its path.
    program: OwnedFd,
    plan: Plan,
    executor: Option<(Pid, OwnedFd)>,
    watch: Option<Watch>,
    /// The workspace's mount inside, once it stands.
    workspace: Option<OwnedFd>,
    /// What the host wants open for as long as anything of the session runs.
    _held: Vec<OwnedFd>,
}

impl Keeper {
    fn begin() -> io::Result<Self> {
        sys::close_on_exec_above_2()?;
        sys::reset_signals();
        // No parent-death signal here: that one follows the host's thread, not the host. The socket hangs up with the host.
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let program = rustix::fs::openat(CWD, "/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let Some((Order::Raise(plan), held)) = receive::<Order>(socket.as_fd())? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        Ok(Self { socket, program, plan: *plan, executor: None, watch: None, workspace: None, _held: held })
    }

    fn serve(&mut self) -> io::Result<()> {
        if let Err(error) = self.raise() {
            let not_permitted = error.not_permitted();
            return self.report(&Report::Failed { text: error.to_string(), not_permitted }, &[]);
        }
        self.report(&Report::Raised, &[])?;
        loop {
            let host_speaks = self.wait()?;
            if !host_speaks {
                continue;
            }
            match receive::<Order>(self.socket.as_fd())? {
                Some((Order::Start, _)) => self.start_executor()?,
                Some(_) => return Err(io::ErrorKind::InvalidData.into()),
                None => {
                    self.end_executor();
                    return Ok(());
                }
            }
        }
    }

    fn raise(&mut self) -> Result<(), WallError> {
        let own_ids = OwnIds::read();
        if let Some(mounts) = &self.plan.mounts {
            sys::unshare(walls::NAMESPACES).map_err(WallError::refusable("enter new namespaces"))?;
            if self.plan.root_caller {
                self.wait_for_maps().map_err(WallError::at("map the ids"))?;
            } else {
                own_ids.map()?;
            }
            let network = self.plan.private_network.then(|| PrivateNetwork::begin(Processors::read())).transpose()?;
            Tree::begin(Processes::Hosts)?.complete(&self.plan, mounts)?;
            network.map_or(Ok(()), PrivateNetwork::enter)?;
        }
        if self.plan.urgent {
            // As far as it is permitted; the sweep works without it too, only later.
            let _ = sys::run_before_others();
        }
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(WallError::at("set not dumpable"))?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(WallError::at("adopt orphans"))?;
        // The old working directory lies outside the new mounts.
        rustix::process::chdir(&*self.plan.workspace).map_err(WallError::at("enter the workspace"))?;
        self.workspace =
            Some(supervisor::open_directory(Path::new(".")).map_err(WallError::at("enter the workspace"))?);
        self.watch = Watch::of(&self.plan).map_err(WallError::at("watch what is hidden and kept"))?;
        Ok(())
    }

    fn wait_for_maps(&self) -> io::Result<()> {
        self.report(&Report::Entered, &[])?;
        match receive::<Order>(self.socket.as_fd())? {
            Some((Order::Mapped, _)) => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Sleeps until the host speaks or is gone (`true`), or the executor has ended.
    fn wait(&mut self) -> io::Result<bool> {
        let mut polled = vec![PollFd::new(&self.socket, PollFlags::IN)];
        polled.extend(self.watch.iter().map(|watch| PollFd::new(watch, PollFlags::IN)));
        polled.extend(self.executor.iter().map(|(_, ended)| PollFd::new(ended, PollFlags::IN)));
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
        let host = ready.next() == Some(true);
        let replaced = self.watch.is_some() && ready.next() == Some(true);
        let executor = ready.next() == Some(true);
        if let Some(watch) = self.watch.as_ref().filter(|_| replaced)
            && watch.was_replaced()?
        {
            // A failure ends this keeper, and with it all that is inside.
            let workspace = self.workspace.as_ref().ok_or(io::ErrorKind::NotFound)?;
            mounts::renew(&self.plan, workspace.as_fd())?;
        }
        if executor {
            self.end_executor();
        }
        Ok(host)
    }

    fn end_executor(&mut self) {
        if let Some((pid, _)) = self.executor.take() {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
            // Where no process namespace ended with the executor, its commands are ours now.
            if self.plan.mounts.is_none() {
                supervisor::sweep();
            }
        }
    }

    fn start_executor(&mut self) -> io::Result<()> {
        self.end_executor();
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let ((stdin, host_writes), (host_reads, stdout)) = (pipe()?, pipe()?);
        let pid_namespace = if self.plan.mounts.is_some() { sys::NEW_PID } else { 0 };
        match sys::clone_process(pid_namespace)? {
            Cloned::Parent(pid) => {
                let ended = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
                self.executor = Some((pid, ended));
                self.report(&Report::Started, &[host_writes.as_fd(), host_reads.as_fd()])
            }
            Cloned::Child => {
                let error = self.become_executor(&stdin, &stdout);
                // Seen by the host as an executor that ends before it greets; the reason goes to its standard error.
                let _ = writeln!(io::stderr(), "zwinger: the executor did not start: {error}");
                sys::exit_now(1)
            }
        }
    }

    fn become_executor(&self, stdin: &OwnedFd, stdout: &OwnedFd) -> io::Error {
        let prepare = || -> Result<(), WallError> {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
                .map_err(WallError::at("tie the executor to the keeper"))?;
            if self.plan.mounts.is_some() {
                mounts::fresh_proc(&self.plan)?;
            }
            if self.plan.seal.is_some() {
                walls::bound_capabilities(&self.plan)?;
                walls::drop_capabilities(&self.plan)?;
            }
            rustix::stdio::dup2_stdin(stdin).map_err(WallError::at("connect stdin"))?;
            rustix::stdio::dup2_stdout(stdout).map_err(WallError::at("connect stdout"))
        };
        match prepare() {
            Ok(()) => sys::exec_fd(self.program.as_fd(), &[crate::EXECUTOR], &self.plan.environment),
            Err(error) => io::Error::other(error),
        }
    }

    fn report(&self, report: &Report, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        send(self.socket.as_fd(), report, fds)
    }
}
