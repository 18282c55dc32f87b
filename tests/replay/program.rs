//! The example as its reader starts it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{DESIGNS, Edit, Repo, line, plain_git};

#[test]
fn every_design_exits_well_and_says_equal() {
    let repo = history();
    for design in DESIGNS {
        let output = replay(repo.path())
            .args(["--design", design])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report = stdout(&output);
        assert_eq!(line(report, "events"), "4");
        assert_eq!(line(report, "order breaks"), "0");
        assert_eq!(line(report, "state"), "equal to git ls-tree, 2 entries");
    }
}

#[test]
fn the_repository_it_stands_in_is_the_default() {
    let repo = history();
    let mut replay = Command::new(program());
    let output = replay.current_dir(repo.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(line(stdout(&output), "events"), "4");
}

#[test]
fn a_folder_outside_of_any_repository_is_an_error() {
    let folder = TempDir::new().unwrap();
    // Whatever the temporary folders are in.
    let ceiling = folder.path().parent().unwrap();
    let output = replay(folder.path())
        .env("GIT_CEILING_DIRECTORIES", ceiling)
        .output()
        .unwrap();
    assert_refused(&output, "is not inside a git repository");
}

#[test]
fn a_machine_without_git_is_told_what_to_do() {
    let (repo, empty) = (history(), TempDir::new().unwrap());
    let output = replay(repo.path())
        .env("PATH", empty.path())
        .output()
        .unwrap();
    assert_refused(&output, "install git, or put it on the PATH");
}

#[test]
fn a_surrounding_git_does_not_lead_elsewhere() {
    let (repo, other) = (history(), Repo::empty());
    let output = replay(repo.path())
        .env("GIT_DIR", other.path().join(".git"))
        .env("GIT_WORK_TREE", other.path())
        .env("GIT_INDEX_FILE", "no-such-file")
        .env("GIT_EXTERNAL_DIFF", "false")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(line(stdout(&output), "events"), "4");
}

/// A git that lies about its history, in one of the ways that a real one might fail.
#[cfg(unix)]
mod lying {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_git_that_dies_on_the_way_is_an_error() {
        refused(
            r#""$git" "$@" | head -c 200; echo out of luck >&2; exit 3"#,
            "out of luck",
        );
    }

    #[test]
    fn a_git_that_is_killed_is_an_error() {
        refused(
            r#""$git" "$@" | head -c 200; kill -9 $$"#,
            "`git log` failed (signal: 9",
        );
    }

    #[test]
    fn a_history_that_stops_in_the_middle_of_a_record_is_an_error() {
        refused(
            r#""$git" "$@" | head -c 200"#,
            "stops in the middle of a record",
        );
    }

    #[test]
    fn a_history_that_stops_between_commits_is_an_error() {
        refused("exit 0", "ended after 0 of 3 commits");
        // Up to where the last commit begins.
        let two = edited("/^commit/{x;s/$/x/;x;}; x; /xxx/q; x; p");
        refused(&two, "ended after 2 of 3 commits");
    }

    #[test]
    fn a_history_without_a_commit_is_an_error() {
        let others = edited("/^commit/{x;s/$/x/;x;}; x; /^xx$/{x;b;}; x; p");
        refused(&others, "ended after 2 of 3 commits");
    }

    #[test]
    fn a_history_that_stops_between_a_change_and_its_path_is_an_error() {
        // All but the last path.
        refused(&edited("$!p"), "after 3 of 3");
    }

    #[test]
    fn more_than_was_asked_for_is_an_error() {
        refused(r#""$git" "$@"; printf 'warning: x\0'"#, "cannot read");
    }

    #[test]
    fn a_history_without_some_of_its_changes_is_not_equal() {
        let output = with_git_log(&edited("/ M$/{N;d;}; p"));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let report = stdout(&output);
        assert!(
            line(report, "state").starts_with("NOT EQUAL to git ls-tree: 1 "),
            "{report}"
        );
    }

    #[test]
    fn an_unequal_design_is_shown_in_full_beside_the_table() {
        let script = r#"case " $* " in *" --raw "*) exec "$git" "$@" -- a;; esac"#;
        let git = fake_git(script);
        let repo = history();
        let output = replay(repo.path())
            .arg("--all")
            .env("PATH", path_with(&git))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(stdout(&output).matches("NOT EQUAL to git").count(), 4);
    }

    /// The history with its fields as lines, as far as `sed -n` prints it.
    fn edited(program: &str) -> String {
        format!(r#""$git" "$@" | tr '\0\n' '\n\001' | sed -n '{program}' | tr '\n\001' '\0\n'"#)
    }

    fn refused(script: &str, reason: &str) {
        assert_refused(&with_git_log(script), reason);
    }

    fn with_git_log(script: &str) -> Output {
        let (repo, git) = (history(), fake_git(script));
        replay(repo.path())
            .env("PATH", path_with(&git))
            .output()
            .unwrap()
    }

    /// A folder with a `git` that runs `script` for `git log`, and git for everything else.
    fn fake_git(script: &str) -> TempDir {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("git");
        let find = plain_git(folder.path())
            .arg("--exec-path")
            .output()
            .unwrap();
        let git = Path::new(str::from_utf8(&find.stdout).unwrap().trim()).join("git");
        let git = git.display();
        let script = format!(
            "#!/bin/sh\ngit='{git}'\ncase \" $* \" in *' log '*) ;; *) exec \"$git\" \"$@\";; esac\n\
             {script}\n"
        );
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        folder
    }

    fn path_with(git: &TempDir) -> std::ffi::OsString {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path);
        std::env::join_paths([git.path().to_owned()].into_iter().chain(folders)).unwrap()
    }
}

fn assert_refused(output: &Output, reason: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        said.starts_with("error: ") && said.contains(reason),
        "{said}"
    );
    assert!(!stdout(output).contains("equal"), "{}", stdout(output));
}

fn stdout(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

/// Two paths, three commits, four events.
fn history() -> Repo {
    Repo::new(|import| {
        import
            .commit("main", &[Edit::file("a", "1"), Edit::file("b", "1")])
            .commit("main", &[Edit::file("a", "2")])
            .commit("main", &[Edit::file("a", "3")]);
    })
}

fn replay(folder: &Path) -> Command {
    let mut replay = Command::new(program());
    replay.arg(folder);
    replay
}

/// The example: `KEYLANE_REPLAY_PROGRAM`, or built by the first test that needs it. It is built as
/// a part of the default members, like the tests of a `cargo test` without packages, or what it is
/// built of would be built again with other features.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(program) = std::env::var_os("KEYLANE_REPLAY_PROGRAM") {
            return program.into();
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
        let mut build = Command::new(cargo);
        build.args([
            "build",
            "--example=replay",
            "--message-format=json-render-diagnostics",
        ]);
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        build.current_dir(
            tests
                .parent()
                .expect("the tests are a folder of the workspace"),
        );
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let output = build.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "the example does not build:\n{said}"
        );
        let messages = str::from_utf8(&output.stdout).unwrap().lines();
        let artifacts = messages.filter_map(|message| serde_json::from_str(message).ok());
        let mut programs = artifacts.filter_map(|artifact: Value| {
            (artifact["target"]["name"] == "replay")
                .then(|| artifact["executable"].as_str().map(PathBuf::from))?
        });
        programs
            .next()
            .expect("cargo says where it has put the example")
    })
}
