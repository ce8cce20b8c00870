//! The system-call filter (seccomp(2)): what no build, test or script needs and what opens ways around the walls.
//!
//! One program, because each that is installed costs a tenth of a millisecond, and a search tree, because the kernel walks it once
//! for every call number when it is installed. A foreign architecture is killed; so are the x32 calls of x86-64, which carry a bit
//! in the number.

use std::collections::BTreeMap;
use std::io;

use super::WallError;
use crate::confinement::Exceptions;
use crate::plan::Seal;
use crate::sys::FilterStep;

/// Flags of clone(2) and unshare(2) that make namespaces, with CLONE_NEWTIME. All are in the low 32 bits.
const NAMESPACES: u32 = 0x7E02_0000 | 0x80;

/// Requests of ioctl(2) (asm-generic/ioctls.h) that type into a terminal; libc gives them another type with each C library.
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;

/// Answered "no such call": programs fall back. clone3 hides its flags behind a pointer, io_uring makes calls unseen.
const ABSENT: [libc::c_long; 4] =
    [libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Answered "not permitted".
const REFUSED: [libc::c_long; 32] = [
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_syslog,
    SYS_OPEN_TREE_ATTR,
];

/// Linux 6.15; libc does not name it yet. The number is the same on every architecture (since 5.1 they are shared).
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;

/// Answered "not permitted", but where debuggers are allowed.
const REFUSED_UNLESS_PTRACE: [libc::c_long; 5] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
];

/// Answered "not permitted" where no namespace holds what they reach: System V IPC and message queues of the whole machine.
const REFUSED_WITHOUT_NAMESPACES: [libc::c_long; 18] = [
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
];

/// Change mode, owner, times, extended attributes or flags of a file.
const ATTRIBUTES: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    // fchmodat2 of Linux 6.6, setxattrat and removexattrat of 6.13, file_setattr of 6.17; shared numbers, as above.
    452,
    463,
    466,
    469,
];

/// FS_IOC_SETFLAGS, its form for 32 bits, and FS_IOC_FSSETXATTR (linux/fs.h).
const ATTRIBUTE_REQUESTS: [u32; 3] = [0x4008_6602, 0x4004_6602, 0x401C_5820];

/// Calls that change another process's limits or its share of the processor, by its id: permitted for the caller itself, which is 0.
/// The supervisor has the same user, and must be able to open /proc and to run.
const OF_ITSELF_ONLY: [libc::c_long; 4] =
    [libc::SYS_prlimit64, libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr];

/// linux/ioprio.h.
const IOPRIO_WHO_PROCESS: u32 = 1;

pub(crate) fn install(seal: &Seal) -> Result<(), WallError> {
    let program = program(&calls(seal)).map_err(WallError::at("seccomp"))?;
    crate::sys::install_filter(&program).map_err(WallError::at("seccomp"))
}

/// As [`install`] with these walls and without sockets, and with every call refused that changes a file's attributes, which are
/// not Landlock's.
pub(crate) fn install_read_only(around: Option<&Seal>) -> Result<(), WallError> {
    let (namespaces, allow) = around.map_or((true, Exceptions::default()), |seal| (seal.namespaces, seal.allow));
    let seal = Seal { rules: Vec::new(), file_tools: Vec::new(), sockets: false, namespaces, allow };
    let program = program(&read_only_calls(&seal)).map_err(WallError::at("seccomp"))?;
    crate::sys::install_filter(&program).map_err(WallError::at("seccomp"))
}

fn read_only_calls(seal: &Seal) -> BTreeMap<libc::c_long, Answer> {
    let mut calls = calls(seal);
    calls.extend(ATTRIBUTES.iter().map(|call| (*call, Answer::Errno(libc::EPERM))));
    let values = [TIOCSTI, TIOCLINUX].into_iter().chain(ATTRIBUTE_REQUESTS).collect();
    calls.insert(libc::SYS_ioctl, Answer::OneOf { argument: 1, values });
    calls
}

