//! The network of a command: nothing of the host's unless it was asked for.

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::process::{SOON, until};
use crate::scratch::{Scratch, chmod};

for_every_caller!(
    d11_tcp_to_the_host,
    d11_udp_to_the_host,
    c11_sockets_with_a_path,
    c11_sockets_without_a_path,
    h07_a_server_of_its_own,
);

/// Connects to its argument and waits until the other side closes.
const TCP: &str = r#"use IO::Socket::INET; $s = IO::Socket::INET->new(PeerAddr => $ARGV[0]) or die "$!\n""#;
const UDP: &str = r#"use IO::Socket::INET;
    $s = IO::Socket::INET->new(PeerAddr => $ARGV[0], Proto => "udp") or die "$!\n"; $s->send("x") or die "$!\n""#;
/// A path, or after @ a name without one.
const UNIX: &str = r#"use Socket; $n = $ARGV[0]; $n =~ s/^@/\0/; socket S, AF_UNIX, SOCK_STREAM, 0 or die "$!\n";
    connect S, pack_sockaddr_un $n or die "$!\n""#;

#[expect(clippy::disallowed_methods, reason = "the test is the server that must not be reached")]
fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Runs a client with `--net off` and `--net on` and says which of them was heard.
fn heard(scratch: &Scratch, client: &str, server: &str, accept: impl Fn() -> bool) -> (bool, bool) {
    let run = |net| scratch.run(&["--net", net, "--", "perl", "-e", client, server]);
    let off = run("off");
    let off_heard = accept();
    assert_eq!(off_heard, off.code == 0, "{off:?}");
    let on = run("on");
    assert_eq!(on.code, 0, "{on:?}");
    (off_heard, until_heard(accept))
}

/// What was sent may need a moment to arrive.
fn until_heard(accept: impl Fn() -> bool) -> bool {
    let start = std::time::Instant::now();
    while start.elapsed() < SOON {
        if accept() {
            return true;
        }
        crate::process::pause();
    }
    false
}

fn d11_tcp_to_the_host(scratch: &Scratch) {
    let (listener, address) = listener();
    let accept = || listener.accept().is_ok();
    assert_eq!(heard(scratch, TCP, &address, accept), (false, true));
    assert_ne!(scratch.run(&["--", "perl", "-e", TCP, &address]).code, 0);
    assert!(!accept(), "off is what nobody asked for");
}

fn d11_udp_to_the_host(scratch: &Scratch) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let run = |net| scratch.run(&["--net", net, "--", "perl", "-e", UDP, &address]);
    let received = || socket.recv(&mut [0_u8; 8]).map_err(|error| error.kind());
    run("off");
    assert_eq!(received(), Err(ErrorKind::WouldBlock));
    assert_eq!(run("on").code, 0);
    until("a datagram", || received().ok());
}

fn c11_sockets_with_a_path(scratch: &Scratch) {
    let path = scratch.out.join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    chmod(&path, 0o777);
    listener.set_nonblocking(true).unwrap();
    let run = |options: &[&str]| scratch.run(&[options, &["--", "perl", "-e", UNIX, path.to_str().unwrap()]].concat());
    for net in ["off", "on"] {
        let ended = run(&["--net", net]);
        assert!(listener.accept().is_err() && ended.code != 0, "reached with --net {net}: {ended:?}");
    }
    // The power of the test: without walls it is reached.
    assert_eq!(run(&["--backend", "none"]).code, 0);
    assert!(listener.accept().is_ok());
}

fn c11_sockets_without_a_path(scratch: &Scratch) {
    let name = format!("{}-socket", scratch.secret);
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let run = |options: &[&str]| scratch.run(&[options, &["--", "perl", "-e", UNIX, &format!("@{name}")]].concat());
    for net in ["off", "on"] {
        assert_ne!(run(&["--net", net]).code, 0);
        assert!(listener.accept().is_err(), "reached with --net {net}");
    }
    assert_eq!(run(&["--backend", "none"]).code, 0);
    assert!(listener.accept().is_ok());
}

fn h07_a_server_of_its_own(scratch: &Scratch) {
    const BOTH: &str = r#"use IO::Socket::INET;
        $l = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1:0") or die "$!\n";
        if (fork) { $c = $l->accept; print $c "served\n" }
        else { $c = IO::Socket::INET->new(PeerAddr => "127.0.0.1:" . $l->sockport) or die "$!\n"; print <$c>; exit }
        close $c; wait"#;
    let ended = scratch.run(&["--", "perl", "-e", BOTH]);
    if scratch.caller.has_namespaces() {
        assert_eq!(ended.text(), "served\n", "{ended:?}");
    } else {
        // Without a network of its own, off means no sockets at all.
        assert!(ended.code != 0 && ended.stderr.contains("not permitted"), "{ended:?}");
    }
}
