//! The engine in paused time, and its senders, handlers, sink and operator.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::error::{BoxError, ReceiptError, TrySendError};
use keylane::{Context, DeadLetter, DeadLetterSink, Dispatcher, OnExhausted, Receipt, Retry};
use keylane_testkit::scenario::{Held, MS, settle};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::events::{Event, Id, Message, Orders};
use crate::naive::Naive;
use crate::plan::{After, Answer, Decision, End, Key, Kind, Settings, Step};

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<(Instant, Event)>>>);

impl Log {
    pub(crate) fn note(&self, event: Event) {
        self.0.lock().unwrap().push((Instant::now(), event));
    }

    fn take(&self) -> Vec<(Instant, Event)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

pub(crate) struct Harness {
    orders: Orders,
    naive: Naive,
    log: Log,
    held: Held<Id, Answer>,
    sink_works: Arc<AtomicBool>,
    next: Id,
    senders: BTreeMap<Id, JoinHandle<()>>,
    receipts: Arc<Mutex<BTreeMap<Id, JoinHandle<()>>>>,
    ending: bool,
}

impl Harness {
    pub(crate) fn new(settings: &Settings) -> Self {
        let log = Log::default();
        let held = Held::new();
        let sink_works = Arc::new(AtomicBool::new(true));
        let sink = Arc::new(Sink {
            log: log.clone(),
            works: Arc::clone(&sink_works),
            takes: settings.sink,
        });
        let orders = spawn(settings, &log, &held, sink);
        Self {
            orders,
            naive: Naive::new(settings.clone()),
            log,
            held,
            sink_works,
            next: 0,
            senders: BTreeMap::new(),
            receipts: Arc::default(),
            ending: false,
        }
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match *step {
            Step::Try { key, kind, submit } => self.try_send(key, kind, submit),
            Step::Send { key, kind, submit } => self.send(key, kind, submit),
            Step::Cancel(index) => {
                let ids: Vec<_> = self.naive.senders().collect();
                if !ids.is_empty() {
                    let id = ids[index.index(ids.len())];
                    self.senders[&id].abort();
                    self.naive.cancelled(id);
                }
            }
            Step::Answer(index, answer) => {
                let ids = self.held.names();
                if !ids.is_empty() {
                    let id = ids[index.index(ids.len())];
                    assert!(self.held.answer(&id, answer), "the handler waits");
                }
            }
            Step::Pass(_) => {}
            Step::Decide(key, decision, kind) => self.decide(key, decision, kind),
            Step::Sink(works) => self.sink_works.store(works, Ordering::Relaxed),
            Step::Drop(index) => {
                let ids: Vec<_> = self.naive.receipts().collect();
                if !ids.is_empty() {
                    let id = ids[index.index(ids.len())];
                    self.receipts.lock().unwrap()[&id].abort();
                    self.naive.receipt_dropped(id);
                }
            }
            Step::End(end) => self.end(end),
        }
        if let Step::Pass(time) = *step {
            self.naive.pass(time);
        }
    }

    fn message(&mut self, key: Option<Key>, kind: Kind, submit: bool) -> Message {
        self.next += 1;
        let message = Message {
            id: self.next,
            key,
            kind,
        };
        self.naive.offered(&message, submit);
        message
    }

    fn try_send(&mut self, key: Option<Key>, kind: Kind, submit: bool) {
        let message = self.message(key, kind, submit);
        let (id, expected) = (message.id, self.naive.expected_of_try(key));
        let answer = if submit {
            let submitted = self.orders.try_submit(message);
            submitted.map(|receipt| watch(&self.receipts, &self.log, id, receipt))
        } else {
            self.orders.try_send(message)
        };
        let name = match &answer {
            Ok(()) => "accepted",
            Err(TrySendError::Full(_)) => "full",
            Err(TrySendError::LaneFull(_)) => "lane full",
            Err(TrySendError::Closed(_)) => "closed",
            Err(other) => panic!("{other:?}"),
        };
        assert!(
            expected.contains(&name),
            "{id}: {name}, and not {expected:?}"
        );
        match answer {
            Ok(()) => self.log.note(Event::Accepted(id)),
            Err(refused) => {
                assert_eq!(refused.into_inner().id, id);
                self.log.note(Event::Refused(id, name));
            }
        }
    }

