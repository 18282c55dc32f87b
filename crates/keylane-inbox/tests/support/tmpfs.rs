//! A small file system in memory, mounted for one process that sees it alone.

use std::path::PathBuf;
use std::process::Command;

/// Where the file system is, for the process that sees it.
const INSIDE: &str = "KEYLANE_INBOX_FULL_INSIDE";

/// Runs a test of this program in a process of its own, with a file system of 3 MiB.
pub(crate) fn inside(test: &str) {
    let mount = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size=3m none "$1" && exec "$2" "$3" --exact --nocapture"#;
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(mount.path())
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(INSIDE, mount.path())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => panic!("`unshare` (util-linux) is needed for this test: {error}"),
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    if text.contains("unshare failed: Operation not permitted") && std::env::var_os("CI").is_none()
    {
        println!("not run: this system lets no user mount a file system");
        return;
    }
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

/// The file system, in the process that sees it.
pub(crate) fn mount() -> Option<PathBuf> {
    let mount = PathBuf::from(std::env::var_os(INSIDE)?);
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let is_there = |line: &str| line.contains(&format!(" {} tmpfs ", mount.display()));
    assert!(mounts.lines().any(is_there), "{mounts}");
    Some(mount)
}
