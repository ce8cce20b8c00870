//! Who starts zwinger: the walls must hold for an ordinary user and for root, with user namespaces and without them.

use crate::process;
use crate::scratch::{Scratch, System};

/// A user that owns nothing here.
pub(crate) const NOBODY: u32 = 65534;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Whoever runs the tests.
    Plain,
    /// The same where the kernel permits no further user namespaces.
    NoNamespaces,
    /// An ordinary user, when the tests run as root.
    Ordinary,
    /// The same where the kernel permits no further user namespaces.
    OrdinaryNoNamespaces,
}

/// Makes the rest of the command line run where no user namespace can be made. Affects the namespace that unshare(1) made,
/// not the machine.
const NO_NAMESPACES: [&str; 6] =
    ["unshare", "-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"", "sh"];

/// The same, without becoming root in that namespace.
const NO_NAMESPACES_SAME_USER: [&str; 8] = [
    "unshare",
    "-U",
    "--map-current-user",
    "--keep-caps",
    "sh",
    "-c",
    "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --inh-caps -all --ambient-caps -all -- \"$@\"",
    "sh",
];

const ORDINARY: [&str; 6] = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];

impl Caller {
    /// What stands in front of zwinger on the command line; all of it ends in exec(2), so the pid stays.
    pub(crate) fn prefix(self) -> Vec<&'static str> {
        match self {
            Self::Plain => Vec::new(),
            Self::NoNamespaces => NO_NAMESPACES.to_vec(),
            Self::Ordinary => ORDINARY.to_vec(),
            Self::OrdinaryNoNamespaces => [ORDINARY.as_slice(), NO_NAMESPACES_SAME_USER.as_slice()].concat(),
        }
    }

    pub(crate) fn is_ordinary(self) -> bool {
        matches!(self, Self::Ordinary | Self::OrdinaryNoNamespaces)
    }

    /// Whether zwinger started by this caller has to have namespaces, found out without zwinger.
    pub(crate) fn has_namespaces(self) -> bool {
        let mut words = self.prefix();
        words.extend(["unshare", "-Urmpf", "true"]);
        process::succeeds(&words)
    }

    /// Why this caller cannot be had here.
    pub(crate) fn unavailable(self) -> Option<&'static str> {
        if self.is_ordinary() && !rustix::process::geteuid().is_root() {
            return Some("the tests run as an ordinary user already");
        }
        let mut words = self.prefix();
        words.push("true");
        (!process::succeeds(&words)).then_some(match self {
            Self::Plain => "no program can be started",
            Self::NoNamespaces => "no user namespace can be made to take them away in, so the plain case is this one",
            Self::Ordinary => "setpriv cannot become another user here",
            Self::OrdinaryNoNamespaces => "setpriv or unshare is not permitted here",
        })
    }
}

/// Runs a test for one caller, or says that it did not.
pub(crate) fn each(caller: Caller, name: &str, test: fn(&Scratch)) {
    match caller.unavailable() {
        Some(reason) => skipped(name, reason),
        None => test(&Scratch::of(caller, System::Own)),
    }
}

/// The form that scripts/test collects.
pub(crate) fn skipped(name: &str, reason: &str) {
    eprintln!("SKIPPED: {name} ({reason})");
}

/// One test of each function (of a [`Scratch`]) for each caller.
macro_rules! for_every_caller {
    ($($name:ident),* $(,)?) => {
        for_every_caller!(@ plain Plain $($name)*);
        for_every_caller!(@ no_namespaces NoNamespaces $($name)*);
        for_every_caller!(@ ordinary Ordinary $($name)*);
        for_every_caller!(@ ordinary_no_namespaces OrdinaryNoNamespaces $($name)*);
    };
    (@ $module:ident $caller:ident $($name:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $name() {
                    let name = concat!(module_path!(), "::", stringify!($name));
                    crate::caller::each(crate::caller::Caller::$caller, name, super::$name);
                }
            )*
        }
    };
}
