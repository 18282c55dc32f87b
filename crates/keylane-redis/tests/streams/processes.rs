//! Consumers that are processes: they join, leave, are killed, and are paused for longer than their
//! lease. The test checks the history of all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylane::consume::IntakeSettings;
use keylane::source::RawMessage;
use keylane::{OnExhausted, Retry};
use keylane_redis::partition_of;
use keylane_testkit::scenario::{Random, boxed, by_key};
use redis::cmd;
use testkit_servers::RedisKind;
use tokio::time::sleep;

use crate::support::{Client, builder, new_name, own, show_log, until};

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

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

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
        let file = OpenOptions::new().append(true).open(log).unwrap();
        let (file, pid) = (Arc::new(file), std::process::id());
        tokio::spawn(pulse(Arc::clone(&file), pid));
        let say = move |what: char, raw: &RawMessage| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let (key, number) = (text(raw.key.as_deref().unwrap()), text(&raw.payload));
            let line = format!("{what} {pid} {key} {number} {}\n", now().as_nanos());
            // A single write, which is not interleaved with others, and outlives this process.
            (&*file).write_all(line.as_bytes()).unwrap();
        };
        let handler = move |raw: RawMessage| {
            let say = say.clone();
            async move {
                say('s', &raw);
                let number: u64 = std::str::from_utf8(&raw.payload).unwrap().parse().unwrap();
                sleep(takes(number)).await;
                say('e', &raw);
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
            .partitions(name, PARTITIONS)
            .build()
            .unwrap();
        let intake = consumer.consume_with(source, settings).unwrap();
        let end = || std::io::stdin().read_to_end(&mut Vec::new());
        tokio::task::spawn_blocking(end).await.unwrap().unwrap();
        intake.stop().within(Duration::from_secs(5)).await;
    });
}

/// Records the pauses of this process.
async fn pulse(file: Arc<File>, pid: u32) {
    loop {
        let from = now();
        sleep(HICCUP / 10).await;
        let to = now();
        if to - from > HICCUP {
            let line = format!("p {pid} {} {} 0\n", from.as_nanos(), to.as_nanos());
            (&*file).write_all(line.as_bytes()).unwrap();
        }
    }
}

struct Worker {
    child: Child,
    input: Option<ChildStdin>,
}

