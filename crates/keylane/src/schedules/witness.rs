//! What a scenario records, and the checks at its end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use shuttle_tokio::task::JoinHandle;

use super::explore::pause;
use crate::error::{BoxError, Failure, ReceiptError};
use crate::{Builder, Context, DeadLetter, DeadLetterSink, Dispatcher, Receipt, Report, Shutdown};

pub(super) type Key = u8;
pub(super) type Orders = Dispatcher<Key, Message, u32, &'static str>;
type Attempted = Pin<Box<dyn Future<Output = Result<u32, &'static str>> + Send>>;
type Handler = Box<dyn Fn(Context<Key>, Message) -> Attempted + Send + Sync>;
pub(super) type Outcome = Result<u32, ReceiptError<Message, &'static str>>;

/// Keys map to the same shards in every execution. Otherwise a schedule could not be replayed.
pub(super) type Hasher = BuildHasherDefault<DefaultHasher>;

/// Number `10 * producer + n`: messages of one producer are sent in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) key: Option<Key>,
    pub(super) number: u32,
}

pub(super) fn message(key: Key, number: u32) -> Message {
    Message {
        key: Some(key),
        number,
    }
}

/// What the handler does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Succeed,
    Fail,
    /// Waits for ever. Only a time-out or an abort ends it.
    Hang,
}

/// What happens to a message after its last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Discard,
    Letter,
    Halt,
}

/// Records every attempt, letter and answer of one execution.
///
/// Its lock is not a lock of the model, so taking it is no step of a schedule. It does not panic
/// where the engine would catch the panic; it keeps the error for [`Witness::conclude`].
#[derive(Clone)]
pub(super) struct Witness {
    seen: Arc<Mutex<Seen>>,
    attempts: u32,
    after: After,
}

#[derive(Default)]
struct Seen {
    wrong: Vec<String>,
    accepted: BTreeSet<u32>,
    keys: BTreeMap<Key, Head>,
    /// First attempts, in the order in which they started.
    started: Vec<(Option<Key>, u32)>,
    running: usize,
    /// An attempt must not start while this many run. `on_their_way` attempts are exempt.
    limit: Option<usize>,
    on_their_way: usize,
    done: BTreeSet<u32>,
    lettered: BTreeSet<u32>,
    /// The answer of each receipt, by the number of its message.
    answers: BTreeMap<u32, &'static str>,
    over: bool,
}

/// The head of one key.
#[derive(Default)]
struct Head {
    running: bool,
    /// The message that has started and has not settled, and its number of attempts.
    message: Option<(u32, u32)>,
    /// An operator has decided about the halted head: it may start again, or leave the lane.
    decided: bool,
    /// An operator may decide at any moment, so heads can change without being recorded.
    operated: bool,
}

impl Witness {
    /// A witness for handlers that get one attempt.
    pub(super) fn new() -> Self {
        Self::with(1, After::Discard)
    }

    pub(super) fn with(attempts: u32, after: After) -> Self {
        Self {
            seen: Arc::default(),
            attempts,
            after,
        }
    }

    /// Starts the dispatcher. Its handler pauses, and then does what `act` says.
    pub(super) fn spawn<F>(
        &self,
        builder: Builder<Key, Message, &'static str, F>,
        act: fn(&Message, u32) -> Act,
    ) -> Orders
    where
        F: Fn(&Message) -> Option<Key> + Send + Sync + 'static,
    {
        builder
            .hasher(Hasher::default())
            .shards(2)
            .spawn(self.handler(act))
            .expect("the settings are right")
    }

    /// One type for all scenarios: the engine's runner is compiled once.
    fn handler(&self, act: fn(&Message, u32) -> Act) -> Handler {
        let witness = self.clone();
        Box::new(move |context: Context<Key>, message: Message| {
            let witness = witness.clone();
            Box::pin(async move { witness.attempt(&context, message, act).await })
        })
    }

