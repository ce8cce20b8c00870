//! What the planned walls hold.

use super::Surroundings;
use crate::confinement::{Confinement, Exceptions, Network};
use crate::enforcement::{Enforcement, Held};

/// Per dimension, with the reason where it is not all.
pub(super) fn enforcement(confinement: &Confinement, around: &Surroundings) -> Enforcement {
    let no_namespaces = format!("no user namespaces ({})", around.no_namespaces.as_deref().unwrap_or_default());
    let files = match around.landlock_abi {
        0 => Held::none("the kernel has no Landlock"),
        1 | 2 => Held::partial(format!("Landlock ABI {}: truncation is not held", around.landlock_abi)),
        _ if !around.namespaces() => {
            // Nothing can be read or written, so it is full; what Landlock leaves open has to be said.
            let open = "modes, owners and times of the caller's files outside can be changed";
            Held { reason: format!("{no_namespaces}: {open}"), ..Held::full() }
        }
        _ => Held::full(),
    };
    let network = match (confinement.network(), around.namespaces()) {
        (Network::On, _) => Held::none("network on was asked for"),
        (Network::Off, true) => Held::full(),
        (Network::Off, false) => {
            Held { reason: format!("{no_namespaces}: no sockets at all, loopback included"), ..Held::full() }
        }
    };
    Enforcement {
        files,
        network,
        syscalls: syscalls(confinement.allow),
        processes: processes(confinement, around, &no_namespaces),
        memory: memory(confinement, around.namespaces()),
        metadata: metadata(around, &no_namespaces),
        secrets: secrets(confinement, around, &no_namespaces),
    }
}

fn syscalls(allow: Exceptions) -> Held {
    match allow {
        Exceptions { ptrace: false, user_namespaces: false } => Held::full(),
        Exceptions { ptrace: true, user_namespaces: false } => Held::partial("ptrace was allowed"),
        Exceptions { ptrace: false, user_namespaces: true } => Held::partial("new namespaces were allowed"),
        Exceptions { ptrace: true, user_namespaces: true } => Held::partial("ptrace and new namespaces were allowed"),
    }
}

fn processes(confinement: &Confinement, around: &Surroundings, no_namespaces: &str) -> Held {
    let unbound = around.bounds_no_tasks().then(|| {
        let why = around.task_group.as_ref().and_then(|group| group.as_ref().err()).map_or("", String::as_str);
        format!("root is exempt from RLIMIT_NPROC, so tasks are only counted, ten times a second ({why})")
    });
    match (around.namespaces(), unbound) {
        (true, Some(unbound)) => Held::partial(unbound),
        // The kernel holds the ceiling on tasks; of processes it knows nothing.
        (true, None) if confinement.limits.processes.is_some() => {
            Held { reason: "processes are counted ten times a second".into(), ..Held::full() }
        }
        (true, None) => Held::full(),
        (false, unbound) => {
            let outlives = format!("{no_namespaces}: a command that kills its supervisor can outlive it");
            Held::partial(unbound.map_or_else(|| outlives.clone(), |unbound| format!("{outlives}; {unbound}")))
        }
    }
}

pub(super) fn memory(confinement: &Confinement, namespaces: bool) -> Held {
    match confinement.limits.memory {
        None => Held::none("no limit was asked for"),
        Some(_) => Held::partial(format!(
            "counted ten times a second, without buffers of sockets and shared memory that is given back and has no file; {}",
            match namespaces {
                true => "/tmp and its like may hold as much again",
                false => "in temporary directories each file is bounded, but not their number",
            }
        )),
    }
}

fn metadata(around: &Surroundings, no_namespaces: &str) -> Held {
    let found = match (&around.no_quarantine, around.namespaces()) {
        (None, true) => "what is there is read-only; what is made anew is quarantined at the end".into(),
        (None, false) => {
            format!("{no_namespaces}: what is changed or made anew is quarantined at the end")
        }
        (Some(why), true) => {
            format!(
                "what is there is read-only; what is made anew is named at the end, but there is no quarantine: {why}"
            )
        }
        (Some(why), false) => return Held::none(format!("{no_namespaces}, and no quarantine: {why}")),
    };
    match (around.scan.links.first(), &around.scan.unseen) {
        (Some(link), _) if around.namespaces() => {
            Held::partial(format!("{found}; {} is a link, which cannot be held", link.display()))
        }
        (_, Some(unseen)) => Held::partial(format!("{found}; {unseen}")),
        _ => Held::partial(found),
    }
}

fn secrets(confinement: &Confinement, around: &Surroundings, no_namespaces: &str) -> Held {
    let hidden = confinement.hidden(&around.scan).len();
    if let (None, Some(link)) = (&around.scan.unseen, around.scan.secret_links.first()) {
        return Held::partial(format!("{} is a link, which a command can remove", link.display()));
    }
    match (&around.scan.unseen, hidden) {
        (Some(unseen), _) => Held::partial(unseen),
        (None, 0) => Held::full(),
        (None, _) if !around.namespaces() => Held::none(no_namespaces),
        (None, _) => {
            Held { reason: "a hidden file that the host replaces shows itself for a moment".into(), ..Held::full() }
        }
    }
}
