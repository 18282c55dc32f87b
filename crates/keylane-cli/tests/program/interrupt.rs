//! Ctrl-C, while letters are redriven.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use keylane::async_trait;
use keylane::error::BoxError;
use keylane_console::{Action, LetterStore, StoredLetter};
use testkit_browser::until;
use tokio::sync::Semaphore;

use crate::served::{Served, program};

/// Letters by their numbers. A redrive waits for a permit.
#[derive(Clone)]
struct Store(Arc<Inner>);

struct Inner {
    letters: Mutex<BTreeSet<u64>>,
    begun: AtomicUsize,
    permits: Semaphore,
}

impl Store {
    fn with(letters: u64) -> Self {
        Self(Arc::new(Inner {
            letters: Mutex::new((1..=letters).collect()),
            begun: AtomicUsize::new(0),
            permits: Semaphore::new(0),
        }))
    }

    fn until_begun(&self, steps: usize) {
        until("the step has begun", || {
            self.0.begun.load(Ordering::SeqCst) == steps
        });
    }
}

#[async_trait]
impl LetterStore for Store {
    async fn list(&self, after: Option<&str>, most: usize) -> Result<Vec<StoredLetter>, BoxError> {
        let after: u64 = after.map_or(Ok(0), str::parse)?;
        let letters = self.0.letters.lock().unwrap();
        let listed = letters.range(after + 1..).take(most);
        let letter = |id: &u64| StoredLetter {
            id: id.to_string(),
            ..StoredLetter::default()
        };
        Ok(listed.map(letter).collect())
    }

    async fn show(&self, _: &str) -> Result<Option<StoredLetter>, BoxError> {
        Ok(None)
    }

    async fn redrive(&self, ids: &[String]) -> Result<u64, BoxError> {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        self.0.permits.acquire().await?.forget();
        let mut letters = self.0.letters.lock().unwrap();
        let ids = ids.iter().map(|id| id.parse().unwrap());
        Ok(ids.filter(|id| letters.remove(id)).count() as u64)
    }

    async fn purge(&self, _: &[String]) -> Result<u64, BoxError> {
        Err("it does not purge".into())
    }
}

/// A program that redrives all letters.
struct Redriving {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Redriving {
    fn start(served: &Served) -> Self {
        let mut child = program()
            .args(["letters", "--console", &served.url(), "redrive", "--all"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        Self { child, errors }
    }

    fn press_ctrl_c(&self) {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args(["-INT", &pid]).status();
        assert!(done.unwrap().success());
    }

    fn error(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).unwrap();
        line
    }

    /// The exit code, and what it printed.
    fn ended(mut self) -> (Option<i32>, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut out).unwrap();
        self.errors.read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code(), out, err)
    }
}

#[test]
fn ctrl_c_stops_between_two_steps_and_twice_at_once() {
    let store = Store::with(450);
    let served = Served::start(|console| console.letters("slow", store.clone()).allow(Action::ALL));
    let mut program = Redriving::start(&served);
    store.until_begun(1);
    program.press_ctrl_c();
    let said = program.error();
    assert!(said.contains("stops after this step"), "{said}");
    store.0.permits.add_permits(1);
    let (code, out, err) = program.ended();
    assert_eq!((code, &*out), (Some(1), "200 of 450 redriven\n"));
    assert!(err.contains("stopped by Ctrl-C: what is done"), "{err}");
    assert_eq!(store.0.letters.lock().unwrap().len(), 250);

    let mut program = Redriving::start(&served);
    store.until_begun(2);
    program.press_ctrl_c();
    program.error();
    program.press_ctrl_c();
    let (code, out, err) = program.ended();
    assert_eq!((code, &*out), (Some(1), ""));
    assert!(err.contains("may be done"), "{err}");
}
