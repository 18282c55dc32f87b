//! Sources that take messages back while work of them is here.
//!
//! Each scenario has a server that keeps its messages until they are acked, and a source that hands
//! over all that is not acked, takes it back at some moment, and hands it over again in a new
//! generation.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use keylane_rt as rt;
use keylane_source::{
    Deliveries, Delivery, Features, Generation, Received, Settlement, Source, SourceError,
};

use super::explore::pause;
use super::witness::Hasher;
use crate::consume::IntakeSettings;
use crate::discipline::{Coalesce, Sequence};
use crate::error::BoxError;
use crate::{Builder, DeadLetter, DeadLetterSink, Dispatcher, OnExhausted, Retry};

type Key = u8;

/// One message, or several that were merged.
#[derive(Clone, Debug)]
struct Item {
    key: Key,
    ids: Vec<u64>,
    generation: u64,
}

impl Item {
    fn id(&self) -> u64 {
        *self.ids.last().expect("it has an id")
    }
}

type Attempted = Pin<Box<dyn Future<Output = Result<(), &'static str>> + Send>>;
type Handler = Box<dyn Fn(Item) -> Attempted + Send + Sync>;
type Items = Dispatcher<Key, Item, (), &'static str>;

/// What stands for a message that was not handled itself.
#[derive(Clone, Copy, PartialEq)]
enum Stands {
    Itself,
    /// A later one of its key.
    Later,
}

#[derive(Default)]
struct Log {
    /// All messages, in order, with their keys.
    messages: Vec<(u64, Key)>,
    acked: BTreeSet<u64>,
    done: BTreeSet<u64>,
    lettered: BTreeSet<u64>,
    running: BTreeMap<Key, u64>,
    attempts: BTreeMap<u64, u32>,
    /// The generation that goes on, and up to which all are released.
    generation: u64,
    released: u64,
    wrong: Vec<String>,
}

#[derive(Clone)]
struct Server {
    log: Arc<Mutex<Log>>,
    stands: Stands,
}

