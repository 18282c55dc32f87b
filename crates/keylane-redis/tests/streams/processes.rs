//! Consumers that are processes: they join, leave, are killed, and are paused for longer than their
//! lease. The test checks the history of all of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylane::consume::IntakeSettings;
use keylane::source::RawMessage;
use keylane::{OnExhausted, Retry};
use keylane_redis::partition_of;
use keylane_testkit::scenario::{Random, boxed, by_key};
use redis::cmd;
use testkit_processes::{Attempt, Journal, Process, Reader, Step, Story, What, now, told_to_stop};
use testkit_servers::RedisKind;
use tokio::time::sleep;

use crate::support::{Client, LEASE, builder, new_name, own, show_log, until};

const PARTITIONS: u32 = 6;
const KEYS: u64 = 60;
const MEMBERS: usize = 3;

/// How long a member is paused: longer than its lease.
const PAUSE: Duration = Duration::from_millis(2_000);

/// Acks that are this much older than a fault of their member were sent.
const TOLD: Duration = Duration::from_millis(500);

/// A longer pause of the machine is recorded.
const HICCUP: Duration = Duration::from_millis(200);

/// The variable with the settings of a worker. Without it the test that is the worker does nothing.
const WORKER: &str = "KEYLANE_STREAMS_WORKER";

/// What the lines of the journal are about, and their numbers: a message that begins or ends, with
/// its key and its number …
const START: char = 's';
const END: char = 'e';

/// … and a pause of a machine, from when to when.
const SLOW: char = 'p';

type Line = testkit_processes::Line<2>;

fn takes(number: u64) -> Duration {
    Duration::from_millis(number % 7)
}

/// The worker: this program again. It writes a line where a message begins and where it ends, and
/// after each pause of its machine, and leaves when its input ends.
#[test]
fn worker() {
    let Ok(task) = std::env::var(WORKER) else {
        return;
    };
    show_log();
    let task: Vec<&str> = task.split(' ').collect();
    let [url, name, log] = task[..] else {
        panic!("a task has three words");
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let journal = Journal::open(log);
        tokio::spawn(pulse(journal.clone()));
        let handler = move |raw: RawMessage| {
            let journal = journal.clone();
            async move {
                let number = |bytes| std::str::from_utf8(bytes).unwrap().parse().unwrap();
                let message = [number(raw.key.as_deref().unwrap()), number(&raw.payload)];
                journal.write(START, &message);
                sleep(takes(message[1])).await;
                journal.write(END, &message);
                Ok(())
            }
        };
        let consumer = by_key()
            .concurrency(64)
            // A message may be in flight at several kills.
            .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(100_000))
            .on_exhausted(OnExhausted::Halt)
            .spawn(boxed(handler))
            .unwrap();
        let settings = IntakeSettings::new()
            .revoke_within(Duration::from_secs(1))
            .longest_pause(Duration::from_millis(500))
            .confirm_every(Duration::from_millis(50));
        let source = builder(url, "g")
            .lease(LEASE)
            .partitions(name, PARTITIONS)
            .build()
            .unwrap();
        let intake = consumer.consume_with(source, settings).unwrap();
        told_to_stop().await;
        intake.stop().within(Duration::from_secs(5)).await;
    });
}

/// Records the pauses of this process.
async fn pulse(journal: Journal) {
    loop {
        let from = now();
        sleep(HICCUP / 10).await;
        let to = now();
        if to - from > HICCUP {
            journal.write(SLOW, &[from, to].map(|time| time.as_nanos() as u64));
        }
    }
}

fn start(url: &str, name: &str, log: &Path) -> Process {
    let task = format!("{url} {name} {}", log.display());
    Process::start("processes::worker", [(WORKER, task)])
}

/// The faults of the workers.
#[derive(Debug, Default)]
struct Faults {
    killed: BTreeMap<u32, Duration>,
    /// Paused workers, with the time of each pause.
    paused: Vec<Pause>,
    /// Workers that the machine paused.
    slow: Vec<Pause>,
    /// When a member left, or joined: streams move then.
    moved: Vec<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    /// `None`: the server, and so all workers.
    pid: Option<u32>,
    from: Duration,
    to: Duration,
}