    async fn attempt(
        &self,
        context: &Context<Key>,
        message: Message,
        act: fn(&Message, u32) -> Act,
    ) -> Result<u32, &'static str> {
        let attempt = context.attempt();
        let mut running = Running::start(self, &message, attempt);
        pause().await;
        match act(&message, attempt) {
            Act::Succeed => {
                running.succeed();
                Ok(message.number)
            }
            Act::Fail => Err("as told"),
            Act::Hang => std::future::pending().await,
        }
    }

    /// Records whether a message was accepted.
    pub(super) fn sent<T, E>(&self, number: u32, answer: Result<T, E>) -> Option<T> {
        let answer = answer.ok()?;
        self.seen().accepted.insert(number);
        Some(answer)
    }

    /// Sends messages of one key, in order, until one is refused.
    pub(super) fn send(&self, orders: &Orders, key: Key, numbers: &[u32]) -> JoinHandle<()> {
        let (witness, orders, numbers) = (self.clone(), orders.clone(), numbers.to_vec());
        shuttle_tokio::spawn(async move {
            for number in numbers {
                let sent = orders.send(message(key, number)).await;
                if witness.sent(number, sent).is_none() {
                    break;
                }
            }
        })
    }

    /// Submits messages of one key, in order, until one is refused; then waits for the answers.
    pub(super) fn submit(&self, orders: &Orders, key: Key, numbers: &[u32]) -> JoinHandle<()> {
        let (witness, orders, numbers) = (self.clone(), orders.clone(), numbers.to_vec());
        shuttle_tokio::spawn(async move {
            let mut receipts = Vec::new();
            for number in numbers {
                let sent = orders.submit(message(key, number)).await;
                match witness.sent(number, sent) {
                    Some(receipt) => receipts.push((number, receipt)),
                    None => break,
                }
            }
            drop(orders);
            for (number, receipt) in receipts {
                let _ = witness.answered(number, receipt).await;
            }
        })
    }

    /// Waits for an answer, and checks it against what was recorded.
    pub(super) async fn answered(
        &self,
        number: u32,
        receipt: Receipt<Message, u32, &'static str>,
    ) -> Outcome {
        let answer = receipt.await;
        let mut seen = self.seen();
        let (is_done, is_lettered) = (seen.done.contains(&number), seen.lettered.contains(&number));
        let (name, fits) = match &answer {
            Ok(answer) => ("done", *answer == number && is_done),
            Err(ReceiptError::DeadLettered(_)) => ("dead-lettered", is_lettered),
            Err(ReceiptError::Failed(_)) => ("discarded", !is_done && !is_lettered),
            Err(ReceiptError::Dropped(back)) => ("discarded", back.number == number),
            Err(ReceiptError::HandedBack { message, .. }) => {
                ("handed back", message.number == number)
            }
            Err(ReceiptError::Interrupted(_)) => ("handed back", true),
            Err(ReceiptError::Stopped) => ("stopped", false),
            Err(ReceiptError::Purged(back)) => ("purged", back.number == number),
            Err(ReceiptError::Declined(back) | ReceiptError::Superseded(back)) => {
                ("coalesced", back.number == number)
            }
            Err(ReceiptError::Merged { .. }) => ("coalesced", true),
            Err(ReceiptError::Duplicate(back)) => ("duplicate", back.number == number),
            Err(ReceiptError::Expired(back)) => ("expired", back.number == number),
        };
        if !fits {
            seen.wrong(format!("message {number} was answered as {answer:?}"));
        }
        if name != "dead-lettered" && is_lettered || name != "done" && is_done {
            seen.wrong(format!("message {number} is {name}, and more"));
        }
        seen.answers.insert(number, name);
        drop(seen);
        answer
    }

    /// From now on no attempt may start while `limit` others run. Attempts that hold one of the
    /// `active` permits and have not started yet are exempt.
    pub(super) fn limit(&self, limit: usize, active: usize) {
        let mut seen = self.seen();
        seen.limit = Some(limit);
        seen.on_their_way = active.saturating_sub(seen.running);
    }

    /// Call it right before an operator decides about the head of this key.
    pub(super) fn decide(&self, key: Key) {
        self.seen().keys.entry(key).or_default().decided = true;
    }

    /// From now on an operator may decide about the heads of this key at any moment.
    pub(super) fn operate(&self, key: Key) {
        self.seen().keys.entry(key).or_default().operated = true;
    }

    /// Waits for the shutdown and checks its report. Every sender must have ended or be refused.
    pub(super) async fn conclude(
        self,
        orders: Orders,
        ending: Shutdown<Key, Message, u32, &'static str>,
        senders: Vec<JoinHandle<()>>,
    ) {
        let report = ending.await;
        self.seen().over = true;
        for sender in senders {
            // A sender that its scenario has cancelled is no failure.
            let _ = sender.await;
        }
        self.judge(&orders, &report);
        self.vanish(orders).await;
    }

    /// Checks the report, and what the dispatcher still holds.
    pub(super) fn judge(&self, orders: &Orders, report: &Report<Key, Message>) {
        let mut seen = self.seen();
        let stats = orders.stats();
        let answered = |name| seen.answers.values().filter(|is| **is == name).count() as u64;
        let returned = report.returned.len() as u64;
        let unhandled = report.coalesced + report.duplicates + report.expired;
        let settled =
            report.done + report.dead_lettered + report.discarded + report.handed_back + unhandled;
        let checks = [
            ("accepted", report.accepted, seen.accepted.len() as u64),
            ("settled", settled, report.accepted),
            ("done", report.done, seen.done.len() as u64),
            (
                "dead-lettered",
                report.dead_lettered,
                seen.lettered.len() as u64,
            ),
            (
                "handed back",
                report.handed_back,
                returned + answered("handed back"),
            ),
            ("running", 0, seen.running as u64),
            ("lanes", stats.lanes as u64, 0),
            ("in flight", stats.in_flight as u64, 0),
            ("ready", stats.ready as u64, 0),
            ("backing off", stats.backing_off as u64, 0),
            ("halted", stats.halted as u64, 0),
            ("paused", stats.paused as u64, 0),
            ("full lanes", stats.full_lanes as u64, 0),
            ("stalled", stats.stalled as u64, 0),
            ("paused", stats.paused as u64, 0),
            (
                "capacity",
                stats.capacity_left as u64,
                orders.engine.settings.capacity as u64,
            ),
        ];
        for (what, is, should) in checks {
            if is != should {
                seen.wrong(format!(
                    "{what}: {is}, and not {should}; {report}; {stats:?}"
                ));
            }
        }
        self.judge_returned(&mut seen, report);
        let wrong = std::mem::take(&mut seen.wrong);
        drop(seen);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// Returned messages were not handled. Each comes back once, under its key, and in order.
    fn judge_returned(&self, seen: &mut Seen, report: &Report<Key, Message>) {
        let mut latest = HashMap::new();
        for back in &report.returned {
            let Some(message) = &back.message else {
                continue;
            };
            let number = message.number;
            if back.key != message.key {
                seen.wrong(format!("{number} came back under the key {:?}", back.key));
            }
            if seen.done.contains(&number) || seen.lettered.contains(&number) {
                seen.wrong(format!("{number} was handled, and came back"));
            }
            let earlier = latest.insert((message.key, number / 10), number);
            if earlier.is_some_and(|earlier| earlier >= number) && message.key.is_some() {
                seen.wrong(format!("{number} came back after {earlier:?}"));
            }
        }
    }

    /// Waits until the engine has no task, no lane and no message.
    pub(super) async fn vanish(self, orders: Orders) {
        let engine = Arc::downgrade(&orders.engine);
        drop(orders);
        while engine.strong_count() > 0 {
            keylane_rt::yield_now().await;
        }
        let seen = self.seen();
        assert!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
        let unanswered: Vec<_> = seen.accepted.difference(&seen.done).collect();
        drop(unanswered);
    }

    /// The first attempts of a key, in the order in which they started.
    pub(super) fn started(&self, key: Key) -> Vec<u32> {
        let seen = self.seen();
        let of_key = seen.started.iter().filter(|(of, _)| *of == Some(key));
        of_key.map(|(_, number)| *number).collect()
    }

    pub(super) fn done(&self) -> usize {
        self.seen().done.len()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("the witness does not panic")
    }
}

