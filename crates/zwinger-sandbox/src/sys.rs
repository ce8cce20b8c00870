//! The one file with `unsafe`: system calls that neither std nor rustix offers in safe form.
//!
//! Sources: clone(2), vfork(2), execveat(2), mount_setattr(2), seccomp(2), close_range(2), sigaction(2).
#![expect(unsafe_code, reason = "each block says why it is sound; the rest of the workspace denies it")]

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus};

use crate::exec::{Exec, assignments};

/// The namespaces of a session; values of clone(2).
pub(crate) const NEW_USER: c_int = libc::CLONE_NEWUSER;
pub(crate) const NEW_MOUNT: c_int = libc::CLONE_NEWNS;
pub(crate) const NEW_PID: c_int = libc::CLONE_NEWPID;
pub(crate) const NEW_IPC: c_int = libc::CLONE_NEWIPC;
pub(crate) const NEW_UTS: c_int = libc::CLONE_NEWUTS;

/// Which side of a [`clone_process`] we are on.
pub(crate) enum Cloned {
    Parent(Pid),
    Child,
}

/// fork(2) into new namespaces. Refused in a process with more than one thread: a lock held by a thread that
/// does not exist in the child would never be released.
pub(crate) fn clone_process(namespaces: c_int) -> io::Result<Cloned> {
    has_one_thread()?;
    let flags = libc::c_ulong::from((namespaces | libc::SIGCHLD).cast_unsigned());
    // SAFETY: without CLONE_VM and with a null stack the child runs on a copy of this memory, as after fork(2);
    // there is one thread (checked above), so no lock is left held. The other arguments are unused by these flags.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Cloned::Child),
        pid => i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .map(Cloned::Parent)
            .ok_or_else(|| io::Error::other("clone(2) gave an impossible pid")),
    }
}

/// Asks the kernel and not /proc, which in a keeper shows the processes of its executor only. unshare(2): CLONE_THREAD changes
/// nothing in a process with one thread, and is refused in any other.
fn has_one_thread() -> io::Result<()> {
    // SAFETY: as it says, nothing changes.
    let alone = match check(unsafe { libc::unshare(libc::CLONE_THREAD) }.into()) {
        Ok(()) => true,
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => false,
        // A filter around us refuses the call, and with it namespaces, so /proc is the host's. proc(5): its directory has one
        // entry a thread.
        Err(_) => rustix::fs::stat("/proc/self/task")?.st_nlink == 3,
    };
    if alone { Ok(()) } else { Err(io::Error::other("walls must be opened from a process with one thread")) }
}

/// getcpu(2), the call: its vDSO form costs more to find than one call does.
pub(crate) fn current_processor() -> usize {
    let mut processor: libc::c_uint = 0;
    // SAFETY: the kernel writes one unsigned int; the other pointers may be null.
    unsafe { libc::syscall(libc::SYS_getcpu, &raw mut processor, 0, 0) };
    processor as usize
}

/// Ends a cloned process without running what its parent registered for its own end.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: _exit(2) has no preconditions.
    unsafe { libc::_exit(status) }
}

/// unshare(2) of the calling process, which must have one thread (the kernel checks it for user namespaces).
pub(crate) fn unshare(namespaces: c_int) -> io::Result<()> {
    // SAFETY: none of the flags used here (CLONE_NEW*) changes memory or descriptors of this process.
    check(unsafe { libc::unshare(namespaces) }.into())
}

/// Attributes for [`mount_setattr`]; all only add restrictions.
#[derive(Clone, Copy)]
pub(crate) struct MountAttributes {
    pub(crate) read_only: bool,
    pub(crate) private: bool,
    pub(crate) recursive: bool,
}

/// mount_setattr(2): always sets nosuid, on request read-only and private propagation.
pub(crate) fn mount_setattr(dir: BorrowedFd<'_>, path: &CStr, attributes: MountAttributes) -> io::Result<()> {
    let mut attr_set = libc::MOUNT_ATTR_NOSUID;
    if attributes.read_only {
        attr_set |= libc::MOUNT_ATTR_RDONLY;
    }
    let attr = libc::mount_attr {
        attr_set,
        attr_clr: 0,
        propagation: if attributes.private { libc::MS_PRIVATE } else { 0 },
        userns_fd: 0,
    };
    let mut flags = libc::AT_EMPTY_PATH;
    if attributes.recursive {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: `path` ends in NUL, `attr` is a live mount_attr of the size that is passed; the kernel only reads both.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    })
}

