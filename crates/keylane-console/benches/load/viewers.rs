//! Viewers of the console: half of them see the overview, and half of them the lanes.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The argument of a process that is the viewers.
pub(crate) const ARGUMENT: &str = "--viewers";

pub(crate) const COUNT: usize = 50;

/// What that process says when all viewers have had an event.
pub(crate) const SAID: &str = "all have had an event";

/// They read for so long, longer than a round.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) type Viewer = BufReader<TcpStream>;

pub(crate) fn view(address: SocketAddr) {
    let viewers = come(address);
    println!("{SAID}");
    let end = Instant::now() + PATIENCE;
    let read = |mut viewer: Viewer| {
        std::thread::spawn(move || while Instant::now() < end && has_event(&mut viewer) {})
    };
    for reader in viewers.into_iter().map(read).collect::<Vec<_>>() {
        reader.join().expect("it reads to the end");
    }
}

/// Viewers that have had an event each.
pub(crate) fn come(address: SocketAddr) -> Vec<Viewer> {
    let come = |n: usize| {
        let path = ["/feed", "/lanes?dispatcher=orders"][n % 2];
        let mut stream = TcpStream::connect(address).expect("it listens");
        let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        BufReader::new(stream)
    };
    let mut viewers: Vec<_> = (0..COUNT).map(come).collect();
    let have_events = viewers.iter_mut().all(has_event);
    assert!(have_events, "a stream has ended");
    viewers
}

/// Reads to the end of an event. Returns false at the end of the stream.
pub(crate) fn has_event(viewer: &mut Viewer) -> bool {
    let mut line = Vec::new();
    while !line.starts_with(b"data: ") {
        line.clear();
        if !matches!(viewer.read_until(b'\n', &mut line), Ok(1..)) {
            return false;
        }
    }
    true
}
