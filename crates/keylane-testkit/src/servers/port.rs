//! Free ports.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, TryLockError};
use std::hash::BuildHasher;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Ports below this belong to services that may come and go on the machine.
const LOWEST: u16 = 10_000;

/// The first port that Linux gives to clients, unless it was told otherwise.
const CLIENTS: u16 = 32_768;

/// A port on the loopback address that no server uses now.
///
/// It is none of those that the system gives to clients. A client that connects again and again
/// while the server is down would get the server's own port one day, be connected to itself, and
/// keep the server from coming back.
pub(crate) fn free_port() -> io::Result<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let clients = range
        .split_whitespace()
        .next()
        .and_then(|port| port.parse().ok())
        .unwrap_or(CLIENTS);
    let servers = LOWEST..clients;
    for tried in 0..100 {
        // Two tests that start at once must not try the same ports one after the other.
        let random = RandomState::new().hash_one(tried);
        let Some(offset) = random.checked_rem(servers.len() as u64) else {
            break;
        };
        let port = servers.start + offset as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() && is_ours(port) {
            return Ok(port);
        }
    }
    // All ports are for clients here, or all are in use: one of the system's choice.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// The locks on the ports of this process. They go with it, also when it is killed.
static LOCKS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Takes a port for the life of this process, unless another one has it. A server that is down is not
/// seen by its port, and would not come back if the server of another test took it meanwhile.
fn is_ours(port: u16) -> bool {
    let folder = std::env::temp_dir().join("keylane-ports");
    let open = || {
        fs::create_dir_all(&folder)?;
        let path = folder.join(port.to_string());
        File::options().create(true).append(true).open(path)
    };
    // Where no lock can be had, as in the folder of another user, the port will do without.
    let Ok(file) = open() else { return true };
    let is_locked = !matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    if is_locked {
        LOCKS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(file);
    }
    is_locked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once() {
        let port = free_port().unwrap();
        assert!(!is_ours(port));
    }

    #[test]
    fn a_free_port_can_be_bound() {
        let port = free_port().unwrap();
        assert!(port >= LOWEST);
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    }
}