/// One instruction of a seccomp filter (linux/filter.h).
pub(crate) type FilterStep = libc::sock_filter;

/// seccomp(2): puts a filter on this process and all it starts. Needs no_new_privs.
pub(crate) fn install_filter(program: &[FilterStep]) -> io::Result<()> {
    let length = program.len().try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` points to `length` live instructions, which the kernel only reads.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) })
}

/// Makes every descriptor above 2 close at the next exec, so that nothing inherited leaks into the walls.
pub(crate) fn close_on_exec_above_2() -> io::Result<()> {
    // SAFETY: with CLOSE_RANGE_CLOEXEC no descriptor is closed now, so no owner loses its own.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) })
}

/// Gives every signal its default action and unblocks all. A caller that ignores SIGCHLD would break waiting, one
/// that ignores SIGPIPE would be inherited by commands.
pub(crate) fn reset_signals() {
    // The classic signals; nobody hands ignored real-time ones down.
    for signal in 1..32 {
        // SAFETY: SIG_DFL installs no code of ours; numbers that cannot be set answer EINVAL, which is what we want.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that sigprocmask then reads.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// Undoes a parent's ignoring of SIGCHLD: children would end unseen (wait(2)).
pub(crate) fn wait_for_children_again() {
    // SAFETY: SIG_DFL installs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// sched(7): the calling thread runs before all that are not real-time, from now on. What it starts is ordinary again.
pub(crate) fn run_before_others() -> io::Result<()> {
    /// linux/sched.h.
    const RESET_ON_FORK: c_int = 0x4000_0000;
    // struct sched_param of the kernel: the priority alone, of which 1 is the least.
    let priority: c_int = 1;
    // SAFETY: the kernel reads an int behind the pointer, which is live. Not by libc, of which some refuse the call.
    check(unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO | RESET_ON_FORK, &raw const priority)
    })
}

/// sched(7), SCHED_BATCH: a process takes its turn of the processor as before, but never that of another in the middle.
pub(crate) fn let_others_finish(child: Pid) -> io::Result<()> {
    let priority: c_int = 0;
    // SAFETY: the kernel reads an int behind the pointer, which is live.
    check(unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, child.as_raw_pid(), libc::SCHED_BATCH, &raw const priority)
    })
}

/// Lets the terminal's interrupt and quit keys end the command and not the waiting host.
pub(crate) fn ignore_terminal_signals() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: SIG_IGN installs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// tcsetpgrp(3), also by a process that is not in the foreground, which SIGTTOU would stop.
pub(crate) fn set_foreground(terminal: BorrowedFd<'_>, group: Pid) -> rustix::io::Result<()> {
    let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that the others change and read; the kernel writes `before`, which is read only then.
    unsafe {
        libc::sigemptyset(mask.as_mut_ptr());
        libc::sigaddset(mask.as_mut_ptr(), libc::SIGTTOU);
        if libc::pthread_sigmask(libc::SIG_BLOCK, mask.as_ptr(), before.as_mut_ptr()) != 0 {
            return Err(rustix::io::Errno::INVAL);
        }
    }
    let set = rustix::termios::tcsetpgrp(terminal, group);
    // SAFETY: `before` was written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    set
}

/// Readable while the end of a child has not been seen; SIGCHLD itself is blocked.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    signals(&[libc::SIGCHLD])
}

/// Readable while a SIGTERM or SIGHUP has not been taken; they are blocked for the calling thread and what it starts.
pub(crate) fn end_signals() -> io::Result<OwnedFd> {
    signals(&[libc::SIGTERM, libc::SIGHUP])
}

/// Blocks them and gives a descriptor from which they are read (signalfd(2)).
fn signals(which: &[c_int]) -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that the others change and read; a descriptor that is not -1 is new, and ours.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in which {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        match libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Whether this process ignores a signal, as its caller may have handed down.
pub(crate) fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action nothing changes; the old one is read only where the call has written it.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

fn block_all_signals() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set that sigprocmask then reads.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}

/// A NUL-terminated vector of strings for execve(2), with the strings that it points to.
pub(crate) struct StringArray {
    pointers: Vec<*const c_char>,
    _strings: Vec<CString>,
}

impl StringArray {
    pub(crate) fn new(strings: impl IntoIterator<Item = OsString>) -> io::Result<Self> {
        let strings = strings.into_iter().map(c_string).collect::<io::Result<Vec<_>>>()?;
        let pointers = strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(Self { pointers, _strings: strings })
    }
}

/// execve(2). Returns only on failure, with the errno.
pub(crate) fn execve(program: &CStr, argv: &StringArray, envp: &StringArray) -> i32 {
    // SAFETY: all three pointers are to NUL-terminated data that outlives the call.
    unsafe { libc::execve(program.as_ptr(), argv.pointers.as_ptr(), envp.pointers.as_ptr()) };
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

pub(crate) fn c_string(text: impl Into<OsString>) -> io::Result<CString> {
    CString::new(text.into().into_vec())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL byte in an argument, path or variable"))
}

/// A process beside the caller that shares its memory and descriptors, for work that must not happen to the caller itself.
pub(crate) struct Aside<T> {
    pid: Pid,
    waited: bool,
    shared: Box<AsideShared<T>>,
}

struct AsideShared<T> {
    work: fn() -> rustix::io::Result<T>,
    made: Option<rustix::io::Result<T>>,
    stack: Box<[MaybeUninit<u128>]>,
}

impl<T> Aside<T> {
    /// Starts `work`. It runs at the same time as the caller, so it may make system calls (rustix's, which touch no errno) and
    /// use its own stack, and nothing else: no allocation, no lock, no thread-local.
    pub(crate) fn start(work: fn() -> rustix::io::Result<T>) -> io::Result<Self> {
        let mut shared =
            Box::new(AsideShared { work, made: None, stack: Box::new_uninit_slice(STACK / size_of::<u128>()) });
        let top = shared.stack.as_mut_ptr_range().end.cast::<c_void>();
        let argument = (&raw mut *shared).cast::<c_void>();
        // SAFETY: the stack is a live allocation whose end is 16-byte aligned; it and `argument` outlive the process, for which
        // `wait` or `drop` waits; `work` keeps to what is said above.
        let pid =
            unsafe { libc::clone(aside_main::<T>, top, libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD, argument) };
        if pid == -1 {
            return Err(io::Error::last_os_error());
        }
        let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("clone(2) gave an impossible pid"))?;
        Ok(Self { pid, waited: false, shared })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for what it made.
    pub(crate) fn wait(mut self) -> io::Result<T> {
        self.reap()?;
        let made = self.shared.made.take().ok_or_else(|| io::Error::other("a process of ours was killed"))?;
        Ok(made?)
    }

    fn reap(&mut self) -> io::Result<()> {
        if !self.waited {
            wait_for(self.pid)?;
            self.waited = true;
        }
        Ok(())
    }
}

impl<T> Drop for Aside<T> {
    fn drop(&mut self) {
        let _ = self.reap();
    }
}

extern "C" fn aside_main<T>(argument: *mut c_void) -> c_int {
    // SAFETY: `Aside::start` passes a pointer to an AsideShared, which it does not touch before this process has ended.
    let shared = unsafe { &mut *argument.cast::<AsideShared<T>>() };
    shared.made = Some((shared.work)());
    0
}

/// unshare(2) of the network alone; without errno, for a process that shares its memory.
pub(crate) fn unshare_network() -> rustix::io::Result<()> {
    // SAFETY: the flag changes neither memory nor descriptors.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
}

/// The network namespace that a socket lives in, by SIOCGSKNS (linux/sockios.h). As [`unshare_network`], without errno.
pub(crate) fn network_namespace_of(socket: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    // SAFETY: the request takes no argument and answers with a new descriptor (see the type).
    unsafe { rustix::ioctl::ioctl(socket, NamespaceOfSocket) }
}

struct NamespaceOfSocket;

// SAFETY: the kernel neither reads nor writes through the pointer, and a successful answer is a descriptor that nobody owns yet.
unsafe impl rustix::ioctl::Ioctl for NamespaceOfSocket {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> rustix::ioctl::Opcode {
        0x894C
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: rustix::ioctl::IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        // SAFETY: as said above.
        Ok(unsafe { OwnedFd::from_raw_fd(out) })
    }
}

/// Replaces this process by the program behind `program`, an open file. Returns only on failure.
pub(crate) fn exec_fd(program: BorrowedFd<'_>, argv: &[&str], environment: &[(OsString, OsString)]) -> io::Error {
    let prepare = || -> io::Result<(StringArray, StringArray)> {
        Ok((StringArray::new(argv.iter().map(OsString::from))?, StringArray::new(assignments(environment))?))
    };
    let (argv, envp) = match prepare() {
        Ok(arrays) => arrays,
        Err(error) => return error,
    };
    // SAFETY: both arrays end in a null pointer and outlive the call; the path is an empty C string (AT_EMPTY_PATH).
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            argv.pointers.as_ptr(),
            envp.pointers.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

const STACK: usize = 128 * 1024;

/// A command on its way to exec, in the hands of its child.
struct Attempt {
    exec: Option<Exec>,
    errno: i32,
}

/// Starts a command as a child of this process. `Err` inside: the errno that exec(2) gave.
pub(crate) fn spawn(exec: Exec) -> io::Result<Result<Pid, i32>> {
    let mut stack = Box::<[u128]>::new_uninit_slice(STACK / size_of::<u128>());
    let mut attempt = Attempt { exec: Some(exec), errno: 0 };
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let argument = (&raw mut attempt).cast::<c_void>();
    // SAFETY: the stack is a live allocation whose end is 16-byte aligned (u128); with CLONE_VFORK this process sleeps until the
    // child has called exec or ended, so the child has the memory for itself.
    let child = unsafe { libc::clone(child_main, top, libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, argument) };
    if child == -1 {
        return Err(io::Error::last_os_error());
    }
    let child = Pid::from_raw(child).ok_or_else(|| io::Error::other("clone(2) gave an impossible pid"))?;
    match attempt.errno {
        0 => Ok(Ok(child)),
        errno => wait_for(child).map(|_| Err(errno)),
    }
}

/// A supervisor: a process that shares our memory and descriptor table, adopts every orphan of the command that it
/// starts, and waits until none of its descendants is left. Killed and waited for when dropped.
pub(crate) struct Shim {
    pid: Pid,
    reaped: bool,
    shared: Box<Shared>,
}

/// What the shim and its child use. We touch `attempt` again only after the shim has said that it is done with it.
struct Shared {
    attempt: Attempt,
    /// The write end of a pipe, and its number for the shim (they share the descriptor table).
    _status: OwnedFd,
    status: RawFd,
    shim_stack: Box<[MaybeUninit<u128>]>,
    child_stack: Box<[MaybeUninit<u128>]>,
}

/// What a shim writes to its status pipe: a kind and a number, 8 bytes.
pub(crate) const NOT_STARTED: u32 = 2;
pub(crate) const EXITED: u32 = 3;
pub(crate) const SIGNALLED: u32 = 4;

impl Shim {
    /// Starts the supervisor, which starts the command. `status` is the write end of a pipe.
    pub(crate) fn start(exec: Exec, status: OwnedFd) -> io::Result<Self> {
        let stack = || Box::new_uninit_slice(STACK / size_of::<u128>());
        let mut shared = Box::new(Shared {
            attempt: Attempt { exec: Some(exec), errno: 0 },
            status: status.as_raw_fd(),
            _status: status,
            shim_stack: stack(),
            child_stack: stack(),
        });
        let top = shared.shim_stack.as_mut_ptr_range().end.cast::<c_void>();
        let argument = (&raw mut *shared).cast::<c_void>();
        // SAFETY: the stack is a live allocation of STACK bytes whose end is 16-byte aligned (u128); the memory behind
        // `argument` stays allocated until `drop`, which kills and waits for the shim first. The shim neither
        // allocates nor touches thread-local state (rustix makes the system calls directly).
        let pid = unsafe { libc::clone(shim_main, top, libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD, argument) };
        if pid == -1 {
            return Err(io::Error::last_os_error());
        }
        let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("clone(2) gave an impossible pid"))?;
        Ok(Self { pid, reaped: false, shared })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Closes our copies of the command's streams, so that their readers see the end of file. Only after the shim has
    /// reported something or has ended: from then on it does not use them.
    pub(crate) fn release_streams(&mut self) {
        self.shared.attempt.exec = None;
    }

    /// Whether it was stopped, which only its command can have done.
    pub(crate) fn is_stopped(&self) -> io::Result<bool> {
        is_stopped(self.pid)
    }

    /// Waits for the supervisor's end. `true`: it saw that no descendant was left. `false`: it was killed.
    pub(crate) fn wait(&mut self) -> io::Result<bool> {
        let status = wait_for(self.pid)?;
        self.reaped = true;
        Ok(status.exit_status() == Some(0))
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = rustix::process::kill_process(self.pid, rustix::process::Signal::KILL);
            let _ = self.wait();
        }
    }
}

extern "C" fn shim_main(argument: *mut c_void) -> c_int {
    block_all_signals();
    let shared = argument.cast::<Shared>();
    // SAFETY: `Shim::start` passes a pointer to a Shared that outlives this process; its thread waits for our report. The
    // descriptor is in the table that both share, and is closed only after our end.
    let (status, top, attempt) = unsafe {
        let top = (*shared).child_stack.as_mut_ptr_range().end.cast::<c_void>();
        (BorrowedFd::borrow_raw((*shared).status), top, &raw mut (*shared).attempt)
    };
    if rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_err() {
        report(status, NOT_STARTED, libc::EPERM);
        return 1;
    }
    // SAFETY: as in `Shim::start`, and as in `spawn`.
    let child =
        unsafe { libc::clone(child_main, top, libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, attempt.cast()) };
    if child == -1 {
        report(status, NOT_STARTED, libc::EAGAIN);
        return 1;
    }
    // SAFETY: the child has ended or called exec, so nobody else uses the field.
    match unsafe { (*attempt).errno } {
        // Nobody needs to know before it ends, and would be woken for nothing.
        0 => {}
        errno => report(status, NOT_STARTED, errno),
    }
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, end))) if pid.as_raw_pid() == child => match end.terminating_signal() {
                Some(signal) => report(status, SIGNALLED, signal),
                None => report(status, EXITED, end.exit_status().unwrap_or(0)),
            },
            // Somebody's orphan, or a signal.
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // wait(2): ECHILD, no child is left; and every descendant's chain of parents ends here (PR_SET_CHILD_SUBREAPER).
            Err(_) => return 0,
        }
    }
}

fn report(status: BorrowedFd<'_>, kind: u32, number: i32) {
    let [a, b, c, d] = kind.to_ne_bytes();
    let [e, f, g, h] = number.to_ne_bytes();
    let _ = rustix::io::write(status, &[a, b, c, d, e, f, g, h]);
}

extern "C" fn child_main(argument: *mut c_void) -> c_int {
    // SAFETY: our parent sleeps in vfork until we exec or end, and who shares its memory waits for it, so this is the only access.
    let attempt = unsafe { &mut *argument.cast::<Attempt>() };
    attempt.errno = attempt.exec.as_ref().map_or(libc::EINVAL, Exec::enter);
    127
}

/// Whether a child of ours was stopped by a signal; does not wait.
pub(crate) fn is_stopped(child: Pid) -> io::Result<bool> {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match rustix::process::waitid(WaitId::Pid(child), options) {
        Ok(found) => Ok(found.is_some()),
        // It has ended, so it is not stopped.
        Err(rustix::io::Errno::CHILD) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn wait_for(child: Pid) -> io::Result<WaitStatus> {
    loop {
        match rustix::process::waitpid(Some(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(status),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn check(answer: libc::c_long) -> io::Result<()> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_before_others_hands_that_to_nobody() {
        // proc(5), /proc/PID/stat: the policy is the 41st field, the third stands behind the name.
        let policy = |stat: String| stat.rsplit(')').next()?.split_whitespace().nth(41 - 3)?.parse::<i32>().ok();
        // In a thread, for it cannot be undone.
        let test = move || {
            if let Err(error) = run_before_others() {
                eprintln!("SKIPPED: sys::who_runs_before_others_hands_that_to_nobody ({error})");
                return;
            }
            let own = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            assert_eq!(policy(own), Some(libc::SCHED_FIFO));
            let child = std::process::Command::new("cat").arg("/proc/self/stat").output().unwrap();
            assert_eq!(policy(String::from_utf8(child.stdout).unwrap()), Some(libc::SCHED_OTHER));
        };
        std::thread::spawn(test).join().unwrap();
    }
}
