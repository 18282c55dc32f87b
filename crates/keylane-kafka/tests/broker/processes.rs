//! Consumers that are processes: they join, leave, are killed, and are paused for longer than their
//! session. The test checks the history of all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use keylane::consume::IntakeSettings;
use keylane::source::RawMessage;
use keylane::{OnExhausted, Overflow};
use keylane_kafka::{KafkaSource, metadata};
use keylane_testkit::scenario::{Random, boxed, by_key};
use tokio::time::sleep;

use crate::rebalances::{rebalances, takes};
use crate::stage::{id_of, message, place_of, until};
use crate::support::{Topic, shared, show_log};

const PARTITIONS: i32 = 6;
const KEYS: u64 = 200;
const MEMBERS: usize = 3;

/// The session of a member.
const SESSION: Duration = Duration::from_millis(1_500);

/// The limit of waiting records.
const AHEAD: u64 = 3_000;

/// How long a member is paused.
const PAUSE: Duration = Duration::from_millis(2_500);

/// How long a member that resumes may take to learn that it was removed.
const LATE: Duration = Duration::from_secs(3);

/// The variable with the settings of a worker. Without it the test that is the worker does nothing.
const WORKER: &str = "KEYLANE_KAFKA_WORKER";

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock")
}

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
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let file = OpenOptions::new().append(true).open(log).expect("a log");
        let (file, pid) = (Arc::new(file), std::process::id());
        let say = move |what: What, raw: &RawMessage| {
            let (id, (partition, offset)) = (id_of(raw).expect("an id"), place_of(raw));
            let (what, at) = (what.letter(), now().as_nanos());
            let line = format!("{what} {pid} {id} {partition} {offset} {at}\n");
            // A single write, which is not interleaved with others, and outlives this process.
            (&*file).write_all(line.as_bytes()).expect("a line");
        };
        let handler = boxed(move |raw: RawMessage| {
            let say = say.clone();
            async move {
                say(What::Start, &raw);
                let time = takes(id_of(&raw).unwrap_or_default());
                let say = |what| say(what, &raw);
                let mut end = OnDrop {
                    say,
                    what: What::Drop,
                };
                sleep(time).await;
                end.what = What::End;
                Ok(())
            }
        });
        let consumer = by_key()
            .concurrency(128)
            .lane_capacity(8, Overflow::Wait)
            .on_exhausted(OnExhausted::Halt)
            .spawn(handler)
            .expect("a consumer");
        let source = KafkaSource::builder(brokers, group)
            .topic(topic)
            .property("session.timeout.ms", SESSION.as_millis().to_string())
            .property("heartbeat.interval.ms", "200");
        let settings = IntakeSettings::new()
            .revoke_within(Duration::from_secs(1))
            .longest_pause(Duration::from_millis(500))
            .confirm_every(Duration::from_millis(50));
        let source = source.build().expect("a source");
        let intake = consumer.consume_with(source, settings).expect("an intake");
        let end = || std::io::stdin().read_to_end(&mut Vec::new());
        let ended = tokio::task::spawn_blocking(end).await;
        ended.expect("no panic").expect("the end of the input");
        intake.stop().within(Duration::from_secs(5)).await;
    });
}

/// Records how an attempt ended: attempts of a lost partition are dropped in the middle.
struct OnDrop<S: Fn(What)> {
    say: S,
    what: What,
}

impl<S: Fn(What)> Drop for OnDrop<S> {
    fn drop(&mut self) {
        (self.say)(self.what);
    }
}

struct Worker {
    child: Child,
    input: Option<ChildStdin>,
}

impl Worker {
    fn start(topic: &Topic, log: &Path) -> Self {
        let task = [
            topic.kafka.bootstrap(),
            topic.name.clone(),
            topic.group.clone(),
            log.display().to_string(),
        ];
        let mut child = Command::new(std::env::current_exe().expect("a program"))
            .args(["processes::worker", "--exact", "--nocapture"])
            .env(WORKER, task.join(" "))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a worker");
        let input = child.stdin.take();
        Self { child, input }
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(sent.expect("`kill` is there").success());
    }

