//! The system-call filters (seccomp(2)): what no build, test or script needs and what opens ways around the walls.
//!
//! `seccompiler` gives one action a filter, so there are two; it kills foreign architectures, but on x86-64 does not see the x32
//! calls, which carry a bit in the number: three instructions in front kill those.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use super::WallError;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Flags of clone(2) and unshare(2) that make namespaces, with CLONE_NEWTIME.
const NAMESPACES: u64 = 0x7E02_0000 | 0x80;

/// Answered "no such call": programs fall back. clone3 hides its flags behind a pointer, io_uring makes calls unseen.
const ABSENT: [i64; 4] =
    [libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Answered "not permitted".
const REFUSED: [i64; 36] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
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
];

/// Requests of ioctl(2) (asm-generic/ioctls.h); libc gives them another type with each C library.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541C;

pub(crate) fn install(sockets: bool, unix_sockets: bool) -> Result<(), WallError> {
    let filters = || -> Result<[BpfProgram; 2], seccompiler::Error> {
        let absent = ABSENT.into_iter().map(|call| (call, Vec::new())).collect();
        let absent = program(absent, libc::ENOSYS)?;
        let refused = program(refused(sockets, unix_sockets)?, libc::EPERM)?;
        Ok([absent, refused])
    };
    let fail = |error: seccompiler::Error| WallError::at("seccomp")(io::Error::other(error));
    for filter in filters().map_err(fail)? {
        seccompiler::apply_filter(&filter).map_err(fail)?;
    }
    Ok(())
}

fn refused(sockets: bool, unix_sockets: bool) -> Result<Rules, seccompiler::Error> {
    let mut rules: Rules = REFUSED.into_iter().map(|call| (call, Vec::new())).collect();
    let namespaces = || {
        (0..64)
            .map(|bit| 1_u64 << bit)
            .filter(|bit| NAMESPACES & bit != 0)
            .map(|bit| when(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(bit), bit))
            .collect::<Result<Vec<_>, _>>()
    };
    rules.insert(libc::SYS_clone, namespaces()?);
    rules.insert(libc::SYS_unshare, namespaces()?);
    // Typing into the terminal that zwinger was started from. The kernel looks at the low 32 bits only, so do we
    // (CVE-2019-10063).
    let injects = [TIOCSTI, TIOCLINUX]
        .into_iter()
        .map(|request| when(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request))
        .collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_ioctl, injects);
    let families: &[i32] = match (sockets, unix_sockets) {
        (false, _) => &[],
        (true, false) => &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        (true, true) => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
    };
    // Any other family is refused: AF_VSOCK, for one, leads to a virtual machine's host whatever the network namespace. The
    // kernel takes the family as an int.
    let none_of = families.iter().map(|family| {
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family.cast_unsigned().into())
    });
    let none_of = none_of.collect::<Result<Vec<_>, _>>()?;
    let refused = if none_of.is_empty() { Vec::new() } else { vec![SeccompRule::new(none_of)?] };
    rules.insert(libc::SYS_socket, refused);
    Ok(rules)
}

fn when(
    argument: u8,
    length: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, length, operator, value)?])
}

fn program(rules: Rules, errno: i32) -> Result<BpfProgram, seccompiler::Error> {
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno.cast_unsigned()),
        TargetArch::try_from(std::env::consts::ARCH)?,
    )?;
    let mut program: BpfProgram = filter.try_into()?;
    if cfg!(target_arch = "x86_64") {
        program.splice(0..0, kill_x32());
    }
    Ok(program)
}

/// bpf(4) classic: load the call's number; at or above the x32 bit, kill the process.
fn kill_x32() -> [seccompiler::sock_filter; 3] {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const X32_BIT: u32 = 0x4000_0000;
    const KILL_PROCESS: u32 = 0x8000_0000;
    let step = |code, jt, jf, k| seccompiler::sock_filter { code, jt, jf, k };
    [step(LOAD_WORD, 0, 0, 0), step(JUMP_IF_AT_LEAST, 0, 1, X32_BIT), step(RETURN, 0, 0, KILL_PROCESS)]
}
