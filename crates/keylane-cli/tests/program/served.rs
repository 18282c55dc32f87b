//! A service with an inbox and a console, on a port of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

use axum::Router;
use keylane_console::{Builder, Console};
use keylane_inbox::store::Settled;
use keylane_inbox::{Inbox, LetterKind, NewMessage};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// A service that runs until the tests end.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
}

impl Served {
    /// Serves a console below `/ops/console`.
    pub(crate) fn start(set: impl FnOnce(Builder) -> Builder) -> Self {
        let console = set(Console::builder().without_token()).build().unwrap();
        Self::with(Router::new().nest("/ops/console", console.router()))
    }

    /// Serves an app.
    pub(crate) fn with(app: Router) -> Self {
        let runtime = runtime();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        runtime.spawn(async move { axum::serve(listener, service).await });
        Self { address }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/ops/console", self.address)
    }

    /// Runs `keylane letters` against it.
    pub(crate) fn letters(&self, args: &[&str]) -> (i32, String, String) {
        letters(&["--console", &self.url()], args)
    }

    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let (code, out, err) = self.letters(args);
        assert_eq!((code, &err[..]), (0, ""), "{args:?}: {out}");
        out
    }
}

/// The runtime of all services.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        { runtime }.worker_threads(2).enable_all().build().unwrap()
    })
}

/// Runs the program. Answers with its exit code, and what it printed.
pub(crate) fn letters(place: &[&str], args: &[&str]) -> (i32, String, String) {
    answer(program().arg("letters").args(place).args(args))
}

pub(crate) fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_keylane"));
    program.env_remove("KEYLANE_CONSOLE_TOKEN");
    program
}

pub(crate) fn answer(program: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = program.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// An inbox with 120 letters of 7 keys, one of them bytes, and one message that waits.
pub(crate) fn inbox_with_letters() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    runtime().block_on(fill(directory.path()));
    directory
}

async fn fill(directory: &Path) {
    let inbox = Inbox::open(directory).await.unwrap();
    let message = |n: u64| match n % 7 {
        0 => NewMessage::new(vec![0x1b, b'[', 0xff], vec![0; 1_000]),
        // It is a part of the other keys.
        1 => NewMessage::new("user", "first"),
        key => {
            let message = NewMessage::new(format!("user\\{key}"), format!("{{\"n\":{n}}}"))
                .id(vec![b'm', 0xff, n as u8])
                .version(n)
                .header("trace", vec![0xff, n as u8]);
            let more = if n == 3 { 79 } else { 0 };
            (0..more).fold(message, |message, _| {
                message.header("long", "né\\".repeat(200))
            })
        }
    };
    inbox.accept_many((1..=121).map(message)).await.unwrap();
    let dead = (1..=120).map(|sequence| Settled::DeadLetter {
        sequence,
        attempts: 5,
        kind: LetterKind::TimedOut,
        error: format!("\x1b[2Jno answer to {sequence}"),
    });
    inbox.store().settle(dead.collect()).await.unwrap();
    inbox.close().await.unwrap();
}
