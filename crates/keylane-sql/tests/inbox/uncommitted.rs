//! Letters for messages whose handlers have dropped their transactions, while the table of letters is
//! locked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylane::OnExhausted;
use keylane::consume::IntakeSettings;
use keylane::source::{Deliveries, Delivery, Outcome, RawMessage, Settlement, Source, StartGuard};
use keylane_sql::{Claim, Settings, SourceSettings, SqlInbox, SqlPosition, SqlSource, Tables};
use keylane_testkit::scenario::{boxed, by_key};
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{Lock, decoded, until};
use crate::support::{Kind, Place};

const KINDS: [Kind; 2] = [Kind::Postgres, Kind::MariaDb];

const SOON: Duration = Duration::from_secs(120);

/// Of a call. Those that nothing holds up keep to it on a machine that stands still for a while.
const CALL: Duration = Duration::from_secs(6);

const WAITING: &str = "select count(*) from keylane_messages";
const LETTERS: &str = "select count(*) from keylane_letters";

async fn inbox_of(place: &Place, call: Duration) -> SqlInbox {
    let settings = Settings::new().call_limit(call);
    let inbox = SqlInbox::open(&place.database, &Tables::new(), settings).await;
    inbox.unwrap()
}

/// What waits for its letter is told, and nothing else waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_waits_for_a_lock_holds_up_nothing() {
    for kind in KINDS {
        let place = Place::new(kind).await;
        let inbox = inbox_of(&place, CALL).await;
        let others = Arc::new(AtomicU64::new(0));
        let handler = {
            let (inbox, others) = (inbox.clone(), Arc::clone(&others));
            move |raw: RawMessage| {
                let (inbox, others) = (inbox.clone(), Arc::clone(&others));
                async move {
                    if raw.payload == "drops" {
                        drop(inbox.begin(Claim::of(&raw).unwrap()).await?);
                    } else {
                        others.fetch_add(1, Ordering::SeqCst);
                    }
                    Ok(())
                }
            }
        };
        let dispatcher = by_key()
            .on_exhausted(OnExhausted::AtSource)
            .spawn(boxed(handler))
            .unwrap();
        let source = decoded(inbox.source());
        let settings = IntakeSettings::new().confirm_every(Duration::from_millis(50));
        let intake = dispatcher.consume_with(source, settings).unwrap();
        let lock = Lock::of(&place, "letters").await;
        let accepts = inbox.inbox();
        accepts.accept("one", "drops").await.unwrap();
        let fails = || {
            let parts = intake.stats().failed_parts;
            parts.iter().any(|part| part.part == "letters")
        };
        until(SOON, fails).await;
        // The next of its key waits.
        accepts.accept("one", "done").await.unwrap();
        for round in 1..=5 {
            accepts.accept("another", "done").await.unwrap();
            until(SOON, || others.load(Ordering::SeqCst) == round).await;
            let began = Instant::now();
            while place.number(WAITING).await > 2 {
                assert!(began.elapsed() < SOON, "what is done is confirmed");
                sleep(Duration::from_millis(20)).await;
            }
        }
        assert!(fails());
        assert_eq!(intake.stats().restarts, 0);
        lock.end().await;
        until(SOON, || intake.stats().failed_parts.is_empty()).await;
        assert_eq!(place.number(LETTERS).await, 1);
        until(SOON, || others.load(Ordering::SeqCst) == 6).await;
        let report = intake.stop().await;
        assert_eq!((report.acked, report.given_back), (7, 0), "{report}");
        assert_eq!(place.number(WAITING).await, 0);
    }
}

/// A source by hand, and a message that was handled, but for its transaction.
struct Hand {
    inbox: SqlInbox,
    source: SqlSource,
    guard: Arc<dyn StartGuard<SqlPosition>>,
}

impl Hand {
    async fn new(place: &Place, call: Duration) -> Self {
        let inbox = inbox_of(place, call).await;
        inbox.inbox().accept("key", "drops").await.unwrap();
        let mut source = inbox.source_with(SourceSettings::new());
        source.open().await.unwrap();
        let guard = source.start_guard().unwrap();
        Self {
            inbox,
            source,
            guard,
        }
    }

