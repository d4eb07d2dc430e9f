//! Ports for servers that are processes of their own and cannot be handed a socket.
//!
//! Binding port 0, closing it and passing the number on is a race: the kernel gives the same number
//! to the next that binds port 0 and to any connection that goes out. These numbers are below those
//! the kernel gives (`net.ipv4.ip_local_port_range` begins at 32,768 unless it was set lower),
//! and each is locked on this machine until the process that asked has ended.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, bail};

/// Well above the ports of known services; Kubernetes' node ports begin at its end.
const RANGE: Range<u16> = 10_000..30_000;

/// The ports of this process; the locks end with the process.
static TAKEN: Mutex<Taken> = Mutex::new(Taken { next: RANGE.start, locks: Vec::new() });

struct Taken {
    next: u16,
    locks: Vec<File>,
}

/// A loopback port without a listener that no other test gets while this process runs.
///
/// # Errors
/// There is no folder for the locks, or no port is free.
pub fn free() -> anyhow::Result<u16> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder()?;
    while RANGE.contains(&taken.next) {
        let port = taken.next;
        taken.next += 1;
        // A lock file of another user counts as locked.
        let Ok(lock) = File::create(folder.join(port.to_string())) else { continue };
        if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            taken.locks.push(lock);
            return Ok(port);
        }
    }
    bail!(
        "no port of loopback is free from {} to {}: look what listens there with `ss -ltn`",
        RANGE.start,
        RANGE.end - 1
    )
}

fn folder() -> anyhow::Result<PathBuf> {
    let folder = crate::cache::folder()?.join("ports");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_with_a_listener_a_locked_port_and_an_earlier_port_are_not_returned() {
        let first = free().unwrap();
        let listened: Vec<_> =
            (first + 1..first + 20).map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port))).collect();
        // As another process has it: a lock belongs to the file that was opened.
        let locked = File::create(folder().unwrap().join((first + 20).to_string())).unwrap();
        // Unless another process has it just now.
        let _held = locked.try_lock();
        assert!(free().unwrap() > first + 20);
        drop(listened);
    }
}