    /// Makes it leave in order, and waits.
    async fn stop(mut self) {
        drop(self.input.take());
        let mut child = std::mem::replace(&mut self.child, idle());
        let status = tokio::task::spawn_blocking(move || child.wait()).await;
        assert!(status.expect("no panic").expect("an end").success());
    }

    fn kill(&mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("an end");
    }
}

/// A placeholder for a process.
fn idle() -> Child {
    Command::new("true").spawn().expect("`true` is there")
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The event of a line about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Start,
    End,
    Drop,
}

impl What {
    fn letter(self) -> char {
        match self {
            Self::Start => 's',
            Self::End => 'e',
            Self::Drop => 'd',
        }
    }

    fn of(letter: &str) -> Option<Self> {
        match letter {
            "s" => Some(Self::Start),
            "e" => Some(Self::End),
            "d" => Some(Self::Drop),
            _ => None,
        }
    }
}

/// A line of the log.
#[derive(Clone, Copy, Debug)]
struct Line {
    what: What,
    pid: u32,
    id: u64,
    place: (i32, u64),
    at: Duration,
}

/// The lines that the workers have written so far.
struct Log {
    file: File,
    /// The beginning of an incomplete line.
    rest: String,
    lines: Vec<Line>,
    ended: usize,
}

impl Log {
    fn open(path: &Path) -> Self {
        Self {
            file: File::open(path).expect("a log"),
            rest: String::new(),
            lines: Vec::new(),
            ended: 0,
        }
    }

    /// Reads new lines, and returns them.
    fn read(&mut self) -> &[Line] {
        self.file.read_to_string(&mut self.rest).expect("text");
        let whole = self.rest.rfind('\n').map_or(0, |end| end + 1);
        let rest = self.rest.split_off(whole);
        let text = std::mem::replace(&mut self.rest, rest);
        let known = self.lines.len();
        let new = text
            .lines()
            .map(|line| Line::of(line).expect("a whole line"));
        self.lines.extend(new);
        let new = &self.lines[known..];
        self.ended += new.iter().filter(|line| line.what == What::End).count();
        new
    }

    fn ended(&mut self) -> usize {
        self.read();
        self.ended
    }
}