impl Server {
    fn new(messages: &[(u64, Key)], stands: Stands) -> Self {
        let log = Log {
            messages: messages.to_vec(),
            generation: 1,
            ..Log::default()
        };
        Self {
            log: Arc::new(Mutex::new(log)),
            stands,
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// An attempt begins. Its guard ends it.
    fn start(&self, item: &Item) -> Running {
        let mut log = self.log();
        for id in &item.ids {
            if let Some(other) = log.running.insert(item.key, *id)
                && !item.ids.contains(&other)
            {
                log.wrong.push(format!("{id} starts while {other} runs"));
            }
            if log.acked.contains(id) {
                log.wrong.push(format!("{id} starts again after its ack"));
            }
            *log.attempts.entry(*id).or_default() += 1;
        }
        if item.generation <= log.released {
            let text = format!("{:?} starts after the release", item.ids);
            log.wrong.push(text);
        }
        if self.stands == Stands::Itself {
            let first = item.ids[0];
            let earlier = log
                .messages
                .iter()
                .filter(|(id, key)| *key == item.key && *id < first);
            let open: Vec<u64> = earlier.map(|(id, _)| *id).collect();
            for id in open {
                if !log.done.contains(&id) && !log.lettered.contains(&id) {
                    log.wrong.push(format!("{first} starts before {id}"));
                }
            }
        }
        Running {
            server: self.clone(),
            key: item.key,
        }
    }

    /// How often an attempt of this message has started.
    fn attempts(&self, id: u64) -> u32 {
        self.log().attempts.get(&id).copied().unwrap_or(0)
    }

    fn is_handled(&self, log: &Log, id: u64) -> bool {
        let handled = |id: &u64| log.done.contains(id) || log.lettered.contains(id);
        if handled(&id) {
            return true;
        }
        let key = log.messages.iter().find(|message| message.0 == id);
        self.stands == Stands::Later
            && log.messages.iter().any(|other| {
                Some(other.1) == key.map(|key| key.1) && other.0 > id && handled(&other.0)
            })
    }

    fn judge_report(
        &self,
        report: &crate::consume::IntakeReport,
        sum: u64,
        ended: &crate::Report<Key, Item>,
        stats: &crate::watching::Stats,
        capacity: usize,
    ) {
        let mut log = self.log();
        if sum != report.received {
            log.wrong.push(format!("{report}"));
        }
        let settled = ended.done
            + ended.dead_lettered
            + ended.discarded
            + ended.handed_back
            + ended.coalesced
            + ended.duplicates
            + ended.expired;
        if settled != ended.accepted || !ended.returned.is_empty() {
            log.wrong.push(format!("{ended} {:?}", ended.returned));
        }
        if stats.lanes + stats.stalled + stats.halted > 0 || stats.capacity_left != capacity {
            log.wrong.push(format!("{stats:?}"));
        }
        let all: BTreeSet<u64> = log.messages.iter().map(|message| message.0).collect();
        if log.acked != all {
            let text = format!("acked {:?} of {all:?}", log.acked);
            log.wrong.push(text);
        }
        let wrong = std::mem::take(&mut log.wrong);
        drop(log);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    async fn judge(self, items: Items, intake: crate::consume::Intake) {
        let report = intake.ended().await;
        let sum = report.acked + report.dead_lettered + report.nacked + report.given_back;
        let ended = items.drain().await;
        let stats = items.stats();
        self.judge_report(&report, sum, &ended, &stats, items.engine.settings.capacity);
        let engine = Arc::downgrade(&items.engine);
        drop((items, intake));
        while engine.strong_count() > 0 {
            rt::yield_now().await;
        }
    }
}

struct Running {
    server: Server,
    key: Key,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.log().running.remove(&self.key);
    }
}

/// The source of one server.
struct Changing {
    server: Server,
    /// What is left to hand over in this generation. `None`: not looked at yet.
    left: Option<Vec<(u64, Key)>>,
    /// How often it takes messages back.
    revokes: u32,
    /// The generation that waits for its release.
    ending: Option<u64>,
    /// Whether each generation begins with the second message.
    swaps: bool,
    /// Whether it takes messages back as often as it may, at the latest when nothing goes on.
    insists: bool,
}

type Position = (u64, u64);

impl Changing {
    fn new(server: &Server) -> Self {
        Self {
            server: server.clone(),
            left: None,
            revokes: 2,
            ending: None,
            swaps: false,
            insists: false,
        }
    }
}

impl Source for Changing {
    type Message = Item;
    type Position = Position;

    fn features(&self) -> Features {
        Features::new().nack().finite()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.server.log().generation += 1;
        (self.left, self.ending) = (None, None);
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<Item, Position>,
    ) -> Result<Received<Position>, SourceError> {
        for _ in 0..4 {
            if self.ending.is_none() && self.revokes > 0 && rt::one_in(4) {
                return Ok(self.revoke());
            }
            if self.ending.is_none() && into.room() > 0 {
                match self.next() {
                    Next::End => return Ok(Received::End),
                    Next::Item(generation, id, key) => {
                        let item = Item {
                            key,
                            ids: vec![id],
                            generation,
                        };
                        let delivery = Delivery::new(item, (generation, id));
                        into.push(delivery.generation(Generation(generation)));
                        return Ok(Received::Messages);
                    }
                    Next::Wait => {}
                }
            }
            rt::yield_now().await;
        }
        if self.insists && self.ending.is_none() && self.revokes > 0 {
            pause().await;
            return Ok(self.revoke());
        }
        // Something settles before there is more to say.
        std::future::pending().await
    }

    async fn settle(&mut self, settled: &[Settlement<Position>]) -> Result<(), SourceError> {
        self.take(settled);
        pause().await;
        Ok(())
    }

    async fn release(&mut self, generations: &[Generation]) -> Result<(), SourceError> {
        let mut log = self.server.log();
        let ending = self.ending.take();
        if generations != [Generation(ending.unwrap_or(0))] {
            log.wrong
                .push(format!("{generations:?} released, and not {ending:?}"));
        }
        log.released = log.generation;
        log.generation += 1;
        Ok(())
    }
}

enum Next {
    Item(u64, u64, Key),
    Wait,
    End,
}

impl Changing {
    fn revoke(&mut self) -> Received<Position> {
        self.revokes -= 1;
        let mut log = self.server.log();
        let generation = log.generation;
        self.left = None;
        if rt::one_in(3) {
            // Others may have them already.
            log.generation += 1;
            return Received::Lost(vec![Generation(generation)]);
        }
        self.ending = Some(generation);
        Received::Revoked(vec![Generation(generation)])
    }

    fn next(&mut self) -> Next {
        let log = self.server.log();
        let unacked = log.messages.iter();
        let unacked = unacked.filter(|message| !log.acked.contains(&message.0));
        let unacked: Vec<_> = unacked.copied().collect();
        if unacked.is_empty() {
            return Next::End;
        }
        let left = self.left.get_or_insert_with(|| {
            let mut left = unacked;
            if self.swaps && left.len() > 1 {
                left.swap(0, 1);
            }
            left
        });
        match left.is_empty() {
            true => Next::Wait,
            false => {
                let (id, key) = left.remove(0);
                Next::Item(log.generation, id, key)
            }
        }
    }

    fn take(&mut self, settled: &[Settlement<Position>]) {
        let mut log = self.server.log();
        for Settlement {
            position: (generation, id),
            outcome,
            ..
        } in settled
        {
            if *generation != log.generation {
                let text = format!("{id} of {generation} settles in {}", log.generation);
                log.wrong.push(text);
            }
            if outcome.is_ack() {
                if !self.server.is_handled(&log, *id) {
                    log.wrong
                        .push(format!("{id} is acked as {outcome:?} and not handled"));
                }
                log.acked.insert(*id);
            } else if self.ending.is_none() {
                // A nack: it comes again, in its order.
                let key = log.messages.iter().find(|message| message.0 == *id);
                let key = key.expect("it is one of those").1;
                if let Some(left) = &mut self.left {
                    left.push((*id, key));
                    left.sort_unstable();
                }
            }
        }
    }
}

impl Server {
    /// A dispatcher whose handler pauses, and then does what `fails` says.
    fn spawn<F>(
        &self,
        builder: Builder<Key, Item, &'static str, F>,
        fails: fn(&Item, u32) -> bool,
    ) -> Items
    where
        F: Fn(&Item) -> Option<Key> + Send + Sync + 'static,
    {
        builder
            .hasher(Hasher::default())
            .shards(2)
            .spawn(self.handler(fails))
            .expect("the settings are right")
    }

    /// One type for all scenarios: the engine's runner is compiled once.
    fn handler(&self, fails: fn(&Item, u32) -> bool) -> Handler {
        let server = self.clone();
        Box::new(move |item: Item| {
            let server = server.clone();
            Box::pin(async move {
                let _running = server.start(&item);
                pause().await;
                if fails(&item, server.attempts(item.id())) {
                    return Err("as told");
                }
                server.log().done.extend(item.ids);
                Ok(())
            })
        })
    }

    fn consume(&self, items: &Items) -> crate::consume::Intake {
        self.consume_from(items, Changing::new(self))
    }

    fn consume_from(&self, items: &Items, source: Changing) -> crate::consume::Intake {
        let settings = IntakeSettings::new()
            .held(4)
            .stall_after(Duration::MAX)
            .revoke_within(Duration::from_millis(40));
        items.consume_with(source, settings).expect("it fits")
    }
}

fn builder() -> Builder<Key, Item, &'static str, impl Fn(&Item) -> Option<Key> + Send + Sync> {
    Dispatcher::key_by_opt(|item: &Item| Some(item.key))
        .on_exhausted(OnExhausted::Halt)
        .capacity(4)
}

const MESSAGES: [(u64, Key); 4] = [(10, 1), (11, 1), (12, 1), (20, 2)];

/// Parked, ready and in flight.
pub(super) async fn revoked_in_line() {
    let server = Server::new(&MESSAGES, Stands::Itself);
    let items = server.spawn(
        builder().concurrency(1 + usize::from(rt::one_in(2))),
        |_, _| false,
    );
    let intake = server.consume(&items);
    server.judge(items, intake).await;
}

/// Beside a full lane.
pub(super) async fn revoked_beside_a_full_lane() {
    let server = Server::new(&MESSAGES, Stands::Itself);
    let builder = builder().lane_capacity(1, crate::Overflow::Wait);
    let items = server.spawn(builder, |_, _| false);
    let intake = server.consume(&items);
    server.judge(items, intake).await;
}

/// Backing off, between two attempts.
pub(super) async fn revoked_in_backoff() {
    let server = Server::new(&MESSAGES, Stands::Itself);
    let retry = Retry::fixed(Duration::from_millis(10)).max_attempts(u32::MAX);
    let items = server.spawn(builder().retry(retry), |item, attempt| {
        item.id() != 11 && attempt < 2
    });
    let intake = server.consume(&items);
    server.judge(items, intake).await;
}

/// Halted. The generation after the last one ends no more, so an operator resumes.
pub(super) async fn revoked_while_halted() {
    let server = Server::new(&MESSAGES, Stands::Itself);
    let items = server.spawn(builder(), |item, attempt| item.id() == 10 && attempt < 2);
    let intake = server.consume(&items);
    let operator = {
        let (server, items) = (server.clone(), items.clone());
        shuttle_tokio::spawn(async move {
            while server.log().acked.len() < MESSAGES.len() {
                let _ = items.lane(&1).resume();
                rt::yield_now().await;
            }
        })
    };
    operator.await.expect("it ends");
    server.judge(items, intake).await;
}

/// Taken back at the moment at which it halts. Nothing resumes it: it goes back, and its key with
/// it.
pub(super) async fn revoked_as_it_halts() {
    let server = Server::new(&MESSAGES, Stands::Itself);
    let items = server.spawn(builder(), |item, _| item.id() == 10 && item.generation == 2);
    let source = Changing {
        revokes: 1,
        insists: true,
        ..Changing::new(&server)
    };
    let intake = server.consume_from(&items, source);
    server.judge(items, intake).await;
}

/// In a batch, before and after it has started.
pub(super) async fn revoked_in_a_batch() {
    let server = Server::new(&MESSAGES, Stands::Itself);
    let told = server.clone();
    let items = builder()
        .batch(2, Duration::ZERO)
        .hasher(Hasher::default())
        .shards(2)
        .spawn_batches(move |batch: Vec<Item>| {
            let server = told.clone();
            async move {
                let mut all = batch[0].clone();
                all.generation = batch.iter().map(|item| item.generation).max().unwrap_or(0);
                all.ids = batch.iter().flat_map(|item| item.ids.clone()).collect();
                let _running = server.start(&all);
                pause().await;
                server.log().done.extend(all.ids);
                Ok::<(), &'static str>(())
            }
        })
        .expect("the settings are right");
    let intake = server.consume(&items);
    server.judge(items, intake).await;
}

/// Superseded by a later one, which is taken back.
pub(super) async fn revoked_and_superseded() {
    let server = Server::new(&MESSAGES, Stands::Later);
    let items = server.spawn(builder().coalesce(Coalesce::keep_latest()), |_, _| false);
    let intake = server.consume(&items);
    server.judge(items, intake).await;
}

/// Merged.
pub(super) async fn revoked_and_merged() {
    let server = Server::new(&MESSAGES, Stands::Later);
    let merge = |waits: &Item, comes: &Item| Item {
        key: waits.key,
        ids: waits.ids.iter().chain(&comes.ids).copied().collect(),
        generation: waits.generation.max(comes.generation),
    };
    let items = server.spawn(builder().coalesce(Coalesce::merge(merge)), |_, _| false);
    let intake = server.consume(&items);
    server.judge(items, intake).await;
}

/// Waiting for a version, and in line again when it comes again.
pub(super) async fn revoked_in_a_sequence() {
    let server = Server::new(&MESSAGES, Stands::Itself);
    let first = |key: Key| if key == 1 { 10 } else { 20 };
    let version = move |item: &Item| item.id() - first(item.key);
    let sequence = Sequence::contiguous(version)
        .from(0)
        // Short: time that jumps ahead lets a key forget its versions.
        .gap_timeout(Duration::from_secs(1), crate::discipline::OnGap::Halt);
    let items = server.spawn(builder().sequence(sequence), |_, _| false);
    let source = Changing {
        swaps: true,
        ..Changing::new(&server)
    };
    let intake = server.consume_from(&items, source);
    server.judge(items, intake).await;
}

/// While a sink has its letter.
pub(super) async fn revoked_as_a_letter() {
    let server = Server::new(&MESSAGES, Stands::Itself);
    let builder = builder().on_exhausted(OnExhausted::dead_letter(Letters(server.clone())));
    let items = server.spawn(builder, |item, _| item.id() == 10);
    let intake = server.consume(&items);
    server.judge(items, intake).await;
}

struct Letters(Server);

#[crate::async_trait]
impl DeadLetterSink<Key, Item, &'static str> for Letters {
    async fn accept(&self, letter: &DeadLetter<Key, Item, &'static str>) -> Result<(), BoxError> {
        pause().await;
        if rt::one_in(3) {
            return Err("as told".into());
        }
        self.0.log().lettered.extend(&letter.message.ids);
        Ok(())
    }
}

