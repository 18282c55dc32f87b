//! The suite that all sources must pass. The server of the inbox is the process: its restart is a
//! close and another open, and a source that is opened again finds what is there then.

use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use keylane::error::BoxError;
use keylane::source::{
    Deliveries, Features, Outcome, RawMessage, Received, Settlement, Source, SourceError,
    SourceLetter, StartGuard, StartLater,
};
use keylane_inbox::{Inbox, InboxPosition, InboxSource};
use keylane_testkit::History;
use keylane_testkit::conformance::{Case, Fault, Found, Harness, Site};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::raw::{new_message, raw_message, sayable};
use crate::support::open;

keylane_testkit::conformance_tests!([flavor = "multi_thread", worker_threads = 2] Embedded);

/// Cases about what an inbox has not got: connections that are cut or silent, owners that change,
/// leases, an end, and a second way to the same message.
#[tokio::test]
async fn what_is_left_out_is_known() {
    let not_here = [
        Case::AckLost,
        Case::LateAck,
        Case::RevokeParked,
        Case::RevokeInFlight,
        Case::RevokeBackingOff,
        Case::RevokeHalted,
        Case::Lost,
        Case::Kill,
        Case::Storm,
        Case::Stall,
        Case::Lease,
        Case::RandomAccess,
        Case::End,
    ];
    for case in not_here {
        let found = case.run(&Embedded).await;
        assert!(matches!(found, Found::LeftOut(_)), "{case}: {found}");
    }
}

/// The header of a message that had no key.
const NO_KEY: &str = "no-key";

/// Inboxes in directories of their own.
struct Embedded;

struct Directory {
    server: Arc<Server>,
    /// The source that was made last.
    last: Mutex<Weak<()>>,
    _directory: TempDir,
}

/// The inbox that is open at the moment.
struct Server(Mutex<Inbox>);

impl Server {
    fn inbox(&self) -> Inbox {
        self.0.lock().unwrap().clone()
    }

    async fn restart(&self, directory: &Path) -> Result<(), BoxError> {
        self.inbox().close().await?;
        let inbox = open(directory).await;
        *self.0.lock().unwrap() = inbox;
        Ok(())
    }
}

#[keylane::async_trait]
impl Harness for Embedded {
    type Site = Directory;

    async fn site(&self, _case: &str) -> Result<Directory, BoxError> {
        let directory = tempfile::tempdir()?;
        let inbox = open(directory.path()).await;
        Ok(Directory {
            server: Arc::new(Server(Mutex::new(inbox))),
            last: Mutex::default(),
            _directory: directory,
        })
    }

    fn faults(&self) -> Vec<Fault> {
        vec![Fault::Restart]
    }

    async fn kill_process(&self) -> Result<Option<History>, BoxError> {
        let killed = tokio::task::spawn_blocking(|| {
            crate::kill::Run::new(crate::kill::Workload::ManyKeys, 10)
        });
        Ok(Some(killed.await?.history()))
    }
}

#[keylane::async_trait]
impl Site for Directory {
    type Source = Reopened;

    async fn source(&self) -> Result<Reopened, BoxError> {
        let lives = || self.last.lock().unwrap().strong_count() > 0;
        // One that is let go is gone a moment later.
        let gone = async {
            while lives() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        if timeout(Duration::from_millis(200), gone).await.is_ok() {
            // Each source is of a process of its own.
            self.server.restart(self._directory.path()).await?;
        }
        let life = Arc::new(());
        *self.last.lock().unwrap() = Arc::downgrade(&life);
        let inner = self.server.inbox().source();
        Ok(Reopened {
            guard: Arc::new(CurrentGuard(Mutex::new(inner.start_guard()))),
            inner,
            server: Arc::clone(&self.server),
            was_open: false,
            _life: life,
        })
    }

    async fn publish(&self, messages: Vec<RawMessage>) -> Result<(), BoxError> {
        let messages = messages.into_iter();
        let messages = messages.map(|raw| new_message(raw, NO_KEY));
        self.server.inbox().accept_many(messages).await?;
        Ok(())
    }

    async fn left(&self) -> Result<usize, BoxError> {
        Ok(usize::try_from(self.server.inbox().stats().await?.waiting)?)
    }

    async fn letters(&self) -> Result<Vec<RawMessage>, BoxError> {
        let letters = self.server.inbox().letters().list(0, 1_000).await?;
        Ok(letters.into_iter().map(raw_message).collect())
    }

    fn sayable(&self, message: RawMessage) -> RawMessage {
        sayable(message)
    }

    async fn redrive(&self) -> Result<bool, BoxError> {
        let letters = self.server.inbox().letters();
        let all = letters.list(0, 1_000).await?;
        let all = all.iter().map(|letter| letter.message.sequence);
        letters.redrive(all).await?;
        Ok(true)
    }

    async fn inject(&self, fault: Fault) -> Result<(), BoxError> {
        match fault {
            Fault::Restart => self.server.restart(self._directory.path()).await,
            other => Err(format!("there is no {other}").into()),
        }
    }
}

/// The source of the inbox that is open when it is opened.
struct Reopened {
    inner: InboxSource,
    guard: Arc<CurrentGuard>,
    server: Arc<Server>,
    was_open: bool,
    _life: Arc<()>,
}

type Guard = Arc<dyn StartGuard<InboxPosition>>;

struct CurrentGuard(Mutex<Option<Guard>>);

impl CurrentGuard {
    fn current(&self) -> Guard {
        let guard = self.0.lock().unwrap().clone();
        guard.expect("the embedded store counts attempts")
    }
}

impl StartGuard<InboxPosition> for CurrentGuard {
    fn starts(&self, slot: u32, position: &InboxPosition, attempt: u32) -> Result<(), StartLater> {
        self.current().starts(slot, position, attempt)
    }

    fn settles(&self, slot: u32, position: &InboxPosition, outcome: Outcome) {
        self.current().settles(slot, position, outcome);
    }
}

impl Source for Reopened {
    type Message = RawMessage;
    type Position = InboxPosition;

    fn features(&self) -> Features {
        self.inner.features()
    }

    fn validate(&self) -> Result<(), SourceError> {
        self.inner.validate()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        if std::mem::replace(&mut self.was_open, true) {
            self.inner = self.server.inbox().source();
            *self.guard.0.lock().unwrap() = self.inner.start_guard();
        }
        self.inner.open().await
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, InboxPosition>,
    ) -> Result<Received<InboxPosition>, SourceError> {
        let received = self.inner.receive(into).await;
        for mut delivery in into.take() {
            if delivery.message.header(NO_KEY).is_some() {
                delivery.message.key = None;
            }
            into.push(delivery);
        }
        received
    }

    async fn settle(&mut self, settled: &[Settlement<InboxPosition>]) -> Result<(), SourceError> {
        self.inner.settle(settled).await
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.inner.confirm().await
    }

    async fn dead_letter(
        &mut self,
        letter: SourceLetter<InboxPosition>,
    ) -> Result<(), SourceError> {
        self.inner.dead_letter(letter).await
    }

    fn start_guard(&self) -> Option<Guard> {
        Some(Arc::clone(&self.guard) as Guard)
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        self.inner.close().await
    }
}
