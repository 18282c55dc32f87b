//! The processes of a server, as the system sees them.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// What a process needs at most to end, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process and all that come from it. A running server may end some of them at any time.
pub(crate) fn tree(pid: u32) -> Vec<u32> {
    let mut pids = vec![pid];
    let mut next = 0;
    while let Some(pid) = pids.get(next) {
        let threads = fs::read_dir(format!("/proc/{pid}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let children = children.split_whitespace();
            pids.extend(children.map(|pid| pid.parse::<u32>().unwrap()));
        }
        next += 1;
    }
    pids
}

/// The letter of its state: `T` is stopped, `Z` is dead and not buried. `None` if there is no such
/// process.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ").unwrap().1.chars().next()
}

pub(crate) fn is_dead(pid: u32) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
}

/// Whether a process runs as root.
pub(crate) fn is_root(pid: u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).unwrap().uid() == 0
}

pub(crate) fn refuses(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err()
}

/// Waits until all processes have died, the port is closed and the folder is gone.
pub(crate) fn await_end(pids: &[u32], port: u16, folder: &Path) {
    let began = Instant::now();
    while !pids.iter().all(|pid| is_dead(*pid)) || !refuses(port) || folder.exists() {
        assert!(
            began.elapsed() < PATIENCE,
            "one of {pids:?} lives on, or {folder:?} is left"
        );
        thread::sleep(Duration::from_millis(10));
    }
}
