//! What a key remembers, in a store: loads that are late, fail or panic, records that fail, crashes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use keylane::discipline::OnGap;
use keylane::error::{BoxError, Failure, ReceiptError};
use keylane::source::VersionStore;
use keylane::watching::LaneState;
use keylane::{Retry, async_trait};
use keylane_testkit::scenario::{MS, Random, SECOND, cases, paused, quiet, within};
use keylane_testkit::{Act, Evidence, Gate, History, Id, Script};

use crate::sequence::{contiguous, monotonic};
use crate::support::{Client, Job, Jobs, jobs, scripted, word};

/// A table of versions that does as it is told.
#[derive(Default)]
struct Table {
    rows: Mutex<BTreeMap<u64, u64>>,
    /// Every record, in order.
    records: Mutex<Vec<(u64, u64)>>,
    loads: Mutex<Vec<u64>>,
    load_gate: Option<Gate>,
    record_gate: Option<Gate>,
    /// Loads of these keys fail so often first.
    bad_loads: Mutex<BTreeMap<u64, usize>>,
    bad_records: AtomicUsize,
    panics: AtomicBool,
    /// Panics when the future of a load is dropped.
    panics_in_drop: bool,
}

impl Table {
    fn with(rows: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self {
            rows: Mutex::new(rows.into_iter().collect()),
            ..Self::default()
        }
    }
}

struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 && !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("in drop"));
        }
    }
}

fn take_one(left: &AtomicUsize) -> bool {
    let less = |left: usize| left.checked_sub(1);
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
        .is_ok()
}

#[async_trait]
impl VersionStore<u64> for Table {
    async fn last(&self, key: &u64) -> Result<Option<u64>, BoxError> {
        let _bomb = Bomb(self.panics_in_drop);
        self.loads.lock().unwrap().push(*key);
        if let Some(gate) = &self.load_gate {
            gate.pass().await;
        }
        if self.panics.load(Ordering::SeqCst) {
            std::panic::resume_unwind(Box::new("the store panics".to_owned()));
        }
        if let Some(left) = self.bad_loads.lock().unwrap().get_mut(key)
            && *left > 0
        {
            *left -= 1;
            return Err("no connection".into());
        }
        Ok(self.rows.lock().unwrap().get(key).copied())
    }

    async fn record(&self, key: &u64, version: u64) -> Result<(), BoxError> {
        if let Some(gate) = &self.record_gate {
            gate.pass().await;
        }
        if take_one(&self.bad_records) {
            return Err("disk full".into());
        }
        self.records.lock().unwrap().push((*key, version));
        self.rows.lock().unwrap().insert(*key, version);
        Ok(())
    }
}

fn dispatcher(table: &Arc<Table>, script: Script) -> Jobs {
    let sequence = contiguous()
        .gap_timeout(10 * SECOND, OnGap::Halt)
        .store(Arc::clone(table));
    jobs()
        .retry(Retry::fixed(SECOND).max_attempts(3))
        .sequence(sequence)
        .spawn(scripted(script))
        .unwrap()
}

fn client(table: &Arc<Table>, history: &History) -> Client {
    Client::new(history, dispatcher(table, Script::new(history)))
}

#[test]
fn a_key_goes_on_behind_what_the_store_has() {
    paused().block_on(async {
        let history = History::new();
        let table = Arc::new(Table::with([(1, 7), (3, u64::MAX)]));
        let client = client(&table, &history);
        client.submit_versions(1, [9, 7, 8]).await;
        // Unknown to the store: what is seen first is first.
        client.submit_versions(2, [3, 4]).await;
        // Nothing comes after the last of all.
        client.submit_versions(3, [u64::MAX, 1]).await;
        quiet().await;
        assert_eq!(client.history.handled().len(), 4);
        let rows = table.rows.lock().unwrap().clone();
        assert_eq!(rows, [(1, 9), (2, 4), (3, u64::MAX)].into());
        // Each key is asked for once while it is remembered.
        client.submit_version(1, 10).await;
        quiet().await;
        let mut loads = table.loads.lock().unwrap().clone();
        loads.sort_unstable();
        assert_eq!(loads, [1, 2, 3]);
        let (report, _) = client.finish(Evidence::new().sequencing()).await;
        assert_eq!((report.done, report.duplicates), (5, 3));
    });
}