impl Seen {
    fn wrong(&mut self, what: String) {
        eprintln!("{what}");
        self.wrong.push(what);
    }
}

/// A running attempt. Dropping it ends the attempt.
struct Running<'a> {
    witness: &'a Witness,
    key: Option<Key>,
    number: u32,
    attempt: u32,
}

impl<'a> Running<'a> {
    fn start(witness: &'a Witness, message: &Message, attempt: u32) -> Self {
        let Message { key, number } = *message;
        let mut seen = witness.seen();
        let seen = &mut *seen;
        let what = format!("attempt {attempt} of {number} with the key {key:?}");
        if seen.over {
            seen.wrong(format!("{what} started after the end"));
        }
        let is_full = seen.limit.is_some_and(|limit| seen.running >= limit);
        match seen.on_their_way.checked_sub(1) {
            Some(left) if is_full => seen.on_their_way = left,
            None if is_full => seen.wrong(format!("{what} started beside {}", seen.running)),
            _ => {}
        }
        seen.running += 1;
        if let Some(key) = key {
            let head = seen.keys.entry(key).or_default();
            head.decided |= head.operated;
            let mut wrong = Vec::new();
            if head.running {
                wrong.push("while another one runs");
            }
            match head.message {
                Some((same, before)) if same == number => {
                    let in_turn = attempt == before + 1 || (attempt == 1 && head.decided);
                    if !in_turn {
                        wrong.push("out of job");
                    }
                }
                Some(_) if !head.decided => wrong.push("before the head has settled"),
                _ if attempt != 1 => wrong.push("as its first"),
                _ => {}
            }
            let is_first = head.message.is_none_or(|(same, _)| same != number);
            if is_first {
                head.decided = false;
            }
            head.running = true;
            head.message = Some((number, attempt));
            for wrong in wrong {
                seen.wrong(format!("{what} started {wrong}"));
            }
            let started = seen.started.iter();
            let overtaken = started
                .filter(|(other, _)| *other == Some(key))
                .any(|(_, other)| other / 10 == number / 10 && *other > number);
            if is_first && overtaken {
                seen.wrong(format!("{what} was overtaken"));
            }
            if is_first {
                seen.started.push((Some(key), number));
            }
        }
        Self {
            witness,
            key,
            number,
            attempt,
        }
    }