/// One attempt, with its times.
#[derive(Clone, Copy, Debug)]
struct Timed {
    of: Attempt,
    start: Duration,
    end: Option<Duration>,
}

impl Timed {
    fn of(attempt: &Attempt, lines: &[Line]) -> Self {
        Self {
            of: *attempt,
            start: lines[attempt.start].at,
            end: attempt.end.map(|end| lines[end].at),
        }
    }
}

/// The step of a line, if it is about a message.
fn step(line: &Line) -> Option<Step> {
    let what = match line.what {
        START => What::Start,
        END => What::Done,
        _ => return None,
    };
    let [key, id] = line.numbers;
    let worker = line.process;
    Some(Step {
        worker,
        key,
        id,
        what,
    })
}

/// The pause of a line, if it is about one. It is not one of the test, as far as the worker knows.
fn pause(line: &Line) -> Option<Pause> {
    let [from, to] = line.numbers.map(Duration::from_nanos);
    (line.what == SLOW).then_some(Pause {
        pid: Some(line.process),
        from,
        to,
    })
}

impl Faults {
    fn pauses_of(&self, pid: u32) -> impl Iterator<Item = &Pause> {
        let all = self.paused.iter().chain(&self.slow);
        all.filter(move |pause| pause.pid.is_none_or(|other| other == pid))
    }

    fn stood_still(&self, attempt: &Timed) -> bool {
        let end = attempt.end.unwrap_or(Duration::MAX);
        let mut theirs = self.pauses_of(attempt.of.worker);
        theirs.any(|pause| attempt.start <= pause.to + TOLD && end >= pause.from)
    }

    /// Returns the pause after which an attempt began at once. Its process may have checked its
    /// lease right before: tokens exist for this case.
    fn resumed(&self, attempt: &Timed) -> Option<Duration> {
        let mut theirs = self.pauses_of(attempt.of.worker);
        let found = theirs.find(|pause| (pause.from..pause.to + TOLD).contains(&attempt.start));
        found.map(|pause| pause.from)
    }

    /// Whether the process of this attempt may not have sent its ack.
    fn may_be_untold(&self, attempt: &Timed) -> bool {
        let end = attempt.end.unwrap_or(attempt.start);
        let killed = self.killed.get(&attempt.of.worker);
        killed.is_some_and(|at| end + TOLD >= *at)
            || self
                .pauses_of(attempt.of.worker)
                .any(|pause| end + TOLD >= pause.from && end <= pause.to + TOLD)
    }

    fn judge(&self, lines: &[Line], sent: u64) {
        let story = Story::read(lines.iter().map(step));
        assert_eq!(story.lost(0..sent), [], "all are done");
        assert_eq!(story.done() as u64, sent, "no others are done");
        let reordered = story.begun_out_of_order(|number| number);
        assert!(reordered.is_empty(), "out of order: {reordered:?}");
        for (other, one) in story.overlaps() {
            let [other, one] = [other, one].map(|attempt| Timed::of(&attempt, lines));
            let may_be = other.of.worker == one.of.worker
                || self.ended(&other) <= one.start
                || self.stood_still(&other);
            assert!(may_be, "{one:?} overlaps {other:?}: {self:?}");
        }
        let stale = self.stale(&story, lines);
        // One for each thread that runs handlers.
        assert!(stale.values().all(|starts| *starts <= 2), "{stale:?}");
        println!(
            "{sent} messages, {} attempts more, {} killed, {} stood still, {} slow, {} left; {} \
             began stale",
            story.attempts().len() - story.done(),
            self.killed.len(),
            self.paused.len(),
            self.slow.len(),
            self.moved.len(),
            stale.values().sum::<usize>(),
        );
    }

    /// Returns how many attempts began at messages whose ack was sent, by the pause before. Only
    /// one that begins when its process goes on may do so.
    fn stale(&self, story: &Story, lines: &[Line]) -> BTreeMap<Duration, usize> {
        let mut stale = BTreeMap::new();
        for attempt in story.attempts() {
            let mut before = story.before(attempt).map(|one| Timed::of(one, lines));
            let told = before.find(|one| one.end.is_some() && !self.may_be_untold(one));
            let Some(other) = told else { continue };
            let one = Timed::of(attempt, lines);
            let Some(pause) = self.resumed(&one) else {
                panic!("{one:?} after {other:?}: {self:?}");
            };
            *stale.entry(pause).or_default() += 1;
        }
        stale
    }