/// How a call is answered; what is not named is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Errno(i32),
    /// Not permitted when the argument has one of these bits.
    AnyBit {
        argument: u8,
        bits: u32,
    },
    /// Not permitted when the argument is one of these.
    OneOf {
        argument: u8,
        values: Vec<u32>,
    },
    /// Not permitted when the argument is none of these.
    NoneOf {
        argument: u8,
        values: Vec<u32>,
    },
    /// Not permitted unless each argument is the one that is named.
    Unless(Vec<(u8, u32)>),
}

/// The arguments that are looked at are ints, of which the kernel takes the low 32 bits; so do we (CVE-2019-10063).
fn calls(seal: &Seal) -> BTreeMap<libc::c_long, Answer> {
    let mut calls: BTreeMap<_, _> = ABSENT.into_iter().map(|call| (call, Answer::Errno(libc::ENOSYS))).collect();
    let mut refuse = |refused: &[libc::c_long]| {
        calls.extend(refused.iter().map(|call| (*call, Answer::Errno(libc::EPERM))));
    };
    refuse(&REFUSED);
    if !seal.allow.ptrace {
        refuse(&REFUSED_UNLESS_PTRACE);
    }
    if !seal.allow.user_namespaces {
        for call in [libc::SYS_clone, libc::SYS_unshare] {
            calls.insert(call, Answer::AnyBit { argument: 0, bits: NAMESPACES });
        }
    }
    calls.insert(libc::SYS_ioctl, Answer::OneOf { argument: 1, values: vec![TIOCSTI, TIOCLINUX] });
    for call in OF_ITSELF_ONLY {
        calls.insert(call, Answer::Unless(vec![(0, 0)]));
    }
    if !seal.namespaces {
        // The same of the machine's processes, which a namespace would not show. Threads have ids of their own, so not in any case.
        calls.insert(libc::SYS_sched_setaffinity, Answer::Unless(vec![(0, 0)]));
        calls.insert(libc::SYS_setpriority, Answer::Unless(vec![(0, 0), (1, 0)]));
        calls.insert(libc::SYS_ioprio_set, Answer::Unless(vec![(0, IOPRIO_WHO_PROCESS), (1, 0)]));
        calls.extend(REFUSED_WITHOUT_NAMESPACES.iter().map(|call| (*call, Answer::Errno(libc::EPERM))));
        // A datagram socket of a pair can be connected to any other; streams cannot.
        let streams = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
        let flags = [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK];
        let values = flags.iter().flat_map(|flags| streams.map(|stream| (stream | flags).cast_unsigned())).collect();
        calls.insert(libc::SYS_socketpair, Answer::NoneOf { argument: 1, values });
    }
    let families: &[i32] = match (seal.sockets, seal.namespaces) {
        (false, _) => &[],
        (true, false) => &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        (true, true) => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
    };
    // Any other family is refused: AF_VSOCK, for one, leads to a virtual machine's host whatever the network namespace.
    let values = families.iter().map(|family| family.cast_unsigned()).collect();
    calls.insert(libc::SYS_socket, Answer::NoneOf { argument: 0, values });
    calls
}

// Classic BPF (linux/bpf_common.h).
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

// Answers of a filter (seccomp(2)).
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const ALLOW: u32 = 0x7FFF_0000;

// Offsets in seccomp_data.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// linux/audit.h.
#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xC000_00B7;

/// The bit that marks an x32 call.
const X32: u32 = 0x4000_0000;

/// A place in the program that is known when the program is complete.
type Label = usize;

struct Step {
    code: u16,
    value: u32,
    /// Where a jump goes, when its test holds and when not.
    jump: Option<(Label, Label)>,
}

#[derive(Default)]
struct Assembler {
    steps: Vec<Step>,
    /// The step that each label stands for.
    places: Vec<usize>,
}

impl Assembler {
    fn label(&mut self) -> Label {
        self.places.push(usize::MAX);
        self.places.len() - 1
    }

    fn place(&mut self, label: Label) {
        if let Some(place) = self.places.get_mut(label) {
            *place = self.steps.len();
        }
    }

