//! Programs of this workspace, as their users start them.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns a command that starts the example of this name, as cargo has built it beside the test
/// that calls this.
///
/// # Panics
///
/// Panics if it is not there.
pub fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("a test knows where it is");
    let folder = test.ancestors().nth(2).expect("it lies in `deps`");
    let program = folder.join("examples").join(name);
    let program = program.with_extension(std::env::consts::EXE_EXTENSION);
    assert!(
        program.is_file(),
        "{} is not there: `cargo test -p {name}` without --test builds it",
        program.display()
    );
    Command::new(program)
}

/// Returns whether the process of this id runs.
///
/// A process that has ended stays in `/proc`, as a zombie, until its parent has asked for its
/// status. Where the parent has ended, that is the first process of the system, and in a container
/// it may never ask.
pub fn runs(id: &str) -> bool {
    let stat = Path::new("/proc").join(id).join("stat");
    let stat = fs::read_to_string(stat).unwrap_or_default();
    // The name of the program comes before the state, and may have spaces and brackets in it.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| !state.starts_with(['Z', 'X']))
}

/// Returns the ids of the processes that this one has started, of whichever thread.
///
/// # Panics
///
/// Panics if the process does not run.
pub fn children(id: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{id}/task")).expect("it runs");
    let children = threads
        .flatten()
        .map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let children = children.collect::<String>();
    children.split_whitespace().map(str::to_owned).collect()
}
