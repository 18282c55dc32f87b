//! Consumers that are processes: they join, leave, are killed, and are paused for longer than their
//! session. The test checks the history of all of them.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use keylane::consume::IntakeSettings;
use keylane::source::RawMessage;
use keylane::{OnExhausted, Overflow};
use keylane_kafka::{KafkaSource, metadata};
use keylane_testkit::scenario::{Random, boxed, by_key};
use testkit_processes::{Journal, Process, Reader, Step, Story, What, now, told_to_stop};
use tokio::time::sleep;

use crate::protocol::Protocol;
use crate::rebalances::{rebalances, takes};
use crate::stage::{id_of, message, place_of, until};
use crate::support::{Topic, shared, show_log};

const PARTITIONS: i32 = 6;
const KEYS: u64 = 200;
const MEMBERS: usize = 3;

/// The session of a member. A machine that stands still for a second or two ends none.
const SESSION: Duration = Duration::from_secs(6);

/// The limit of waiting records.
const AHEAD: u64 = 3_000;

/// How long a member is paused.
const PAUSE: Duration = Duration::from_secs(8);

/// How long a member that resumes may take to learn that it was removed.
const LATE: Duration = Duration::from_secs(10);

/// The variable with the settings of a worker. Without it the test that is the worker does nothing.
const WORKER: &str = "KEYLANE_KAFKA_WORKER";

/// What happened to a record, in a line of the journal. Its numbers: id, partition, offset.
const START: char = 's';
const END: char = 'e';
const DROP: char = 'd';

type Line = testkit_processes::Line<3>;

/// The worker: this program again. It writes a line where a record begins and where it ends or is
/// dropped, and leaves when its input ends.
#[test]
fn worker() {
    let Ok(task) = std::env::var(WORKER) else {
        return;
    };
    show_log();
    let mut task = task.split(' ');
    let mut next = || task.next().expect("a task").to_owned();
    let (brokers, topic, group, log) = (next(), next(), next(), next());
    let name = next();
    let mut protocols = Protocol::ALL.into_iter();
    let protocol = protocols.find(|one| format!("{one:?}") == name);
    let protocol = protocol.expect("a protocol");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let journal = Journal::open(log);
        let say = move |what: char, raw: &RawMessage| {
            let (id, (partition, offset)) = (id_of(raw).expect("an id"), place_of(raw));
            journal.write(what, &[id, partition as u64, offset]);
        };
        let handler = boxed(move |raw: RawMessage| {
            let say = say.clone();
            async move {
                say(START, &raw);
                let time = takes(id_of(&raw).unwrap_or_default());
                let say = |what| say(what, &raw);
                let mut end = OnDrop { say, what: DROP };
                sleep(time).await;
                end.what = END;
                Ok(())
            }
        });
        let consumer = by_key()
            .concurrency(128)
            .lane_capacity(8, Overflow::Wait)
            .on_exhausted(OnExhausted::Halt)
            .spawn(handler)
            .expect("a consumer");
        let mut source = KafkaSource::builder(brokers, group).topic(topic);
        for (name, value) in protocol.properties() {
            source = source.property(*name, *value);
        }
        // In the new protocol these are the broker's.
        if protocol != Protocol::New {
            source = source
                .property("session.timeout.ms", SESSION.as_millis().to_string())
                .property("heartbeat.interval.ms", "200");
        }
        let settings = IntakeSettings::new()
            .revoke_within(Duration::from_secs(1))
            .longest_pause(Duration::from_millis(500))
            .confirm_every(Duration::from_millis(50));
        let source = source.build().expect("a source");
        let intake = consumer.consume_with(source, settings).expect("an intake");
        told_to_stop().await;
        intake.stop().within(Duration::from_secs(5)).await;
    });
}

/// Records how an attempt ended: attempts of a lost partition are dropped in the middle.
struct OnDrop<S: Fn(char)> {
    say: S,
    what: char,
}

impl<S: Fn(char)> Drop for OnDrop<S> {
    fn drop(&mut self) {
        (self.say)(self.what);
    }
}

fn start(topic: &Topic, protocol: Protocol, log: &Path) -> Process {
    let task = [
        topic.kafka.bootstrap(),
        topic.name.clone(),
        topic.group.clone(),
        log.display().to_string(),
        format!("{protocol:?}"),
    ];
    Process::start("processes::worker", [(WORKER, task.join(" "))])
}

/// The partition and the offset of the record of a line.
fn place(line: &Line) -> (i32, u64) {
    let [_, partition, offset] = line.numbers;
    (i32::try_from(partition).expect("a partition"), offset)
}