    /// When an attempt was over, in any way.
    fn ended(&self, attempt: &Timed) -> Duration {
        let killed = self.killed.get(&attempt.of.worker).copied();
        attempt.end.or(killed).unwrap_or(Duration::MAX)
    }
}

/// The number of faults: 12 by default.
fn rounds() -> usize {
    std::env::var("KEYLANE_REDIS_MEMBER_FAULTS").map_or(12, |count| count.parse().unwrap())
}

async fn tell_a_story(kind: RedisKind, seed: u64) {
    let server = own(kind).await;
    let (client, name) = (Client::to(&server).await, new_name("processes"));
    let folder = tempfile::tempdir().unwrap();
    let (url, log) = (server.url(), folder.path().join("log"));
    Journal::open(&log);
    let is_over = Arc::new(AtomicBool::new(false));
    let producing = tokio::spawn({
        let (client, name, is_over) = (client.clone(), name.clone(), Arc::clone(&is_over));
        async move {
            let (mut number, mut slow) = (0_u64, Vec::new());
            while !is_over.load(Ordering::Relaxed) {
                let key = (number % KEYS).to_string();
                let stream = format!("{name}:{}", partition_of(key.as_bytes(), PARTITIONS));
                let mut add = cmd("XADD");
                add.arg(stream)
                    .arg("*")
                    .arg("key")
                    .arg(key)
                    .arg("payload")
                    .arg(number);
                let from = now();
                let _: String = client.ask(&add).await;
                number += 1;
                sleep(Duration::from_millis(1)).await;
                let to = now();
                if to - from > HICCUP {
                    slow.push(Pause {
                        pid: None,
                        from,
                        to,
                    });
                }
            }
            (number, slow)
        }
    });
    let mut faults = Faults::default();
    let mut random = Random::new(seed);
    let mut members: Vec<_> = (0..MEMBERS).map(|_| start(&url, &name, &log)).collect();
    sleep(Duration::from_secs(2)).await;
    for round in 0..rounds() {
        let chosen = usize::try_from(random.below(MEMBERS as u64)).unwrap();
        match round % 3 {
            0 => {
                let mut member = members.remove(chosen);
                member.kill();
                faults.killed.insert(member.id(), now());
                members.push(start(&url, &name, &log));
            }
            1 => {
                let from = now();
                members[chosen].pause().await;
                sleep(PAUSE).await;
                members[chosen].resume();
                faults.paused.push(Pause {
                    pid: Some(members[chosen].id()),
                    from,
                    to: now(),
                });
            }
            _ => {
                faults.moved.push(now());
                members.remove(chosen).stop().await;
                members.push(start(&url, &name, &log));
            }
        }
        sleep(Duration::from_millis(300 + random.below(700))).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let (sent, slow) = producing.await.unwrap();
    until("nothing is left", async || {
        let mut left = 0;
        for number in 0..PARTITIONS {
            left += client.left(&format!("{name}:{number}"), "g").await;
        }
        left == 0
    })
    .await;
    for member in members {
        member.stop().await;
    }
    let lines = Reader::open(&log).into_lines();
    // A worker notices those of the test, too.
    let is_new = |pause: &Pause| {
        let mut known = faults.paused.iter();
        !known.any(|one| one.pid == pause.pid && one.from < pause.to && one.to > pause.from)
    };
    faults.slow = slow
        .into_iter()
        .chain(lines.iter().filter_map(pause).filter(is_new))
        .collect();
    faults.judge(&lines, sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_killed_and_stand_still_on_redis_7() {
    tell_a_story(RedisKind::Redis7, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_killed_and_stand_still_on_redis_8() {
    tell_a_story(RedisKind::Redis8, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_killed_and_stand_still_on_valkey_9() {
    tell_a_story(RedisKind::Valkey9, 3).await;
}
