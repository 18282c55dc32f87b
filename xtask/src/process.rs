//! Children that are waited for: with a limit, with a word now and then, and with their output read
//! as it comes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;

/// How often a child is asked whether it has ended.
const POLL: Duration = Duration::from_millis(20);

/// How long a child may be silent before a line says that it still runs.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(30);

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself.
    Exited(ExitStatus),
    /// It was killed at its limit.
    TimedOut,
}

impl Ended {
    /// Whether the child ended by itself and was content.
    pub(crate) fn success(self) -> bool {
        matches!(self, Ended::Exited(status) if status.success())
    }
}

/// Runs `command` on the caller's terminal.
pub(crate) fn run(mut command: Command, limit: Option<Duration>) -> Result<Ended, Error> {
    let mut child = spawn(&mut command)?;
    wait(&mut child, limit, true)
}

/// Runs `command` and hands every line of its standard output to `line`; its errors go to the
/// caller's terminal.
pub(crate) fn run_reading(
    mut command: Command,
    line: impl FnMut(&str) + Send,
) -> Result<Ended, Error> {
    let mut child = spawn(command.stdout(Stdio::piped()))?;
    let stdout = child.stdout.take().expect("stdout was piped above");
    thread::scope(|scope| {
        scope.spawn(|| read_lines(stdout, line));
        wait(&mut child, None, true)
    })
}

/// Runs `command` in silence and hands every line of its standard output to `out`, and of its
/// errors to `err`, as they come.
pub(crate) fn run_silent(
    mut command: Command,
    limit: Option<Duration>,
    out: impl FnMut(&str) + Send,
    err: impl FnMut(&str) + Send,
) -> Result<Ended, Error> {
    let mut child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let stdout = child.stdout.take().expect("stdout was piped above");
    let stderr = child.stderr.take().expect("stderr was piped above");
    thread::scope(|scope| {
        scope.spawn(|| read_lines(stdout, out));
        // Always read, or a talkative child would wait for room in its pipe until the limit.
        scope.spawn(|| read_lines(stderr, err));
        wait(&mut child, limit, false)
    })
}

/// `command` as a person would type it, with the variables set for it.
pub(crate) fn display(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!(
                "{}={}",
                name.to_string_lossy(),
                quoted(&value.to_string_lossy())
            ));
        }
    }
    let program = std::path::Path::new(command.get_program());
    words.push(
        program
            .file_name()
            .unwrap_or(program.as_os_str())
            .to_string_lossy()
            .into_owned(),
    );
    words.extend(command.get_args().map(|arg| quoted(&arg.to_string_lossy())));
    words.join(" ")
}

fn quoted(word: &str) -> String {
    if word.contains([' ', '*', '?']) {
        format!("'{word}'")
    } else {
        word.to_owned()
    }
}

fn spawn(command: &mut Command) -> Result<Child, Error> {
    let child = command.stdin(Stdio::null()).spawn();
    child.map_err(|error| format!("cannot start `{}`: {error}", display(command)).into())
}

fn read_lines(from: impl Read, mut line: impl FnMut(&str)) {
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    // A test may print what is no UTF-8; that must not end the reading.
    while matches!(from.read_until(b'\n', &mut bytes), Ok(read) if read > 0) {
        line(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']));
        bytes.clear();
    }
}

fn wait(child: &mut Child, limit: Option<Duration>, heartbeat: bool) -> Result<Ended, Error> {
    let started = Instant::now();
    let mut next_word = HEARTBEAT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::Exited(status));
        }
        let elapsed = started.elapsed();
        if limit.is_some_and(|limit| elapsed >= limit) {
            child.kill()?;
            child.wait()?;
            return Ok(Ended::TimedOut);
        }
        if heartbeat && elapsed >= next_word {
            eprintln!("    … {} s", elapsed.as_secs());
            next_word += HEARTBEAT;
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_child_is_killed_at_its_limit() {
        let limit = Some(Duration::ZERO);
        let ended = run_silent(sh("exec sleep 20"), limit, |_| {}, |_| {}).unwrap();
        assert_eq!(ended, Ended::TimedOut);
        assert!(!ended.success());
    }

    #[test]
    fn lines_arrive_in_order_also_when_they_are_no_text() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let script = r"printf 'one\n\377\nthree'; echo error >&2; exit 3";
        let ended = run_silent(
            sh(script),
            None,
            |line| out.push(line.to_owned()),
            |line| err.push(line.to_owned()),
        );
        assert!(matches!(ended.unwrap(), Ended::Exited(status) if status.code() == Some(3)));
        assert_eq!(out, ["one", "\u{fffd}", "three"]);
        assert_eq!(err, ["error"]);
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(Command::new("no-such-program"), None).unwrap_err();
        assert!(error.to_string().contains("`no-such-program`"), "{error}");
    }

    #[test]
    fn a_command_reads_as_it_would_be_typed() {
        let mut command = Command::new("/somewhere/cargo");
        command
            .args(["test", "-p", "keylane"])
            .env("RUSTFLAGS", "--cfg a");
        assert_eq!(
            display(&command),
            "RUSTFLAGS='--cfg a' cargo test -p keylane"
        );
        let mut command = Command::new("cargo");
        command.args(["xtask", "versus", "--only", "empty/*,pull"]);
        assert_eq!(
            display(&command),
            "cargo xtask versus --only 'empty/*,pull'"
        );
    }
}
