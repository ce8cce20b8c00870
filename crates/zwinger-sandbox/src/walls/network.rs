//! A network namespace with nothing but loopback.
//!
//! Making one takes the kernel as long as all the mounts together, so it is made by a process beside us meanwhile.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::LinkNameSpaceType;

use super::WallError;
use crate::processors::Processors;
use crate::sys::{self, Aside};

/// A namespace in the making.
pub(crate) struct PrivateNetwork(Aside<OwnedFd>);

impl PrivateNetwork {
    /// Starts making it.
    pub(crate) fn begin(processors: Processors) -> Result<Self, WallError> {
        let making = Aside::start(make).map_err(WallError::at("make a network namespace"))?;
        // The host is at work where this goes to, and we wait for the host first: without this, only later.
        let _ = sys::let_others_finish(making.pid());
        processors.leave_ours_to_us(making.pid());
        Ok(Self(making))
    }

    /// Waits until it is made and moves this process into it.
    pub(crate) fn enter(self) -> Result<(), WallError> {
        let entered = self.0.wait().and_then(|namespace| {
            Ok(rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
        });
        entered.map_err(WallError::refusable("enter the network namespace"))
    }
}

/// Runs beside the caller: system calls only.
fn make() -> Result<OwnedFd, Errno> {
    sys::unshare_network()?;
    let socket = loopback_up()?;
    sys::network_namespace_of(&socket)
}

/// rtnetlink(7): sets IFF_UP on interface 1, which is loopback in a new namespace. Gives the socket that did it.
fn loopback_up() -> Result<OwnedFd, Errno> {
    // NETLINK_ROUTE is protocol 0, the family's default.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let message = LINK_UP.map(u32::to_ne_bytes);
    rustix::net::send(&socket, message.as_flattened(), SendFlags::empty())?;
    let mut answer = [0_u8; 64];
    rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    // struct nlmsghdr, 16 bytes, then the error as an int; 0 acknowledges.
    match answer {
        [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, a, b, c, d, ..] => match i32::from_ne_bytes([a, b, c, d]) {
            0 => Ok(socket),
            code => Err(Errno::from_raw_os_error(-code)),
        },
    }
}

/// struct nlmsghdr (length, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, sequence, port), then struct ifinfomsg (family, type, index,
/// flags, change).
const LINK_UP: [u32; 8] = [32, pair(16, 1 | 4), 0, 0, 0, 1, 1, 1];

/// Two 16-bit fields in the order of memory.
const fn pair(first: u16, second: u16) -> u32 {
    let ([a, b], [c, d]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u32::from_ne_bytes([a, b, c, d])
}
