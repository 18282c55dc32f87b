//! A process that is killed at random moments, under each policy.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use keylane_spool::{Persist, SinkError, Spool, SpoolSink, Spooled, async_trait};
use keylane_testkit::scenario::{Random, seed};

/// How many times each process is killed, unless set.
const KILLS: usize = 20;

#[test]
fn nothing_that_was_acknowledged_is_lost() {
    let run = Run::new("each");
    run.check_order_and_duplicates(true);
    let delivered = run.delivered();
    let lost: Vec<_> = run
        .acked
        .iter()
        .filter(|acked| !delivered.contains(*acked))
        .collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
}

#[test]
fn no_more_than_the_last_n_are_lost() {
    let run = Run::new("messages");
    run.check_order_and_duplicates(false);
    run.check_that_a_suffix_is_lost(Some(MESSAGES));
}

#[test]
fn no_more_than_the_last_moment_is_lost() {
    let run = Run::new("time");
    run.check_order_and_duplicates(false);
    run.check_that_a_suffix_is_lost(None);
}

#[test]
fn without_a_policy_the_order_is_kept() {
    Run::new("none").check_order_and_duplicates(false);
}

const MESSAGES: usize = 64;
const KEYS: usize = 4;

/// What the logs say.
struct Run {
    /// Round, key and number, in the order in which they were acknowledged.
    acked: Vec<(usize, usize, usize)>,
    writes: Vec<Written>,
    _dir: tempfile::TempDir,
}

struct Written {
    round: usize,
    id: String,
    message: (usize, usize, usize),
    /// How many removals were confirmed, in this round, when this was written.
    removed: usize,
    /// That of the id.
    epoch: String,
}

impl Run {
    fn new(policy: &str) -> Self {
        let kills = std::env::var("KEYLANE_SPOOL_KILLS").ok();
        let kills = kills.map_or(KILLS, |kills| kills.parse().unwrap());
        let dir = tempfile::tempdir().unwrap();
        for round in 0..kills {
            let mut child = start(dir.path(), policy, round, false);
            let pause = Random::new(round as u64).below(150_000);
            std::thread::sleep(Duration::from_micros(pause));
            child.kill().unwrap();
            child.wait().unwrap();
            // The last line of each log may be torn: what comes next begins a new one.
            for log in ["acked.log", "sink.log"] {
                append(&dir.path().join(log)).write_all(b"\n").unwrap();
            }
        }
        let mut last = start(dir.path(), policy, kills, true);
        assert!(last.wait().unwrap().success());
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        let message = |fields: &[&str]| {
            let number = |n: usize| fields[n].parse().unwrap();
            (number(0), number(1), number(2))
        };
        let acked = read("acked.log");
        let sink = read("sink.log");
        let run = Self {
            acked: lines(&acked).map(|fields| message(&fields)).collect(),
            writes: lines(&sink)
                .map(|fields| Written {
                    round: fields[0].parse().unwrap(),
                    id: fields[1].to_owned(),
                    message: message(&fields[2..5]),
                    removed: fields[5].parse().unwrap(),
                    epoch: fields[1].split('-').nth(1).unwrap().to_owned(),
                })
                .collect(),
            _dir: dir,
        };
        assert!(
            run.acked.len() > 100,
            "only {} acknowledged",
            run.acked.len()
        );
        let delivered = run.delivered();
        println!(
            "{policy}: {kills} kills, {} acknowledged, {} lost, {} written, {} twice",
            run.acked.len(),
            run.acked
                .iter()
                .filter(|acked| !delivered.contains(*acked))
                .count(),
            run.writes.len(),
            run.writes.len() - delivered.len(),
        );
        run
    }

    fn delivered(&self) -> HashSet<(usize, usize, usize)> {
        self.writes.iter().map(|written| written.message).collect()
    }

    /// First writes ascend for each key. A message that is written again was written before a kill,
    /// and, where all of them are on the disk, its removal was not confirmed before it.
    fn check_order_and_duplicates(&self, all_on_disk: bool) {
        let mut last: HashMap<usize, (usize, usize, usize)> = HashMap::new();
        let mut seen: HashMap<&str, (usize, usize)> = HashMap::new();
        let mut place = 0;
        let mut round = usize::MAX;
        let mut removed: HashMap<usize, usize> = HashMap::new();
        for written in &self.writes {
            let most = removed.entry(written.round).or_default();
            *most = (*most).max(written.removed);
        }
        for written in &self.writes {
            if written.round != round {
                round = written.round;
                place = 0;
            }
            place += 1;
            if let Some((before, at)) = seen.insert(&written.id, (round, place)) {
                assert!(before < round, "{} twice in round {round}", written.id);
                if all_on_disk {
                    // Removals are confirmed in the order of the writes.
                    assert!(at > removed[&before], "{} came back", written.id);
                }
                continue;
            }
            let key = written.message.1;
            let before = last.insert(key, written.message);
            assert!(
                before < Some(written.message),
                "{:?} after {before:?}",
                written.message
            );
        }
        let epochs: HashSet<_> = self.writes.iter().map(|written| &written.epoch).collect();
        assert!(epochs.len() > 1);
    }