#[test]
fn a_late_answer_holds_up_only_its_key() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let table = Arc::new(Table {
            load_gate: Some(gate.clone()),
            ..Table::with([(1, 4)])
        });
        let client = client(&table, &history);
        client.submit_versions(1, [6, 6, 5, 3]).await;
        tokio::time::sleep(1_000 * SECOND).await;
        let view = client.jobs.inspect(&1).unwrap();
        assert_eq!((view.state, view.depth), (LaneState::Loading, 3));
        let stats = client.jobs.stats();
        assert_eq!((stats.stalled, stats.duplicates, stats.done), (3, 1, 0));
        gate.release(1);
        quiet().await;
        assert_eq!(client.history.handled(), [3, 1]);
        assert_eq!(client.jobs.inspect(&1), None);
        let (_, outcomes) = client.finish(Evidence::new().sequencing()).await;
        assert_eq!(outcomes.words(), ["done", "duplicate", "done", "duplicate"]);
    });
}

#[test]
fn a_load_that_fails_is_tried_again() {
    for panics in [false, true] {
        paused().block_on(async {
            let history = History::new();
            let table = Arc::new(Table::with([(1, 4)]));
            table.bad_loads.lock().unwrap().insert(1, 2);
            table.panics.store(panics, Ordering::SeqCst);
            let client = client(&table, &history);
            client.submit_version(1, 5).await;
            quiet().await;
            table.panics.store(false, Ordering::SeqCst);
            assert_eq!(client.jobs.inspect(&1).unwrap().state, LaneState::Loading);
            tokio::time::sleep(SECOND).await;
            assert_eq!(client.history.handled(), [1]);
            let asked = table.loads.lock().unwrap().len();
            assert_eq!(asked, if panics { 4 } else { 3 });
            client.finish(Evidence::new().sequencing()).await;
        });
    }
}

/// A store that fails for many keys fails for those.
#[test]
fn keys_whose_loads_fail_hold_up_only_themselves() {
    paused().block_on(async {
        let history = History::new();
        let table = Arc::new(Table::default());
        table
            .bad_loads
            .lock()
            .unwrap()
            .extend((0..200).map(|key| (key, 1_000)));
        let client = client(&table, &history);
        for key in 0..200 {
            client.submit_version(key, 1).await;
        }
        tokio::time::sleep(100 * SECOND).await;
        client.submit_version(1_000, 1).await;
        tokio::time::sleep(SECOND).await;
        assert_eq!(client.history.handled(), [201]);
        table.bad_loads.lock().unwrap().clear();
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(client.history.handled().len(), 201);
        client.finish(Evidence::new().sequencing()).await;
    });
}

/// A panic in the drop of the store's future is the store's affair.
#[test]
fn a_store_whose_futures_panic_in_drop() {
    paused().block_on(async {
        let history = History::new();
        let table = Arc::new(Table {
            panics_in_drop: true,
            ..Table::default()
        });
        let client = client(&table, &history);
        for key in 1..=3 {
            client.submit_version(key, 1).await;
            tokio::time::sleep(SECOND).await;
            table.panics.store(true, Ordering::SeqCst);
            tokio::time::sleep(MS).await;
            table.panics.store(false, Ordering::SeqCst);
        }
        // The end is near in any case: what counts is that there is one.
        let report = within(async { client.jobs.close().await }).await;
        assert_eq!(report.accepted, 3);
    });
}

/// What was handled and not recorded has failed, and is handled again.
#[test]
fn a_record_that_fails_fails_the_attempt() {
    paused().block_on(async {
        let history = History::new();
        let table = Arc::new(Table::default());
        table.bad_records.store(2, Ordering::SeqCst);
        let client = client(&table, &history);
        client.submit_versions(1, [1, 2]).await;
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(client.history.attempts(), [(1, 1), (1, 2), (1, 3), (2, 1)]);
        assert_eq!(*table.records.lock().unwrap(), [(1, 1), (1, 2)]);
        assert_eq!(client.jobs.stats().failures, 2);
        // And the last attempt too.
        table.bad_records.store(3, Ordering::SeqCst);
        client.submit_version(1, 3).await;
        tokio::time::sleep(5 * SECOND).await;
        let failure = Failure::NotRecorded("disk full".to_owned());
        assert_eq!(client.answered()[&3], Err(ReceiptError::Failed(failure)));
        client.jobs.drain().await;
    });
}