/// Counts the records that are done.
struct Progress {
    journal: Reader<3>,
    done: usize,
}

impl Progress {
    fn of(log: &Path) -> Self {
        Self {
            journal: Reader::open(log),
            done: 0,
        }
    }

    fn done(&mut self) -> usize {
        let new = self.journal.read().iter();
        self.done += new.filter(|line| line.what == END).count();
        self.done
    }
}

/// A fault of a process, with the time in which it may act without knowing.
#[derive(Clone, Copy, Debug)]
struct Fault {
    pid: u32,
    from: Duration,
    until: Duration,
}

/// Watches the committed places until it is stopped: they never go back, and never exceed the
/// handled records. Returns when each record was first seen to be committed.
async fn watch(topic: Topic, log: PathBuf, ends: Arc<AtomicBool>) -> HashMap<(i32, u64), Duration> {
    let (mut seen, mut done) = (HashMap::new(), BTreeSet::new());
    let mut log = Reader::open(&log);
    let mut last = vec![0; PARTITIONS as usize];
    while !ends.load(Ordering::Relaxed) {
        let committed = topic.committed().await;
        let at_least_at = now();
        let new = log.read().iter();
        done.extend(new.filter(|line| line.what == END).map(place));
        for (number, (at, text)) in (0..).zip(committed) {
            let Some(at) = at else { continue };
            let last = &mut last[number as usize];
            assert!(*last <= at, "{number} went from {last} back to {at}");
            let beyond = metadata::decode(at, &text).expect("our own metadata");
            for offset in (*last..at).chain(beyond.runs().flatten()) {
                let place = (number, offset);
                assert!(done.contains(&place), "{place:?} is committed, not done");
                seen.entry(place).or_insert(at_least_at);
            }
            *last = at;
        }
        sleep(Duration::from_millis(20)).await;
    }
    seen
}