    /// In each round and for each key: what is lost is at the end.
    fn check_that_a_suffix_is_lost(&self, most: Option<usize>) {
        let delivered = self.delivered();
        let mut lost: HashMap<usize, usize> = HashMap::new();
        let mut ended = HashSet::new();
        for acked in &self.acked {
            let (round, key, _) = *acked;
            if delivered.contains(acked) {
                assert!(
                    !ended.contains(&(round, key)),
                    "{acked:?} is not lost, one before it is"
                );
            } else {
                ended.insert((round, key));
                *lost.entry(round).or_default() += 1;
            }
        }
        if let Some(most) = most {
            assert!(lost.values().all(|lost| *lost <= most), "{lost:?}");
        }
    }
}

/// The fields of each line that is whole.
fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let whole = text.lines().filter_map(|line| line.strip_suffix(" ."));
    whole.map(|line| line.split(' ').collect())
}

fn start(dir: &Path, policy: &str, round: usize, is_last: bool) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture"])
        .env("KEYLANE_SPOOL_CHILD", dir)
        .env("KEYLANE_SPOOL_POLICY", policy)
        .env("KEYLANE_SPOOL_ROUND", round.to_string())
        .env("KEYLANE_SPOOL_LAST", is_last.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// What is killed. Nothing, unless it is started by the tests above.
#[test]
fn child() {
    let Some(dir) = std::env::var_os("KEYLANE_SPOOL_CHILD") else {
        return;
    };
    let dir = PathBuf::from(dir);
    let variable = |name: &str| std::env::var(name).unwrap();
    let round: usize = variable("KEYLANE_SPOOL_ROUND").parse().unwrap();
    let is_last = variable("KEYLANE_SPOOL_LAST") == "true";
    let persist = match &*variable("KEYLANE_SPOOL_POLICY") {
        "each" => Persist::Each,
        "messages" => Persist::EveryMessages(MESSAGES),
        "time" => Persist::Every(Duration::from_millis(10)),
        _ => Persist::None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let spool = Arc::new(OnceLock::new());
        let sink = LogSink {
            file: append(&dir.join("sink.log")),
            round,
            spool: Arc::clone(&spool),
            random: Mutex::new(round as u64 ^ seed()),
        };
        let opened = Spool::builder(sink)
            .dir(dir.join("spool"))
            .persist(persist)
            .memory(64 * 1024)
            .batch(50, 1 << 20, Duration::from_millis(1))
            .backoff(Duration::from_millis(1), Duration::from_millis(5))
            .open()
            .await
            .unwrap();
        spool.set(opened.clone()).unwrap();
        if is_last {
            let report = opened.close().await;
            assert_eq!(report.left_on_disk, 0);
            return;
        }
        let acked = Arc::new(append(&dir.join("acked.log")));
        let producers = (0..KEYS * 4).map(|producer| {
            let (spool, acked) = (opened.clone(), Arc::clone(&acked));
            tokio::spawn(async move {
                for n in 0.. {
                    let message = format!("{round} {producer} {n}");
                    spool
                        .push(format!("key-{producer}"), message.clone())
                        .await
                        .unwrap();
                    (&*acked)
                        .write_all(format!("{message} .\n").as_bytes())
                        .unwrap();
                    tokio::task::yield_now().await;
                }
            })
        });
        futures::future::join_all(producers).await;
    });
}

fn append(path: &Path) -> File {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap()
}

/// Fails now and then, writes in part now and then, and never lies about it.
struct LogSink {
    file: File,
    round: usize,
    /// For the number of confirmed removals.
    spool: Arc<OnceLock<Spool>>,
    random: Mutex<u64>,
}

#[async_trait]
impl SpoolSink for LogSink {
    async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError> {
        let dice = {
            let mut random = self.random.lock().unwrap();
            *random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695);
            *random >> 33
        };
        // At the wall's pace, so that there is a backlog.
        tokio::time::sleep(Duration::from_micros(dice % 2_000)).await;
        let count = match dice % 5 {
            0 => 0,
            1 => batch.len() / 2,
            _ => batch.len(),
        };
        let removed = self.spool.get().map_or(0, |spool| spool.stats().removed);
        let lines: String = batch[..count]
            .iter()
            .map(|message| {
                let payload = String::from_utf8_lossy(&message.payload);
                format!("{} {} {payload} {removed} .\n", self.round, message.id)
            })
            .collect();
        (&self.file).write_all(lines.as_bytes())?;
        match count == batch.len() {
            true => Ok(()),
            false => Err(SinkError::failed("planned").with_first_written(count)),
        }
    }
}
