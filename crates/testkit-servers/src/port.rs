//! Free ports.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Ports below this belong to services that may come and go on the machine.
const LOWEST: u16 = 10_000;

/// The first port that Linux gives to clients by default.
const CLIENTS: u16 = 32_768;

/// Returns a port on the loopback address that no server uses now.
///
/// It is not one of those that the system gives to clients. A client that reconnects again and
/// again while the server is down would get the server's own port one day, be connected to itself,
/// and keep the server from coming back.
pub(crate) fn free_port() -> io::Result<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let clients = range
        .split_whitespace()
        .next()
        .and_then(|port| port.parse().ok())
        .unwrap_or(CLIENTS);
    let servers = LOWEST..clients;
    for tried in 0..100 {
        // Two tests that start at once must not try the same ports in the same order.
        let random = RandomState::new().hash_one(tried);
        let Some(offset) = random.checked_rem(servers.len() as u64) else {
            break;
        };
        let port = servers.start + offset as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() && is_ours(port) {
            return Ok(port);
        }
    }
    // All ports here belong to clients, or are in use: the system chooses one.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Claims of ports that other processes can see. They end with this process, even if it is killed.
static CLAIMS: Mutex<Vec<Claim>> = Mutex::new(Vec::new());

/// Claims a port for the life of this process, unless another process has it. A port does not show
/// a server that is down, and that server could not come back if the server of another test took
/// its port meanwhile.
fn is_ours(port: u16) -> bool {
    match claim(port) {
        Ok(claim) => {
            CLAIMS
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(claim);
            true
        }
        Err(error) => error.kind() != io::ErrorKind::AddrInUse,
    }
}

/// A socket without clients. Its name is in no folder, so it leaves no file.
#[cfg(target_os = "linux")]
type Claim = std::os::unix::net::UnixListener;

#[cfg(target_os = "linux")]
fn claim(port: u16) -> io::Result<Claim> {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::SocketAddr;

    let name = format!("keylane-port-{port}");
    Claim::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Other systems have no such names, and no claims.
#[cfg(not(target_os = "linux"))]
type Claim = ();

#[cfg(not(target_os = "linux"))]
fn claim(_: u16) -> io::Result<Claim> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
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