    fn send(&mut self, key: Option<Key>, kind: Kind, submit: bool) {
        let message = self.message(key, kind, submit);
        let (id, orders, log) = (message.id, self.orders.clone(), self.log.clone());
        let receipts = Arc::clone(&self.receipts);
        let sender = tokio::spawn(async move {
            let answer = if submit {
                let submitted = orders.submit(message).await;
                submitted.map(|receipt| watch(&receipts, &log, id, receipt))
            } else {
                orders.send(message).await
            };
            log.note(match answer {
                Ok(()) => Event::Accepted(id),
                Err(keylane::error::SendError::LaneFull(_)) => Event::Refused(id, "lane full"),
                Err(keylane::error::SendError::Closed(_)) => Event::Refused(id, "closed"),
                Err(other) => Event::Wrong(format!("the sender of {id} was told {other:?}")),
            });
        });
        self.senders.insert(id, sender);
    }

    fn decide(&mut self, key: Key, decision: Decision, kind: Kind) {
        let lane = self.orders.lane(&key);
        let Ok(expected) = self.naive.decidable(key, decision) else {
            return;
        };
        let decided = match decision {
            Decision::Resume => lane.resume().is_ok(),
            Decision::Skip => lane.skip().is_ok(),
            Decision::Replace => {
                let id = expected.unwrap_or(0);
                let old = lane.replace(Message {
                    id,
                    key: Some(key),
                    kind,
                });
                if let Ok(old) = &old {
                    assert_eq!(old.id, id, "the message that waited comes back");
                }
                old.is_ok()
            }
        };
        assert_eq!(decided, expected.is_some(), "{decision:?} of key {key}");
        if decided {
            self.naive.decided(key, decision);
        }
    }

    fn end(&mut self, end: End) {
        self.ending = true;
        self.naive.end(end);
        let ending = match end {
            End::Drain(None) => self.orders.drain(),
            End::Drain(Some(within)) => self.orders.drain().within(within),
            End::Close => self.orders.close(),
            End::Abort => self.orders.abort(),
        };
        let log = self.log.clone();
        tokio::spawn(async move { log.note(Event::Reported(ending.await)) });
    }

    /// Runs until nothing moves without time, and compares.
    pub(crate) async fn settle(&mut self) {
        // Time goes on by itself when all tasks wait for it.
        sleep(self.naive.take_pass() + MS).await;
        // Other tasks may be due at this very moment.
        settle().await;
        for (at, event) in self.log.take() {
            self.naive.see(at, event);
        }
        self.naive.compare(&self.orders);
    }

