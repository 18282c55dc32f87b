//! The child under strace, whose injection of faults makes its system calls fail.

use std::fmt;
use std::fs::{self, File};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::child::{DIRECTORY, JOURNAL};
use crate::files::Files;

/// Every system call that the inbox makes on its files, but for `close`: a call that is made to
/// fail is not made, and the system closes a file even where `close` fails.
const CALLS: [&str; 17] = [
    "openat",
    "read",
    "write",
    "pread64",
    "pwrite64",
    "fsync",
    "fdatasync",
    "ftruncate",
    "fallocate",
    "fcntl",
    "flock",
    "lseek",
    "statx",
    "newfstatat",
    "getdents64",
    "mkdir",
    "rename",
];

/// How the journal is written, which does not fail.
const JOURNAL_CALL: &str = "writev";

/// What is still running after this will not end.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    Eio,
    Enospc,
}

/// What is to fail: the call of this number by this name, in each thread that makes so many.
#[derive(Clone, Debug)]
pub(crate) struct Injection {
    pub(crate) name: String,
    pub(crate) count: usize,
    pub(crate) error: Error,
    /// Whether all that follow by that name fail too.
    pub(crate) is_lasting: bool,
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            count,
            error,
            is_lasting,
        } = self;
        let error = match error {
            Error::Eio => "EIO",
            Error::Enospc => "ENOSPC",
        };
        let from_then_on = if *is_lasting { "+" } else { "" };
        write!(f, "{name}:error={error}:when={count}{from_then_on}")
    }
}

/// What has come of it.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Of the child; strace passes it on. `None` if it had to be killed.
    pub(crate) status: Option<ExitStatus>,
    /// The log of strace.
    pub(crate) log: String,
    /// What the child and strace have said.
    pub(crate) said: String,
}

/// Runs the child to its end.
pub(crate) fn run(files: &Files, injection: Option<&Injection>) -> Ended {
    File::create(files.journal()).unwrap();
    let said = File::create(files.said()).unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-f", "--seccomp-bpf", "-qq", "-y", "-s", "320", "-o"]);
    strace.arg(files.log());
    for file in files.all() {
        strace.arg("-P").arg(file);
    }
    let calls = CALLS.join(",");
    strace.args(["-e", &format!("trace={calls},{JOURNAL_CALL}")]);
    if let Some(injection) = injection {
        let counted = CALLS.contains(&&*injection.name);
        assert!(counted, "`{}` is not counted", injection.name);
        strace.args(["-e", &format!("inject={injection}")]);
    }
    let child = strace
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child::child", "--nocapture"])
        .env(DIRECTORY, files.inbox())
        .env(JOURNAL, files.journal_uncounted())
        .stdin(Stdio::null())
        .stdout(said.try_clone().unwrap())
        .stderr(said)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => panic!("`strace` is needed for this test: {error}; see `cargo xtask setup`"),
    };
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if began.elapsed() > PATIENCE {
            // What it traces goes with it.
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let ended = Ended {
        status,
        log: read(files.log()),
        said: read(files.said()),
    };
    let denied = ended.log.is_empty() && ended.said.contains("strace:");
    assert!(
        !denied,
        "strace cannot trace a process here (is ptrace allowed?): {}",
        ended.said
    );
    ended
}