    async fn receive(&mut self) -> Delivery<RawMessage, SqlPosition> {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < SOON, "nothing is handed over");
            let mut into = Deliveries::new(1, Instant::now() + CALL);
            self.source.receive(&mut into).await.unwrap();
            if let Some(delivery) = into.take().pop() {
                return delivery;
            }
        }
    }

    async fn drop_transaction(&mut self) {
        let delivery = self.receive().await;
        self.drop_transaction_of(delivery).await;
    }

    async fn drop_transaction_of(&mut self, delivery: Delivery<RawMessage, SqlPosition>) {
        let Delivery {
            message, position, ..
        } = delivery;
        self.guard.starts(0, &position, 1).unwrap();
        drop(self.inbox.begin(Claim::of(&message).unwrap()).await);
        self.guard.settles(0, &position, Outcome::Done);
        let done = Settlement::new(position, Outcome::Done);
        self.source.settle(&[done]).await.unwrap();
    }
}

/// Another message of its key is done while it waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_waits_for_a_lock_has_locked_nothing_itself() {
    for kind in KINDS {
        let place = Place::new(kind).await;
        let mut hand = Hand::new(&place, 2 * SOON).await;
        let accepts = hand.inbox.inbox();
        accepts.accept("key", "done").await.unwrap();
        let drops = hand.receive().await;
        let done = hand.receive().await.position;
        let lock = Lock::of(&place, "letters").await;
        hand.drop_transaction_of(drops).await;
        // It waits by now.
        sleep(CALL / 4).await;
        let done = Settlement::new(done, Outcome::Done);
        hand.source.settle(&[done]).await.unwrap();
        let confirmed = timeout(SOON, hand.source.confirm()).await;
        confirmed.expect("no letter is waited for").unwrap();
        assert_eq!(place.number(WAITING).await, 1, "{kind:?}");
        lock.end().await;
        hand.source.close().await.unwrap();
        assert_eq!(place.number(LETTERS).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_opened_again_gives_up_a_letter_that_waits() {
    for kind in KINDS {
        let place = Place::new(kind).await;
        let mut hand = Hand::new(&place, CALL).await;
        let lock = Lock::of(&place, "letters").await;
        hand.drop_transaction().await;
        // It is tried again.
        sleep(CALL * 3 / 2).await;
        let opened = timeout(SOON, hand.source.open()).await;
        opened.expect("it waits for one try").unwrap();
        let attempts = "select cast(attempts as {}) from keylane_messages";
        let attempts = match kind {
            Kind::Postgres => attempts.replace("{}", "bigint"),
            Kind::MariaDb => attempts.replace("{}", "signed"),
        };
        assert_eq!(place.number(&attempts).await, 1, "it is noted");
        hand.drop_transaction().await;
        lock.end().await;
        hand.source.close().await.unwrap();
        let left = (place.number(WAITING).await, place.number(LETTERS).await);
        assert_eq!(left, (0, 1), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_closed_writes_the_letters_that_it_can() {
    for kind in KINDS {
        for is_locked in [false, true] {
            let place = Place::new(kind).await;
            let call = if is_locked { CALL } else { SOON };
            let mut hand = Hand::new(&place, call).await;
            let lock = Lock::of(&place, "letters").await;
            hand.drop_transaction().await;
            let closes = async {
                let closed = timeout(CALL * 3, hand.source.close()).await;
                closed.expect("it waits for one try").unwrap();
            };
            // For longer than a try, or for less.
            if is_locked {
                closes.await;
                lock.end().await;
            } else {
                let unlocks = async {
                    sleep(CALL / 4).await;
                    lock.end().await;
                };
                tokio::join!(closes, unlocks);
            }
            let left = (place.number(WAITING).await, place.number(LETTERS).await);
            let expected = if is_locked { (1, 0) } else { (0, 1) };
            assert_eq!(left, expected, "{kind:?}");
            let workers = "select count(*) from keylane_workers";
            assert_eq!(place.number(workers).await, 0, "it has left");
        }
    }
}