    /// Answers all handlers that wait, until the report is there.
    pub(crate) async fn run_out(mut self) {
        if !self.ending {
            self.end(End::Drain(None));
        }
        self.sink_works.store(true, Ordering::Relaxed);
        for _ in 0..1_000 {
            self.held.answer_all(Answer::Good);
            self.settle().await;
            if self.naive.is_over() {
                break;
            }
            self.naive.pass(Duration::from_secs(1));
        }
        self.naive.conclude();
    }
}

fn spawn(settings: &Settings, log: &Log, held: &Held<Id, Answer>, sink: Arc<Sink>) -> Orders {
    let exhausted = match settings.exhausted {
        After::Discard => OnExhausted::Discard,
        After::Letter => OnExhausted::DeadLetter(sink.clone()),
        After::Halt => OnExhausted::Halt,
    };
    let mut builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .concurrency(settings.concurrency)
        .capacity(settings.capacity)
        .stalled_capacity(settings.stalled_capacity)
        .lane_capacity(settings.lane_capacity, settings.overflow)
        .quantum(settings.quantum)
        .retry(Retry::fixed(settings.delay).max_attempts(settings.attempts))
        .on_exhausted(exhausted)
        .overflow_sink(sink);
    if let Some(timeout) = settings.timeout {
        builder = builder.attempt_timeout(timeout);
    }
    let (log, held) = (log.clone(), held.clone());
    builder
        .spawn(move |context: Context<Key>, message: Message| {
            handle(log.clone(), held.clone(), context.attempt(), message)
        })
        .expect("the settings are right")
}

async fn handle(
    log: Log,
    held: Held<Id, Answer>,
    attempt: u32,
    message: Message,
) -> Result<Id, &'static str> {
    let id = message.id;
    log.note(Event::Started(id, attempt));
    let mut running = Running {
        log: &log,
        id,
        answered: false,
        explodes: message.kind == Kind::Bomb,
    };
    let answer = match message.kind {
        Kind::Now(answer) => answer,
        Kind::Flaky if attempt == 2 => Answer::Good,
        Kind::Flaky => Answer::Error,
        Kind::Held | Kind::Bomb => held.wait(id).await.expect("the test answers"),
    };
    running.answered = true;
    log.note(Event::Answered(id, answer));
    match answer {
        Answer::Good => Ok(id),
        Answer::Error => Err("as told"),
        Answer::Panic => resume_unwind(Box::new("as told")),
    }
}

/// A handler that was called, until its future is gone.
struct Running<'a> {
    log: &'a Log,
    id: Id,
    answered: bool,
    explodes: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.log.note(Event::Dropped(self.id));
            if self.explodes && !std::thread::panicking() {
                // The hook, which would print it, is not called.
                resume_unwind(Box::new("in drop"));
            }
        }
    }
}

/// Waits for an answer beside everything else.
fn watch(
    receipts: &Mutex<BTreeMap<Id, JoinHandle<()>>>,
    log: &Log,
    id: Id,
    receipt: Receipt<Message, Id, &'static str>,
) {
    let log = log.clone();
    let waiting = tokio::spawn(async move {
        let name = match receipt.await {
            Ok(answer) if answer == id => "done",
            Err(ReceiptError::Failed(_)) => "discarded",
            Err(ReceiptError::DeadLettered(_)) => "dead-lettered",
            Err(ReceiptError::HandedBack { message, .. }) if message.id == id => "handed back",
            Err(ReceiptError::Interrupted(Some(message))) if message.id == id => "handed back",
            Err(ReceiptError::Dropped(back)) if back.id == id => "displaced",
            other => return log.note(Event::Wrong(format!("{id} was answered as {other:?}"))),
        };
        log.note(Event::Resolved(id, name));
    });
    receipts.lock().unwrap().insert(id, waiting);
}

struct Sink {
    log: Log,
    works: Arc<AtomicBool>,
    takes: Duration,
}

#[keylane::async_trait]
impl DeadLetterSink<Key, Message, &'static str> for Sink {
    async fn accept(
        &self,
        letter: &DeadLetter<Key, Message, &'static str>,
    ) -> Result<(), BoxError> {
        let id = letter.message.id;
        if letter.key != letter.message.key {
            let key = letter.key;
            self.log.note(Event::Wrong(format!(
                "the letter of {id} has the key {key:?}"
            )));
        }
        self.log.note(Event::LetterStarted(id, letter.attempts));
        let mut posting = Posting {
            log: &self.log,
            id,
            answered: false,
        };
        if !self.takes.is_zero() {
            sleep(self.takes).await;
        }
        posting.answered = true;
        if self.works.load(Ordering::Relaxed) {
            self.log.note(Event::LetterTaken(id));
            Ok(())
        } else {
            self.log.note(Event::LetterRefused(id));
            Err("not now".into())
        }
    }
}

/// A letter on its way, until the future of the sink is gone.
struct Posting<'a> {
    log: &'a Log,
    id: Id,
    answered: bool,
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.log.note(Event::LetterDropped(self.id));
        }
    }
}