    fn succeed(&mut self) {
        let mut seen = self.witness.seen();
        if !seen.done.insert(self.number) {
            seen.wrong(format!("{} is done twice", self.number));
        }
        if let Some(key) = self.key {
            seen.keys.entry(key).or_default().message = None;
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut seen = self.witness.seen();
        seen.running -= 1;
        let Some(key) = self.key else { return };
        let head = seen.keys.entry(key).or_default();
        head.running = false;
        let is_last = self.attempt == self.witness.attempts;
        if is_last && self.witness.after == After::Discard {
            head.message = None;
        }
    }
}

/// A dead-letter sink that refuses each letter a number of times and then accepts it.
pub(super) struct Sink {
    pub(super) witness: Witness,
    pub(super) refusals: u32,
    pub(super) refused: Mutex<HashMap<u32, u32>>,
}

impl Sink {
    pub(super) fn new(witness: &Witness, refusals: u32) -> Self {
        Self {
            witness: witness.clone(),
            refusals,
            refused: Mutex::default(),
        }
    }

    fn refuses(&self, number: u32) -> bool {
        let mut refused = self.refused.lock().expect("the sink does not panic");
        let refused = refused.entry(number).or_default();
        *refused += 1;
        *refused <= self.refusals
    }
}

#[crate::async_trait]
impl DeadLetterSink<Key, Message, &'static str> for Sink {
    async fn accept(
        &self,
        letter: &DeadLetter<Key, Message, &'static str>,
    ) -> Result<(), BoxError> {
        let number = letter.message.number;
        pause().await;
        if self.refuses(number) {
            return Err("not now".into());
        }
        let mut seen = self.witness.seen();
        let beside = matches!(letter.failure, Failure::LaneFull);
        if letter.attempts != if beside { 0 } else { self.witness.attempts } {
            seen.wrong(format!(
                "{number} was given up after {} attempts",
                letter.attempts
            ));
        }
        if letter.key != letter.message.key {
            seen.wrong(format!(
                "the letter of {number} has the key {:?}",
                letter.key
            ));
        }
        if let (Some(key), false) = (letter.key, beside) {
            let head = seen.keys.entry(key).or_default();
            if head.running || head.message != Some((number, letter.attempts)) {
                seen.wrong(format!("the letter of {number} came while its key went on"));
            }
            seen.keys.entry(key).or_default().message = None;
        }
        if !seen.lettered.insert(number) {
            seen.wrong(format!("{number} has two letters"));
        }
        Ok(())
    }
}

/// Runs a future as a task.
pub(super) fn task(future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    shuttle_tokio::spawn(future)
}