    fn load(&mut self, offset: u32) {
        self.steps.push(Step { code: LOAD_WORD, value: offset, jump: None });
    }

    fn jump(&mut self, code: u16, value: u32, then: Label, otherwise: Label) {
        self.steps.push(Step { code, value, jump: Some((then, otherwise)) });
    }

    /// As [`Assembler::jump`], going on with the next step otherwise.
    fn jump_or_go_on(&mut self, code: u16, value: u32, then: Label) {
        let next = self.label();
        self.jump(code, value, then, next);
        self.place(next);
    }

    fn answer(&mut self, label: Label, answer: u32) {
        self.place(label);
        self.steps.push(Step { code: RETURN, value: answer, jump: None });
    }

    /// Finds the loaded number among `calls`, which are in ascending order.
    fn search(&mut self, calls: &[(u32, Label)], otherwise: Label) {
        if calls.len() <= 2 {
            for (index, (number, found)) in calls.iter().enumerate() {
                match index + 1 == calls.len() {
                    true => self.jump(JUMP_IF_EQUAL, *number, *found, otherwise),
                    false => self.jump_or_go_on(JUMP_IF_EQUAL, *number, *found),
                }
            }
            return;
        }
        let (low, high) = calls.split_at(calls.len() / 2);
        let Some((middle, _)) = high.first() else { return };
        let upper = self.label();
        self.jump_or_go_on(JUMP_IF_AT_LEAST, *middle, upper);
        self.search(low, otherwise);
        self.place(upper);
        self.search(high, otherwise);
    }

    fn finish(self) -> io::Result<Vec<FilterStep>> {
        let too_long = || io::Error::other("a jump of the filter is too long");
        let distance = |from: usize, label: Label| {
            let to = self.places.get(label).copied().unwrap_or(usize::MAX);
            to.checked_sub(from + 1).and_then(|distance| u8::try_from(distance).ok()).ok_or_else(too_long)
        };
        let steps = self.steps.iter().enumerate().map(|(at, step)| {
            let (then, otherwise) = match step.jump {
                Some((then, otherwise)) => (distance(at, then)?, distance(at, otherwise)?),
                None => (0, 0),
            };
            Ok(FilterStep { code: step.code, jt: then, jf: otherwise, k: step.value })
        });
        steps.collect()
    }
}