/// Publishes until it is stopped, not too far ahead of the handled records: the ids of a key
/// ascend.
async fn produce(topic: Topic, log: PathBuf, sent: Arc<AtomicU64>, ends: Arc<AtomicBool>) {
    let mut random = Random::new(7);
    let mut log = Progress::of(&log);
    while !ends.load(Ordering::Relaxed) {
        if log.done() as u64 + AHEAD < sent.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(20)).await;
            continue;
        }
        let first = sent.load(Ordering::Relaxed) + 1;
        let messages = (first..first + 50).map(|id| message(random.below(KEYS), id));
        topic.produce(messages.collect()).await;
        sent.store(first + 49, Ordering::Relaxed);
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_reordered_when_processes_are_killed_and_stand_still() {
    nothing_is_lost(Protocol::Eager).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by `cargo xtask soak`"]
async fn nothing_is_lost_in_the_cooperative_protocol() {
    nothing_is_lost(Protocol::Cooperative).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by `cargo xtask soak`"]
async fn nothing_is_lost_in_the_new_protocol() {
    nothing_is_lost(Protocol::New).await;
}

async fn nothing_is_lost(protocol: Protocol) {
    show_log();
    let topic = Topic::new(shared().await, PARTITIONS).await;
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    Journal::open(&log);
    let (ends, watches) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let sent = Arc::<AtomicU64>::default();
    let producer = produce(
        topic.clone(),
        log.clone(),
        Arc::clone(&sent),
        Arc::clone(&ends),
    );
    let producer = tokio::spawn(producer);
    let watcher = watch(topic.clone(), log.clone(), Arc::clone(&watches));
    let watcher = tokio::spawn(watcher);
    let mut workers = Vec::from_iter((0..MEMBERS).map(|_| start(&topic, protocol, &log)));
    let mut faults = Vec::new();
    let mut random = Random::new(11);
    let mut progress = Progress::of(&log);
    until("some are done", async || progress.done() >= 200).await;
    for number in 0..rebalances() {
        let before = progress.done();
        let at = random.below(workers.len() as u64) as usize;
        let pid = workers[at].id();
        match number % 4 {
            0 => {
                let from = now();
                workers[at].kill();
                let until = now();
                faults.push(Fault { pid, from, until });
                workers[at] = start(&topic, protocol, &log);
            }
            1 => {
                let from = now();
                workers[at].pause().await;
                sleep(PAUSE).await;
                workers[at].resume();
                let until = now() + LATE;
                faults.push(Fault { pid, from, until });
            }
            2 => workers.push(start(&topic, protocol, &log)),
            _ => workers.swap_remove(at).stop().await,
        }
        until("more is done", async || progress.done() >= before + 300).await;
    }
    ends.store(true, Ordering::Relaxed);
    producer.await.expect("no panic");
    until("nothing is left", async || topic.left().await == 0).await;
    watches.store(true, Ordering::Relaxed);
    let committed = watcher.await.expect("what is committed is right");
    for worker in workers {
        worker.stop().await;
    }
    let account = Account {
        sent: sent.load(Ordering::Relaxed),
        keys: keys(&topic).await,
        lines: Reader::open(&log).into_lines(),
        faults,
        committed,
    };
    println!("{protocol:?}: {}", account.judge());
}

/// The key of each id.
async fn keys(topic: &Topic) -> HashMap<u64, u64> {
    let records = topic.records().await.into_iter();
    let key = |raw: &RawMessage| std::str::from_utf8(raw.key.as_ref()?).ok()?.parse().ok();
    let records = records.filter_map(|raw| Some((id_of(&raw)?, key(&raw)?)));
    records.collect()
}

/// All that is known in the end. The lines are in the order of their times.
struct Account {
    sent: u64,
    keys: HashMap<u64, u64>,
    lines: Vec<Line>,
    faults: Vec<Fault>,
    committed: HashMap<(i32, u64), Duration>,
}

impl Account {
    /// Whether a process may have written this line without knowing of its fault.
    fn is_late(&self, line: &Line) -> bool {
        let mut faults = self.faults.iter();
        faults.any(|fault| {
            fault.pid == line.process && fault.from <= line.at && line.at <= fault.until
        })
    }

    /// How long before the next fault of its process a record was done. It is zero for a record that
    /// was done during a fault: a process is killed or paused a little after the fault begins, and
    /// may act for a while after it.
    fn age(&self, done: &Line) -> Option<Duration> {
        let faults = self.faults.iter();
        let later = faults.filter(|fault| fault.pid == done.process && fault.until >= done.at);
        later.map(|fault| fault.from.saturating_sub(done.at)).min()
    }

    fn step(&self, line: &Line) -> Option<Step> {
        let [id, ..] = line.numbers;
        Some(Step {
            worker: line.process,
            key: self.keys[&id],
            id,
            what: match line.what {
                START => What::Start,
                END => What::Done,
                DROP => What::Broken,
                other => panic!("`{other}` is not written"),
            },
        })
    }

    /// Whether a record may be handed over again that is done: not when it was seen to be
    /// committed, except to a member that does not know that it was removed.
    fn may_repeat(&self, line: &Line) -> bool {
        let committed = self.committed.get(&place(line));
        self.is_late(line) || committed.is_none_or(|since| *since > line.at)
    }

    /// Whether one may begin beside another one: a member was killed or paused in the middle of the
    /// other one, or began one of them without knowing that it was removed.
    fn may_overlap(&self, other: &Line, one: &Line) -> bool {
        let mut faults = self.faults.iter();
        let is_in_the_middle = faults.any(|fault| {
            fault.pid == other.process && other.at <= fault.from && fault.from <= one.at
        });
        let is_excused = is_in_the_middle || self.is_late(other) || self.is_late(one);
        other.process != one.process && is_excused
    }

    fn judge(&self) -> String {
        let story = Story::read(self.lines.iter().map(|line| self.step(line)));
        let (mut ages, mut late) = (Vec::new(), 0);
        for (done, again) in story.repeats() {
            let line = &self.lines[again.start];
            assert!(self.may_repeat(line), "{line:?} was committed before");
            // It was committed, perhaps, by a process without a fault.
            if self.is_late(line) {
                late += 1;
                continue;
            }
            let done = &self.lines[done.end.unwrap_or_default()];
            ages.extend(self.age(done));
        }
        ages.sort_unstable();
        let repeats = story.repeats().count();
        let age = |share: usize| ages.get(ages.len() * share / 100).copied();
        let ages = [age(50), age(99), ages.last().copied()].map(Option::unwrap_or_default);
        for (other, one) in story.overlaps() {
            let (other, one) = (&self.lines[other.start], &self.lines[one.start]);
            assert!(
                self.may_overlap(other, one),
                "{one:?} begins beside {other:?}"
            );
        }
        let reordered = story.done_out_of_order(|id| id);
        assert!(reordered.is_empty(), "reordered: {reordered:?}");
        let lost = story.lost(1..=self.sent);
        assert!(lost.is_empty(), "lost: {lost:?}");
        format!(
            "{} records, {} faults: 0 lost, 0 reordered, {repeats} done again, {late} of them by \
             members that did not know that they were out; ages at the fault (half, 99 %, all): \
             {ages:?}",
            self.sent,
            self.faults.len()
        )
    }
}
