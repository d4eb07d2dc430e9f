//! Ports for servers that are processes of their own and cannot be handed a socket.
//!
//! Binding port 0, closing it and passing the number on is a race: the kernel gives the same number
//! to the next that binds port 0 and to any connection that goes out. These numbers are below those
//! the kernel gives (`net.ipv4.ip_local_port_range` begins at 32,768 unless it was set lower),
//! and each is reserved until the process that asked has ended.

use std::{
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
    sync::{Mutex, PoisonError},
};

use anyhow::bail;

/// Well above the ports of known services; Kubernetes' node ports begin at its end.
const RANGE: Range<u16> = 10_000..30_000;

/// The ports of this process; the reservations end with the process.
static TAKEN: Mutex<Taken> = Mutex::new(Taken { next: RANGE.start, reservations: Vec::new() });

struct Taken {
    next: u16,
    reservations: Vec<UnixListener>,
}

/// A loopback port without a listener that no other test gets while this process runs.
///
/// # Errors
/// No port is free.
pub fn free() -> anyhow::Result<u16> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    while RANGE.contains(&taken.next) {
        let port = taken.next;
        taken.next += 1;
        let Some(reservation) = reserve(port) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            taken.reservations.push(reservation);
            return Ok(port);
        }
    }
    bail!(
        "no port of loopback is free from {} to {}: look what listens there with `ss -ltn`",
        RANGE.start,
        RANGE.end - 1
    )
}

/// None if another process has the port, also a process of another user. The kernel keeps abstract
/// names of Unix sockets for each network namespace, as it keeps ports.
fn reserve(port: u16) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("skysail-test-port-{port}")).ok()?;
    UnixListener::bind_addr(&name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_with_a_listener_a_reserved_port_and_an_earlier_port_are_not_returned() {
        let first = free().unwrap();
        let listened: Vec<_> =
            (first + 1..first + 20).map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port))).collect();
        // As another process has it, unless another process has it just now.
        let _reserved = reserve(first + 20);
        assert!(reserve(first + 20).is_none());
        assert!(free().unwrap() > first + 20);
        drop(listened);
    }
}
