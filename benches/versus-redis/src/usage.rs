//! What processes have used, as the kernel says.

use std::fs;

/// Ticks of the kernel's figures per second: 100 on every Linux that we know of.
const TICKS: f64 = 100.0;

/// Processor time of a process so far, all of its threads, in seconds; 0 if the kernel does not say. It
/// moves in steps of 10 ms.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    ticks(&stat).unwrap_or_default() as f64 / TICKS
}

fn ticks(stat: &str) -> Option<u64> {
    // The name before it may have spaces and brackets.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// The processor time of this process and of the server from a moment on.
#[derive(Debug)]
pub struct Watch {
    server: u32,
    began: (f64, f64),
}

impl Watch {
    /// From now on.
    pub fn new(server: u32) -> Self {
        Self {
            server,
            began: both(server),
        }
    }

    /// Until now, in seconds: of this process, and of the server.
    pub fn read(&self) -> (f64, f64) {
        let (ours, theirs) = both(self.server);
        (ours - self.began.0, theirs - self.began.1)
    }
}

fn both(server: u32) -> (f64, f64) {
    (cpu_seconds(std::process::id()), cpu_seconds(server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_the_kernel_are_read() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 25 8 9 20 0 1 0 5";
        assert_eq!(ticks(stat), Some(175));
        assert_eq!(ticks("7 a"), None);
    }
}
