//! Questions to a server over HTTP, for its readiness.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// How long one question may take. It is repeated.
const PROBE: Duration = Duration::from_secs(2);

/// Returns what the server at this port answers to a GET: its head and its body.
pub(super) fn get(port: u16, path: &str) -> io::Result<String> {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&addr, PROBE)?;
    stream.set_read_timeout(Some(PROBE))?;
    stream.set_write_timeout(Some(PROBE))?;
    // With version 1.0 the server ends the answer by closing the connection.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