impl Worker {
    fn start(url: &str, name: &str, log: &Path) -> Self {
        let task = format!("{url} {name} {}", log.display());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["processes::worker", "--exact", "--nocapture"])
            .env(WORKER, task)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        Self { child, input }
    }

    fn id(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args(["-s", signal, &self.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Makes it leave in order, and waits.
    async fn stop(mut self) {
        drop(self.input.take());
        while self.child.try_wait().unwrap().is_none() {
            sleep(Duration::from_millis(10)).await;
        }
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The faults of the workers.
#[derive(Debug, Default)]
struct Story {
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

/// One attempt.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    pid: u32,
    number: u64,
    start: Duration,
    end: Option<Duration>,
}

/// The attempts of each key, and the pauses that are not of the test.
fn read(log: &Path) -> (BTreeMap<u64, Vec<Attempt>>, Vec<Pause>) {
    let text = std::fs::read_to_string(log).unwrap();
    let mut keys: BTreeMap<u64, Vec<Attempt>> = BTreeMap::new();
    let mut pauses = Vec::new();
    let time = |word: &str| Duration::from_nanos(word.parse().unwrap());
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, pid, key, number, at] = words[..] else {
            panic!("not a line: {line}");
        };
        let pid = pid.parse().unwrap();
        if what == "p" {
            pauses.push(Pause {
                pid: Some(pid),
                from: time(key),
                to: time(number),
            });
            continue;
        }
        let number = number.parse().unwrap();
        let at = time(at);
        let attempts = keys.entry(key.parse().unwrap()).or_default();
        if what == "s" {
            attempts.push(Attempt {
                pid,
                number,
                start: at,
                end: None,
            });
        } else {
            let mut open = attempts.iter_mut().rev();
            let open = open.find(|one| one.pid == pid && one.number == number);
            open.unwrap().end = Some(at);
        }
    }
    for attempts in keys.values_mut() {
        attempts.sort_by_key(|one| one.start);
    }
    (keys, pauses)
}

impl Story {
    fn pauses_of(&self, pid: u32) -> impl Iterator<Item = &Pause> {
        let all = self.paused.iter().chain(&self.slow);
        all.filter(move |pause| pause.pid.is_none_or(|other| other == pid))
    }

    fn stood_still(&self, attempt: &Attempt) -> bool {
        let end = attempt.end.unwrap_or(Duration::MAX);
        let mut theirs = self.pauses_of(attempt.pid);
        theirs.any(|pause| attempt.start <= pause.to + TOLD && end >= pause.from)
    }

    /// Returns the pause after which an attempt began at once. Its process may have checked its
    /// lease right before: tokens exist for this case.
    fn resumed(&self, attempt: &Attempt) -> Option<Duration> {
        let mut theirs = self.pauses_of(attempt.pid);
        let found = theirs.find(|pause| (pause.from..pause.to + TOLD).contains(&attempt.start));
        found.map(|pause| pause.from)
    }

    /// Whether the process of this attempt may not have sent its ack.
    fn may_be_untold(&self, attempt: &Attempt) -> bool {
        let end = attempt.end.unwrap_or(attempt.start);
        let killed = self.killed.get(&attempt.pid);
        killed.is_some_and(|at| end + TOLD >= *at)
            || self
                .pauses_of(attempt.pid)
                .any(|pause| end + TOLD >= pause.from && end <= pause.to + TOLD)
    }

    fn judge(&self, keys: &BTreeMap<u64, Vec<Attempt>>, sent: u64) {
        let mut done = BTreeSet::new();
        let mut again = 0;
        let mut stale: BTreeMap<Duration, usize> = BTreeMap::new();
        for (key, attempts) in keys {
            let mut highest = None;
            let mut by_number: BTreeMap<u64, Vec<Attempt>> = BTreeMap::new();
            // Attempts that no other process may overlap.
            let mut open: Vec<Attempt> = Vec::new();
            for one in attempts {
                let before = by_number.entry(one.number).or_default();
                if before.is_empty() {
                    assert!(
                        highest < Some(one.number),
                        "key {key}: {one:?} after {highest:?}"
                    );
                    highest = Some(one.number);
                } else {
                    again += 1;
                    let told = |other: &&Attempt| other.end.is_some() && !self.may_be_untold(other);
                    if let Some(other) = before.iter().find(told) {
                        let Some(pause) = self.resumed(one) else {
                            panic!("key {key}: {one:?} after {other:?}: {self:?}");
                        };
                        *stale.entry(pause).or_default() += 1;
                    }
                }
                before.push(*one);
                open.retain(|other| self.ended(other) > one.start);
                let beside = open.iter().find(|other| other.pid != one.pid);
                assert!(
                    beside.is_none(),
                    "key {key}: {one:?} overlaps {beside:?}: {self:?}"
                );
                if !self.stood_still(one) {
                    open.push(*one);
                }
                done.extend(one.end.map(|_| one.number));
            }
        }
        assert_eq!(done.len() as u64, sent, "all are done");
        // One for each thread that runs handlers.
        assert!(stale.values().all(|starts| *starts <= 2), "{stale:?}");
        let (killed, stood_still) = (self.killed.len(), self.paused.len());
        let slow = self.slow.len();
        println!(
            "{sent} messages, {again} attempts more, {killed} killed, {stood_still} stood still, \
             {slow} slow, {} left; {} began stale",
            self.moved.len(),
            stale.values().sum::<usize>(),
        );
    }

    /// When an attempt was over, in any way.
    fn ended(&self, attempt: &Attempt) -> Duration {
        let killed = self.killed.get(&attempt.pid).copied();
        attempt.end.or(killed).unwrap_or(Duration::MAX)
    }
}

/// The number of faults: 12 by default.
fn faults() -> usize {
    std::env::var("KEYLANE_REDIS_MEMBER_FAULTS").map_or(12, |count| count.parse().unwrap())
}

async fn tell_a_story(kind: RedisKind, seed: u64) {
    let server = own(kind).await;
    let (client, name) = (Client::to(&server).await, new_name("processes"));
    let folder = tempfile::tempdir().unwrap();
    let (url, log) = (server.url(), folder.path().join("log"));
    File::create(&log).unwrap();
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
    let mut story = Story::default();
    let mut random = Random::new(seed);
    let mut members: Vec<_> = (0..MEMBERS)
        .map(|_| Worker::start(&url, &name, &log))
        .collect();
    sleep(Duration::from_secs(2)).await;
    for round in 0..faults() {
        let chosen = usize::try_from(random.below(MEMBERS as u64)).unwrap();
        match round % 3 {
            0 => {
                let member = members.remove(chosen);
                member.signal("KILL");
                story.killed.insert(member.id(), now());
                drop(member);
                members.push(Worker::start(&url, &name, &log));
            }
            1 => {
                let from = now();
                members[chosen].signal("STOP");
                sleep(PAUSE).await;
                members[chosen].signal("CONT");
                story.paused.push(Pause {
                    pid: Some(members[chosen].id()),
                    from,
                    to: now(),
                });
            }
            _ => {
                story.moved.push(now());
                members.remove(chosen).stop().await;
                members.push(Worker::start(&url, &name, &log));
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
    let (keys, pauses) = read(&log);
    // A worker notices those of the test, too.
    let is_new = |pause: &Pause| {
        let mut known = story.paused.iter();
        !known.any(|one| one.pid == pause.pid && one.from < pause.to && one.to > pause.from)
    };
    story.slow = slow
        .into_iter()
        .chain(pauses.into_iter().filter(is_new))
        .collect();
    story.judge(&keys, sent);
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