/// A new process on the same store repeats what was not recorded, and skips nothing.
#[test]
fn a_crash_repeats_and_never_skips() {
    for seed in 0..cases(20).into() {
        paused().block_on(async {
            let mut dice = Random::new(seed);
            let table = Arc::new(Table::default());
            let seen = Arc::new(Mutex::new(Vec::new()));
            let mut lives = 0;
            while table.rows.lock().unwrap().get(&1) != Some(&30) {
                lives += 1;
                let seen = Arc::clone(&seen);
                let sequence = contiguous()
                    .from(1)
                    .gap_timeout(1_000 * SECOND, OnGap::Halt)
                    .store(Arc::clone(&table));
                let jobs = jobs()
                    .sequence(sequence)
                    .spawn(move |job: Job| {
                        let seen = Arc::clone(&seen);
                        async move {
                            seen.lock().unwrap().push(job.version);
                            tokio::time::sleep(MS).await;
                            Ok(job.id)
                        }
                    })
                    .unwrap();
                // The source brings everything again, in another order.
                let mut all: Vec<u64> = (1..=30).chain(1..=30).collect();
                while !all.is_empty() {
                    let version = all.swap_remove(dice.below(all.len() as u64) as usize);
                    let job = Job {
                        key: 1,
                        id: version,
                        version,
                        parts: Vec::new(),
                    };
                    jobs.send(job).await.unwrap();
                }
                let life = dice.below(30) as u32;
                tokio::time::sleep(MS * life).await;
                let report = jobs.abort().await;
                assert_eq!(
                    report.done + report.duplicates + report.handed_back,
                    report.accepted
                );
                assert!(lives < 1_000);
            }
            let seen = seen.lock().unwrap();
            let mut recorded = 0;
            for version in seen.iter() {
                // Repeated perhaps, never skipped.
                assert!(*version <= recorded + 1, "{seen:?}");
                recorded = recorded.max(*version);
            }
            let records = table.records.lock().unwrap();
            assert!(records.windows(2).all(|pair| pair[0].1 < pair[1].1));
        });
    }
}

/// What is recorded is the version that was sent, whatever an operator put in its place.
#[test]
fn a_replaced_message_is_recorded_under_its_version() {
    paused().block_on(async {
        let history = History::new();
        let table = Arc::new(Table::default());
        let script = Script::new(&history).message(2, Act::error());
        let sequence = contiguous().from(1).store(Arc::clone(&table));
        let jobs = jobs()
            .on_exhausted(keylane::OnExhausted::Halt)
            .sequence(sequence);
        let client = Client::start(&history, script, jobs);
        client.submit_versions(1, [1, 2, 3]).await;
        quiet().await;
        let other = Job {
            key: 1,
            id: 100,
            version: 900,
            parts: Vec::new(),
        };
        client.jobs.lane(&1).replace(other).unwrap();
        quiet().await;
        assert_eq!(*table.records.lock().unwrap(), [(1, 1), (1, 2), (1, 3)]);
        client.jobs.drain().await;
    });
}

/// Forgotten in memory, and found in the store.
#[test]
fn a_key_that_memory_forgot_is_asked_of_the_store() {
    paused().block_on(async {
        let history = History::new();
        let table = Arc::new(Table::default());
        let sequence = contiguous()
            .from(1)
            .remember(2, 1_000 * SECOND)
            .store(Arc::clone(&table));
        let jobs = jobs().sequence(sequence);
        let client = Client::start(&history, Script::new(&history), jobs);
        for round in 1..=3 {
            for key in 1..=10 {
                client.submit_version(key, round).await;
                quiet().await;
            }
        }
        assert_eq!(client.history.handled().len(), 30);
        assert!(table.loads.lock().unwrap().len() >= 28);
        client.finish(Evidence::new().sequencing()).await;
    });
}

/// Paused, purged and resumed while the store is asked: the key is not forgotten on the way.
#[test]
fn a_key_that_is_purged_while_the_store_is_asked() {
    for (first_pause, resumes_first) in [(true, false), (true, true), (false, false)] {
        paused().block_on(async {
            let history = History::new();
            let gate = Gate::new();
            let table = Arc::new(Table {
                load_gate: Some(gate.clone()),
                ..Table::default()
            });
            let client = client(&table, &history);
            let lane = client.jobs.lane(&1);
            client.submit_version(1, 5).await;
            quiet().await;
            if first_pause {
                lane.pause();
            }
            assert_eq!(lane.purge(), 1);
            if resumes_first {
                lane.resume().unwrap();
                quiet().await;
            }
            gate.open();
            quiet().await;
            client.submit_version(1, 5).await;
            quiet().await;
            if first_pause && !resumes_first {
                assert!(client.history.handled().is_empty());
                lane.resume().unwrap();
            }
            tokio::time::sleep(SECOND).await;
            assert_eq!(client.history.handled(), [2], "{:?}", lane.inspect());
            assert_eq!(lane.inspect(), None);
            let (_, outcomes) = client.finish(Evidence::new().sequencing()).await;
            assert_eq!(outcomes.words(), ["purged", "done"]);
        });
    }
}

