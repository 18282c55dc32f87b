//! A server process that cannot outlive the test that started it.
//!
//! A shell starts the server and becomes it, so the id of the child is the id of the server. Before
//! that it starts a watcher, which reads from a pipe. The test holds the other end:
//!
//! ```text
//!  test ──── pipe ────► watcher        a line: the test has seen the server end; go
//!    │                     │           end of file: the test is dead; end the server
//!    └─ child: server ◄────┘ its last signal, then SIGKILL
//! ```
//!
//! The system closes the pipe when the test ends, for any reason. `PR_SET_PDEATHSIG` would depend
//! on the thread that started the server, and threads of a test end early.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often to check a process.
const POLL: Duration = Duration::from_millis(10);

/// The longest time that a signal which cannot be ignored takes on a busy machine.
const SIGNAL_LIMIT: Duration = Duration::from_secs(20);

/// How long a server has after its last signal, before it is killed.
const LAST_LIMIT: Duration = Duration::from_secs(5);

/// Signals a process and all its descendants, and prints their ids. Each is stopped first, so that
/// it starts no further processes while its children are read.
const SIGNAL_TREE: &str = r#"
signal_tree() {
    kill -s STOP "$2" || return 0
    echo "$2"
    for child in $(cat /proc/"$2"/task/*/children); do
        signal_tree "$1" "$child"
    done
    kill -s "$1" "$2"
}
"#;

/// Starts the watcher and becomes the server. The arguments of the watcher come first: the last
/// signal of the server, how many times to check whether the server has ended, and the folder,
/// which it removes.
///
/// The watcher is not a child of the server: its parent ends at once. It is in the same process
/// group, to which the system sends HUP when the test dies while the server is paused.
const START: &str = r#"
watch() {
    trap '' HUP INT TERM
    read -r _ <&3 && return
    signal_tree CONT $$
    kill -s "$1" $$
    looks=$2
    while [ "$looks" -gt 0 ] && kill -s 0 $$; do
        sleep 0.1
        looks=$((looks - 1))
    done
    signal_tree KILL $$
    # A process that is dying may add a file meanwhile.
    rm -rf "$3" || { sleep 1; rm -rf "$3"; }
}
exec 3<&0 </dev/null
( watch "$1" "$2" "$3" >/dev/null 2>&1 & )
shift 3
exec "$@" 3<&-
"#;

/// The user that a server runs as.
#[derive(Debug, Clone, Copy)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The description of a process to start.
#[derive(Debug)]
pub struct Program {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    folder: PathBuf,
    log: PathBuf,
    user: Option<User>,
    last_signal: &'static str,
}

impl Program {
    /// Runs `program` in `folder`, which belongs to it and is removed if the test dies. All output
    /// goes to the end of the file `log`.
    pub(crate) fn new(program: &Path, folder: &Path, log: &Path) -> Self {
        Self {
            program: program.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            folder: folder.to_owned(),
            log: log.to_owned(),
            user: None,
            last_signal: "TERM",
        }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable. The program sees these variables and those of [`clean`], and no others.
    pub(crate) fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets the user; by default that of the test.
    pub(crate) fn user(mut self, user: Option<User>) -> Self {
        self.user = user;
        self
    }

    /// Sets the signal that makes it end quickly and free resources of the system, sent on drop or
    /// when the test has died; by default `TERM`.
    pub(crate) fn last_signal(mut self, signal: &'static str) -> Self {
        self.last_signal = signal;
        self
    }

    pub(crate) fn start(self) -> io::Result<Process> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)?;
        let mut shell = clean("sh", self.user);
        shell
            .args(["-c", &format!("{SIGNAL_TREE}{START}"), "sh"])
            .arg(self.last_signal)
            .arg((LAST_LIMIT.as_millis() / 100).to_string())
            .arg(&self.folder)
            .arg(self.program)
            .args(self.args)
            .envs(self.env)
            .current_dir(self.folder)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A Ctrl-C on the terminal must reach the test, and must not end the server first.
            .process_group(0);
        let mut child = shell.spawn()?;
        let lifeline = child.stdin.take().expect("stdin was piped above");
        Ok(Process {
            child,
            lifeline,
            last_signal: self.last_signal,
        })
    }
}

/// Returns a command that sees no variable of the test except the search path, so that a server and
/// its clients behave alike everywhere.
pub(crate) fn clean(program: impl AsRef<OsStr>, user: Option<User>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C");
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
    command
}

/// A started server. It ends when this is dropped, or when the test ends.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// The end of the pipe that the test holds.
    lifeline: ChildStdin,
    last_signal: &'static str,
}

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns how the server has ended; `None` while it runs.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Returns whether the server has ended within `limit`.
    pub(crate) fn ends_within(&mut self, limit: Duration) -> io::Result<bool> {
        let began = Instant::now();
        while self.ended()?.is_none() {
            if began.elapsed() > limit {
                return Ok(false);
            }
            thread::sleep(POLL);
        }
        Ok(true)
    }

    /// Sends a signal to the server, but not to its children.
    pub(crate) fn signal(&mut self, signal: &str) -> io::Result<()> {
        if self.ended()?.is_none() {
            self.shell("kill -s \"$1\" \"$2\"", signal)?;
        }
        Ok(())
    }

    /// Stops all processes of the server as they are. When this returns, none of them runs.
    pub(crate) fn pause(&mut self) -> io::Result<()> {
        let stopped = |pid| matches!(state(pid), None | Some('T' | 'Z' | 'X'));
        await_all(&self.signal_tree("STOP")?, stopped)
    }

    /// Lets all processes of the server go on.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        self.signal_tree("CONT").map(drop)
    }

    /// Kills all processes of the server. When this returns, all are gone.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        let pids = self.signal_tree("KILL")?;
        // For systems without `/proc`.
        self.child.kill()?;
        self.child.wait()?;
        // The system's first process may be slow to reap the others, so dead processes count as
        // gone.
        await_all(&pids, |pid| matches!(state(pid), None | Some('Z' | 'X')))
    }

    /// Signals all processes of the server. Returns their ids.
    fn signal_tree(&mut self, signal: &str) -> io::Result<Vec<u32>> {
        if self.ended()?.is_some() {
            return Ok(Vec::new());
        }
        let script = format!("{SIGNAL_TREE}signal_tree \"$1\" \"$2\"");
        let pids = self.shell(&script, signal)?;
        Ok(pids.lines().filter_map(|pid| pid.parse().ok()).collect())
    }

    /// Runs `script` with a signal and the id of the server. The shell has `kill` built in.
    fn shell(&self, script: &str, signal: &str) -> io::Result<String> {
        let output = clean("sh", None)
            .args(["-c", script, "sh", signal, &self.pid().to_string()])
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // After an error the watcher, which reads the end of the file, ends the server.
        let ended = self.resume().is_ok()
            && self.signal(self.last_signal).is_ok()
            && self.ends_within(LAST_LIMIT).unwrap_or(false);
        if ended || self.kill().is_ok() {
            // Other processes may have the id now: the watcher must not use it.
            let _ = self.lifeline.write_all(b"\n");
        }
    }
}

fn await_all(pids: &[u32], reached: impl Fn(u32) -> bool) -> io::Result<()> {
    let began = Instant::now();
    while !pids.iter().all(|pid| reached(*pid)) {
        if began.elapsed() > SIGNAL_LIMIT {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// Returns the letter of the state of a process; `None` if there is no such process.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in front of it is in brackets, and may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.trim_start().chars().next()
}