fn program(calls: &BTreeMap<libc::c_long, Answer>) -> io::Result<Vec<FilterStep>> {
    let mut program = Assembler::default();
    let [allow, refuse, absent, kill] = [(); 4].map(|()| program.label());
    let native = program.label();
    program.load(ARCHITECTURE);
    program.jump(JUMP_IF_EQUAL, NATIVE, native, kill);
    program.place(native);
    program.load(NUMBER);
    if cfg!(target_arch = "x86_64") {
        program.jump_or_go_on(JUMP_IF_AT_LEAST, X32, kill);
    }
    let mut checks = Vec::new();
    let mut found = Vec::new();
    for (call, answer) in calls {
        let label = match answer {
            Answer::Errno(libc::ENOSYS) => absent,
            Answer::Errno(_) => refuse,
            check => {
                let label = program.label();
                checks.push((label, check));
                label
            }
        };
        found.push((u32::try_from(*call).map_err(io::Error::other)?, label));
    }
    program.search(&found, allow);
    for (label, check) in checks {
        program.place(label);
        if let Answer::Unless(expected) = check {
            for (argument, value) in expected {
                program.load(ARGUMENTS + 8 * u32::from(*argument));
                let next = program.label();
                program.jump(JUMP_IF_EQUAL, *value, next, refuse);
                program.place(next);
            }
            program.jump(JUMP_IF_EQUAL, 0, allow, allow);
            continue;
        }
        let (argument, jump, values, then, otherwise) = match check {
            Answer::AnyBit { argument, bits } => (argument, JUMP_IF_ANY_BIT, std::slice::from_ref(bits), refuse, allow),
            Answer::OneOf { argument, values } => (argument, JUMP_IF_EQUAL, values.as_slice(), refuse, allow),
            Answer::NoneOf { argument, values } => (argument, JUMP_IF_EQUAL, values.as_slice(), allow, refuse),
            Answer::Errno(_) | Answer::Unless(_) => continue,
        };
        // The low word comes first: both architectures are little-endian.
        program.load(ARGUMENTS + 8 * u32::from(*argument));
        for value in values {
            program.jump_or_go_on(jump, *value, then);
        }
        // An unconditional jump, which classic BPF spells as one with both ways the same.
        program.jump(JUMP_IF_EQUAL, 0, otherwise, otherwise);
    }
    program.answer(allow, ALLOW);
    program.answer(refuse, ERRNO | libc::EPERM.cast_unsigned());
    program.answer(absent, ERRNO | libc::ENOSYS.cast_unsigned());
    program.answer(kill, KILL_PROCESS);
    program.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(sockets: bool, namespaces: bool, allow: Exceptions) -> Seal {
        Seal { rules: Vec::new(), file_tools: Vec::new(), sockets, namespaces, allow }
    }

    /// What the kernel would answer: the few instructions that we use, by their definition in bpf(4).
    fn answer_of(program: &[FilterStep], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend(number.to_le_bytes());
        data.extend(architecture.to_le_bytes());
        data.extend(0_u64.to_le_bytes());
        data.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
        let (mut at, mut loaded) = (0, 0_u32);
        loop {
            let step = &program[at];
            at += 1;
            let taken = match step.code {
                LOAD_WORD => {
                    let from = step.k as usize;
                    loaded = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
                    continue;
                }
                RETURN => return step.k,
                JUMP_IF_EQUAL => loaded == step.k,
                JUMP_IF_AT_LEAST => loaded >= step.k,
                JUMP_IF_ANY_BIT => loaded & step.k != 0,
                other => panic!("{other:#x}"),
            };
            at += usize::from(if taken { step.jt } else { step.jf });
        }
    }

    #[test]
    fn every_call_gets_the_answer_of_the_table() {
        let calls = calls(&seal(true, true, Exceptions::default()));
        let program = program(&calls).unwrap();
        for number in 0_u32..600 {
            let expected = match calls.get(&libc::c_long::from(number)) {
                Some(Answer::Errno(errno)) => ERRNO | errno.cast_unsigned(),
                // No family is 0.
                Some(Answer::NoneOf { .. }) => ERRNO | libc::EPERM.cast_unsigned(),
                _ => ALLOW,
            };
            assert_eq!(answer_of(&program, NATIVE, number, [0; 6]), expected, "call {number}");
        }
    }

    #[test]
    fn arguments_are_looked_at_in_their_low_words() {
        let program = program(&calls(&seal(true, false, Exceptions::default()))).unwrap();
        let refused = ERRNO | libc::EPERM.cast_unsigned();
        let of = |call: libc::c_long, first: u64, second: u64| {
            answer_of(&program, NATIVE, u32::try_from(call).unwrap(), [first, second, 0, 0, 0, 0])
        };
        for bit in [0x2_0000, 0x1000_0000, 0x4000_0000, 0x80, 0x1000_0000_0000_0000 | 0x1000_0000] {
            assert_eq!(of(libc::SYS_clone, bit, 0), refused, "{bit:#x}");
            assert_eq!(of(libc::SYS_unshare, bit, 0), refused, "{bit:#x}");
        }
        assert_eq!(of(libc::SYS_clone, 0x100 | 0x4000 | 17, 0), ALLOW);
        assert_eq!(of(libc::SYS_ioctl, 0, 0x5412), refused);
        assert_eq!(of(libc::SYS_ioctl, 0, 0x1_0000_5412), refused);
        assert_eq!(of(libc::SYS_ioctl, 0, 0x541C), refused);
        assert_eq!(of(libc::SYS_ioctl, 0, 0x5413), ALLOW);
        assert_eq!(of(libc::SYS_socket, 2, 0), ALLOW);
        assert_eq!(of(libc::SYS_socket, 0x1_0000_0002, 0), ALLOW);
        for family in [1, 17, 40, 0xFFFF_FFFF] {
            assert_eq!(of(libc::SYS_socket, family, 0), refused, "family {family}");
        }
    }

    #[test]
    fn other_processes_and_the_machines_ipc_are_left_alone() {
        let of = |namespaces, call: libc::c_long, first: u64, second: u64| {
            let program = program(&calls(&seal(true, namespaces, Exceptions::default()))).unwrap();
            answer_of(&program, NATIVE, u32::try_from(call).unwrap(), [first, second, 0, 0, 0, 0]) == ALLOW
        };
        for namespaces in [true, false] {
            for call in OF_ITSELF_ONLY {
                assert!(of(namespaces, call, 0, 7) && !of(namespaces, call, 1, 7));
            }
        }
        assert!(of(true, libc::SYS_sched_setaffinity, 5, 0) && !of(false, libc::SYS_sched_setaffinity, 5, 0));
        assert!(of(false, libc::SYS_setpriority, 0, 0));
        assert!(!of(false, libc::SYS_setpriority, 0, 5) && !of(false, libc::SYS_setpriority, 2, 0));
        assert!(of(true, libc::SYS_shmget, 1, 1) && !of(false, libc::SYS_shmget, 1, 1));
        // Pairs of streams, with flags, but no datagrams, which can be sent anywhere.
        for (kind, permitted) in [(1, true), (5, true), (0x8_0801, true), (2, false), (3, false), (0x8_0002, false)] {
            assert_eq!(of(false, libc::SYS_socketpair, 1, kind), permitted, "{kind:#x}");
            assert!(of(true, libc::SYS_socketpair, 1, kind));
        }
    }

    #[test]
    fn a_read_only_layer_refuses_attributes_and_sockets_too() {
        let calls = read_only_calls(&seal(false, true, Exceptions::default()));
        let program = program(&calls).unwrap();
        let of = |call: libc::c_long, first: u64, second: u64| {
            answer_of(&program, NATIVE, u32::try_from(call).unwrap(), [first, second, 0, 0, 0, 0])
        };
        for call in [libc::SYS_fchmodat, libc::SYS_fchown, libc::SYS_utimensat, libc::SYS_setxattr, 452] {
            assert_ne!(of(call, 0, 0), ALLOW, "{call}");
        }
        assert_ne!(of(libc::SYS_socket, 2, 0), ALLOW);
        assert_ne!(of(libc::SYS_ioctl, 3, 0x4008_6602), ALLOW);
        assert_eq!(of(libc::SYS_ioctl, 3, 0x8008_6601), ALLOW);
        assert_eq!(of(libc::SYS_openat, 0, 0), ALLOW);
    }

    #[test]
    fn foreign_calls_are_killed() {
        let program = program(&calls(&seal(false, false, Exceptions::default()))).unwrap();
        assert_eq!(answer_of(&program, 0x4000_0003, 1, [0; 6]), KILL_PROCESS);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(answer_of(&program, NATIVE, X32 | 1, [0; 6]), KILL_PROCESS);
            assert_eq!(answer_of(&program, NATIVE, u32::MAX, [0; 6]), KILL_PROCESS);
        }
    }

    #[test]
    fn exceptions_open_what_they_name() {
        let of = |allow, call: libc::c_long| {
            let program = program(&calls(&seal(true, true, allow))).unwrap();
            answer_of(&program, NATIVE, u32::try_from(call).unwrap(), [0x1000_0000, 0, 0, 0, 0, 0])
        };
        let ptrace = Exceptions { ptrace: true, ..Exceptions::default() };
        let user_namespaces = Exceptions { user_namespaces: true, ..Exceptions::default() };
        assert_eq!(of(ptrace, libc::SYS_ptrace), ALLOW);
        assert_ne!(of(ptrace, libc::SYS_unshare), ALLOW);
        assert_eq!(of(user_namespaces, libc::SYS_unshare), ALLOW);
        assert_ne!(of(user_namespaces, libc::SYS_mount), ALLOW);
        assert_ne!(of(user_namespaces, libc::SYS_ptrace), ALLOW);
    }
}