impl Line {
    fn of(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let what = What::of(words.next()?)?;
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        Some(Self {
            what,
            pid: u32::try_from(number()?).ok()?,
            id: number()?,
            place: (i32::try_from(number()?).ok()?, number()?),
            at: Duration::from_nanos(number()?),
        })
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
    let mut log = Log::open(&log);
    let mut last = vec![0; PARTITIONS as usize];
    while !ends.load(Ordering::Relaxed) {
        let committed = topic.committed().await;
        let at_least_at = now();
        let new = log.read().iter();
        done.extend(new.filter_map(|line| (line.what == What::End).then_some(line.place)));
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
    let mut log = Log::open(&log);
    while !ends.load(Ordering::Relaxed) {
        if log.ended() as u64 + AHEAD < sent.load(Ordering::Relaxed) {
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
    show_log();
    let topic = Topic::new(shared().await, PARTITIONS).await;
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    File::create(&log).expect("a log");
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
    let mut workers = Vec::from_iter((0..MEMBERS).map(|_| Worker::start(&topic, &log)));
    let mut faults = Vec::new();
    let mut random = Random::new(11);
    let mut story = Log::open(&log);
    until("some are done", async || story.ended() >= 200).await;
    for number in 0..rebalances() {
        let before = story.ended();
        let at = random.below(workers.len() as u64) as usize;
        let pid = workers[at].child.id();
        match number % 4 {
            0 => {
                let from = now();
                workers[at].kill();
                let until = now();
                faults.push(Fault { pid, from, until });
                workers[at] = Worker::start(&topic, &log);
            }
            1 => {
                let from = now();
                workers[at].signal("STOP");
                sleep(PAUSE).await;
                workers[at].signal("CONT");
                let until = now() + LATE;
                faults.push(Fault { pid, from, until });
            }
            2 => workers.push(Worker::start(&topic, &log)),
            _ => workers.swap_remove(at).stop().await,
        }
        until("more is done", async || story.ended() >= before + 300).await;
    }
    ends.store(true, Ordering::Relaxed);
    producer.await.expect("no panic");
    until("nothing is left", async || topic.left().await == 0).await;
    watches.store(true, Ordering::Relaxed);
    let committed = watcher.await.expect("what is committed is right");
    for worker in workers {
        worker.stop().await;
    }
    story.read();
    let story = Story {
        sent: sent.load(Ordering::Relaxed),
        keys: keys(&topic).await,
        lines: story.lines,
        faults,
        committed,
    };
    println!("{}", story.judge());
}

/// The key of each id.
async fn keys(topic: &Topic) -> HashMap<u64, Bytes> {
    let records = topic.records().await.into_iter();
    let records = records.filter_map(|raw| Some((id_of(&raw)?, raw.key?)));
    records.collect()
}

struct Story {
    sent: u64,
    keys: HashMap<u64, Bytes>,
    lines: Vec<Line>,
    faults: Vec<Fault>,
    committed: HashMap<(i32, u64), Duration>,
}

impl Story {
    /// Whether a process may have acted at this time without knowing of its fault.
    fn is_excused(&self, pid: u32, at: Duration) -> bool {
        let mut faults = self.faults.iter();
        faults.any(|fault| fault.pid == pid && fault.from <= at && at <= fault.until)
    }

    fn judge(&self) -> String {
        let mut lines = self.lines.clone();
        lines.sort_by_key(|line| line.at);
        let mut done = BTreeMap::<u64, u64>::new();
        let mut running = HashMap::<Bytes, HashMap<u32, Line>>::new();
        let mut last_first = HashMap::<Bytes, u64>::new();
        let (mut repeats, mut late) = (0, 0);
        for line in &lines {
            let key = self.keys[&line.id].clone();
            let is_late = self.is_excused(line.pid, line.at);
            if line.what == What::Start {
                let was_done = done.contains_key(&line.id);
                if was_done {
                    repeats += 1;
                    late += u64::from(is_late);
                    // A record that was seen to be committed is not handed over again, except to a
                    // member that does not know that it was removed.
                    let committed = self.committed.get(&line.place);
                    let is_allowed = is_late || committed.is_none_or(|since| *since > line.at);
                    assert!(is_allowed, "{line:?} was committed before");
                }
                let of_key = running.entry(key).or_default();
                for other in of_key.values().filter(|other| other.pid != line.pid) {
                    // A member that was killed or paused in the middle of it, or that began it
                    // without knowing that it was removed.
                    let mut faults = self.faults.iter();
                    let is_excused = faults.any(|fault| {
                        fault.pid == other.pid && other.at <= fault.from && fault.from <= line.at
                    });
                    let is_excused = is_excused || self.is_excused(other.pid, other.at) || is_late;
                    assert!(is_excused, "{line:?} begins beside {other:?}");
                }
                let own = of_key.insert(line.pid, *line);
                assert!(own.is_none(), "{line:?} begins beside {own:?}");
                continue;
            }
            running.entry(key.clone()).or_default().remove(&line.pid);
            if line.what == What::Drop {
                continue;
            }
            let count = done.entry(line.id).or_default();
            *count += 1;
            if *count == 1 {
                let last = last_first.entry(key).or_default();
                assert!(*last < line.id, "{line:?} is done after {last}");
                *last = line.id;
            }
        }
        let lost: Vec<_> = (1..=self.sent)
            .filter(|id| !done.contains_key(id))
            .collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        format!(
            "{} records, {} faults: 0 lost, 0 reordered, {repeats} done again, {late} of them by \
             members that did not know that they were out",
            self.sent,
            self.faults.len()
        )
    }
}