/// The dispatcher ends while a source is consumed.
pub(super) async fn meets_the_end() {
    let server = Server::new(&MESSAGES, Stands::Itself);
    let items = server.spawn(builder(), |_, _| false);
    let intake = server.consume(&items);
    pause().await;
    let ending = match (rt::one_in(3), rt::one_in(2)) {
        (true, _) => items.drain(),
        (false, true) => items.close(),
        (false, false) => items.abort(),
    };
    let ended = ending.await;
    let report = intake.ended().await;
    let sum = report.acked + report.dead_lettered + report.nacked + report.given_back;
    assert_eq!(sum, report.received, "{report}");
    assert!(ended.returned.is_empty(), "{ended}");
    let wrong = std::mem::take(&mut server.log().wrong);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let acked = server.log().acked.len() as u64;
    assert!(report.acked <= acked, "{report}, and {acked} were acked");
}

/// The intake is stopped, with and without time for what is here.
pub(super) async fn is_stopped() {
    let server = Server::new(&MESSAGES, Stands::Itself);
    let items = server.spawn(builder(), |_, _| false);
    let intake = server.consume(&items);
    pause().await;
    let within = match rt::one_in(2) {
        true => Duration::ZERO,
        false => Duration::MAX,
    };
    let report = intake.stop().within(within).await;
    let sum = report.acked + report.dead_lettered + report.nacked + report.given_back;
    assert_eq!(sum, report.received, "{report}");
    let ended = items.drain().await;
    assert!(ended.returned.is_empty(), "{ended}");
    let wrong = std::mem::take(&mut server.log().wrong);
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(report.acked, server.log().acked.len() as u64, "{report}");
}