/// The end does not wait for a store that does not answer, where it does not wait for anything.
#[test]
fn the_end_while_the_store_is_asked() {
    for aborts in [false, true] {
        paused().block_on(async {
            let history = History::new();
            let table = Arc::new(Table {
                load_gate: Some(Gate::new()),
                ..Table::default()
            });
            let client = client(&table, &history);
            client.submit_versions(1, [1, 2]).await;
            quiet().await;
            let ending = match aborts {
                true => client.jobs.abort(),
                false => client.jobs.close(),
            };
            let report = within(async { ending.await }).await;
            let (report, _) = client.judge(report, Evidence::new().sequencing());
            assert_eq!(report.handed_back, 2);
        });
    }
}

/// A drain waits for the store.
#[test]
fn a_drain_waits_for_the_store() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let table = Arc::new(Table {
            load_gate: Some(gate.clone()),
            ..Table::with([(1, 1)])
        });
        let client = client(&table, &history);
        client.submit_versions(1, [1, 2]).await;
        quiet().await;
        let opens = tokio::spawn(async move {
            tokio::time::sleep(SECOND).await;
            gate.open();
        });
        let (report, _) = client.finish(Evidence::new().sequencing()).await;
        opens.await.unwrap();
        assert_eq!((report.done, report.duplicates), (1, 1));
    });
}

/// Monotonic keys ask too, and what came meanwhile goes in order.
#[test]
fn a_monotonic_key_asks_the_store() {
    paused().block_on(async {
        let history = History::new();
        let table = Arc::new(Table::with([(1, 10)]));
        let jobs = jobs().sequence(monotonic().store(Arc::clone(&table)));
        let client = Client::start(&history, Script::new(&history), jobs);
        client.submit_versions(1, [30, 20, 10, 40]).await;
        quiet().await;
        assert_eq!(client.history.handled(), [2, 1, 4]);
        assert_eq!(*table.records.lock().unwrap(), [(1, 20), (1, 30), (1, 40)]);
        client.finish(Evidence::new().sequencing()).await;
    });
}

/// An attempt that times out in the middle of a record is tried again.
#[test]
fn a_record_that_hangs_is_timed_out_with_its_attempt() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let table = Arc::new(Table {
            record_gate: Some(gate.clone()),
            ..Table::default()
        });
        let jobs = jobs()
            .attempt_timeout(SECOND)
            .retry(Retry::fixed(SECOND).max_attempts(3))
            .sequence(contiguous().from(1).store(Arc::clone(&table)));
        let client = Client::start(&history, Script::new(&history), jobs);
        client.submit_version(1, 1).await;
        tokio::time::sleep(SECOND + 10 * MS).await;
        assert_eq!(client.jobs.stats().timeouts, 1);
        gate.open();
        tokio::time::sleep(2 * SECOND).await;
        let answers = client.answered();
        let words: Vec<(Id, _)> = answers
            .iter()
            .map(|(id, is)| (*id, word(*id, is)))
            .collect();
        assert_eq!(words, [(1, "done")]);
        assert_eq!(*table.records.lock().unwrap(), [(1, 1)]);
        client.jobs.drain().await;
    });
}

/// A version that was given up on does not come again, so the next process must not wait for it.
#[test]
fn what_was_given_up_on_is_recorded_too() {
    paused().block_on(async {
        let table = Arc::new(Table::default());
        let history = History::new();
        let script = Script::new(&history).attempt(7, 2, Act::error());
        let sequence = contiguous().from(1).store(Arc::clone(&table));
        let given_up = jobs().sequence(sequence).spawn(scripted(script)).unwrap();
        let client = Client::new(&history, given_up);
        table.bad_records.store(0, Ordering::SeqCst);
        client.submit_versions(7, [1]).await;
        quiet().await;
        let lane = client.jobs.lane(&7);
        lane.pause();
        client.submit_versions(7, [2, 3]).await;
        quiet().await;
        lane.skip().unwrap();
        lane.skip().unwrap();
        // The store fails at first, and the key waits for it.
        table.bad_records.store(1, Ordering::SeqCst);
        lane.resume().unwrap();
        quiet().await;
        assert_eq!(
            lane.inspect().map(|view| view.state),
            Some(LaneState::Loading)
        );
        client.submit_version(7, 4).await;
        tokio::time::sleep(SECOND).await;
        quiet().await;
        assert_eq!(*table.records.lock().unwrap(), [(7, 1), (7, 3), (7, 4)]);
        let report = client.jobs.drain().await;
        assert_eq!((report.done, report.discarded), (2, 2));
    });
}
