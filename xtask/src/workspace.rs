//! Where the repository is, and the cargo commands that run in it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The top of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the repository")
}

/// `target/<name>`: a folder of its own for what would otherwise make the common one rebuild
/// everything.
pub(crate) fn target(name: &str) -> PathBuf {
    root().join("target").join(name)
}

/// A cargo command in the top of the repository.
pub(crate) fn cargo<I>(args: I) -> Command
where
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root()).args(args);
    command
}

/// What `command` prints in the top of the repository, or nothing where it does not run.
pub(crate) fn answer(command: &mut Command) -> String {
    let output = command.current_dir(root()).output();
    let stdout = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&stdout).trim().to_owned()
}

/// Adds `flags` to the compiler flags that the caller's environment already sets.
pub(crate) fn add_rustflags(command: &mut Command, flags: &str) {
    let mut all = std::env::var("RUSTFLAGS").unwrap_or_default();
    if !all.is_empty() {
        all.push(' ');
    }
    all.push_str(flags);
    command.env("RUSTFLAGS", all);
}
