//! What this process has used, as the kernel says.

use std::fs;

/// Ticks of the kernel's figures per second: 100 on every Linux that we know of.
const TICKS: f64 = 100.0;

/// Processor time of all threads so far, in seconds; 0 if the kernel does not say.
pub fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks(&stat).unwrap_or_default() as f64 / TICKS
}

/// The most memory that was resident so far, in KiB; 0 if the kernel does not say.
pub fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    peak(&status).unwrap_or_default()
}

fn ticks(stat: &str) -> Option<u64> {
    // The name before it may have spaces and brackets.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn peak(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_the_kernel_are_read() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 25 8 9 20 0 1 0 5";
        assert_eq!(ticks(stat), Some(175));
        assert_eq!(peak("VmPeak:\t 9 kB\nVmHWM:\t    1234 kB\n"), Some(1_234));
        assert_eq!((ticks("7 a"), peak("")), (None, None));
    }
}
