//! Gaps: reported, waited for, given up, filled, decided on.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use keylane::OnExhausted;
use keylane::discipline::OnGap;
use keylane::error::{Failure, LaneError, ReceiptError};
use keylane::watching::LaneState;
use keylane_testkit::scenario::{MS, paused, quiet};
use keylane_testkit::{Act, Evidence, Gate, History, LetterBox, Script};
use tokio::time::Instant;

use crate::sequence::contiguous;
use crate::support::{Client, Job, jobs, scripted};

const PATIENCE: Duration = Duration::from_secs(10);

/// An client whose key 1 starts with version 1, whose dead letters are accepted.
fn client(then: OnGap, early: usize, gate: Option<&Gate>, history: &History) -> Client {
    let mut act = Act::ok();
    if let Some(gate) = gate {
        act = act.waits(gate);
    }
    let letters = LetterBox::new(history);
    let jobs = jobs()
        .on_exhausted(OnExhausted::dead_letter(letters.sink(|job: &Job| job.id)))
        .sequence(
            contiguous()
                .from(1)
                .early(early)
                .gap_timeout(PATIENCE, then),
        )
        .spawn(scripted(Script::new(history).key(1, act)))
        .unwrap();
    Client::new(history, jobs)
}

fn judged() -> Evidence {
    Evidence::new().sequencing().overflow_letters()
}

/// The missing ranges that were reported, and when.
#[derive(Clone, Default)]
pub(crate) struct Gaps(Arc<Mutex<Vec<(u64, u64, Instant)>>>);

thread_local! {
    /// Who listens on this thread.
    static LISTENS: RefCell<Option<Gaps>> = const { RefCell::new(None) };
}

/// Ends the listening.
pub(crate) struct Listening;

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENS.with(|listens| listens.replace(None));
    }
}

/// The one subscriber of the process: others that come and go in other threads would make `tracing`
/// forget now and then that there is a listener.
struct Ears;

impl Gaps {
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .map(|(first, last, _)| (*first, *last))
            .collect()
    }

    fn at(&self) -> Vec<Instant> {
        self.0.lock().unwrap().iter().map(|(.., at)| *at).collect()
    }

    /// As evidence for a history with the key 1.
    fn evidence(&self) -> Evidence {
        let gaps = self.0.lock().unwrap();
        let reports = gaps.iter().map(|(first, last, at)| (1, *first, *last, *at));
        judged().gaps(PATIENCE, reports)
    }

    /// Listens on this thread while the guard lives.
    pub(crate) fn listen() -> (Self, Listening) {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::subscriber::set_global_default(Ears).unwrap());
        let gaps = Self::default();
        LISTENS.with(|listens| listens.replace(Some(gaps.clone())));
        (gaps, Listening)
    }
}

impl tracing::Subscriber for Ears {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "keylane" && metadata.is_event()
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        #[derive(Default)]
        struct Fields(Option<u64>, Option<u64>);
        impl tracing::field::Visit for Fields {
            fn record_u64(&mut self, field: &tracing::field::Field, value: u64) {
                match field.name() {
                    "first" => self.0 = Some(value),
                    "last" => self.1 = Some(value),
                    _ => {}
                }
            }
            fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        if let Fields(Some(first), Some(last)) = fields {
            LISTENS.with_borrow(|listens| {
                if let Some(gaps) = listens {
                    gaps.0.lock().unwrap().push((first, last, Instant::now()));
                }
            });
        }
    }
}

#[test]
fn a_gap_is_skipped_after_its_time() {
    paused().block_on(async {
        let (gaps, _guard) = Gaps::listen();
        let history = History::new();
        let client = client(OnGap::Skip, 100, None, &history);
        let began = Instant::now();
        client.submit_versions(1, [4, 5, 8]).await;
        tokio::time::sleep(PATIENCE - MS).await;
        assert!(client.history.handled().is_empty());
        assert_eq!(gaps.ranges(), []);
        tokio::time::sleep(2 * MS).await;
        assert_eq!(client.history.handled(), [1, 2]);
        // The second gap is waited for by itself.
        tokio::time::sleep(PATIENCE + MS).await;
        assert_eq!(client.history.handled(), [1, 2, 3]);
        assert_eq!(gaps.ranges(), [(1, 3), (6, 7)]);
        for (at, gap) in gaps.at().into_iter().zip(1_u32..) {
            let limit = gap * PATIENCE + 3 * MS;
            assert!(at - began <= limit, "{:?}", at - began);
        }
        // What was given up is a duplicate when it comes.
        client.submit_versions(1, [1, 7, 9]).await;
        let (report, _) = client.finish(gaps.evidence()).await;
        assert_eq!((report.done, report.duplicates), (4, 2));
    });
}

#[test]
fn what_waits_behind_a_gap_is_dead_lettered_after_its_time() {
    paused().block_on(async {
        let (gaps, _guard) = Gaps::listen();
        let history = History::new();
        let client = client(OnGap::DeadLetter, 100, None, &history);
        client.submit_versions(1, [3, 4, 7]).await;
        tokio::time::sleep(PATIENCE + MS).await;
        assert_eq!(gaps.ranges(), [(1, 2)]);
        for (id, answer) in client.answered() {
            assert_eq!(
                answer,
                Err(ReceiptError::DeadLettered(Failure::Gap)),
                "{id}"
            );
        }
        assert_eq!(client.jobs.inspect(&1), None);
        // The key waits on, for the same version.
        client.submit_versions(1, [3, 2]).await;
        quiet().await;
        assert!(client.history.handled().is_empty());
        client.submit_version(1, 1).await;
        quiet().await;
        assert_eq!(client.history.handled(), [6, 5, 4]);
        let report = client.jobs.drain().await;
        assert_eq!((report.done, report.dead_lettered), (3, 3));
    });
}

#[test]
fn a_halted_gap_is_resumed_skipped_or_filled() {
    for way in ["resume", "skip", "fill"] {
        paused().block_on(async {
            let (gaps, _guard) = Gaps::listen();
            let history = History::new();
            let client = client(OnGap::Halt, 100, None, &history);
            let lane = client.jobs.lane(&1);
            client.submit_versions(1, [3, 4]).await;
            tokio::time::sleep(PATIENCE + MS).await;
            assert_eq!(gaps.ranges(), [(1, 2)]);
            assert_eq!(client.jobs.stats().halted, 1);
            tokio::time::sleep(1_000 * PATIENCE).await;
            assert!(client.history.handled().is_empty());
            match way {
                "resume" => {
                    lane.resume().unwrap();
                    assert_eq!(client.jobs.stats().halted, 0);
                    assert_eq!(lane.resume(), Err(LaneError::NotHalted(())));
                    tokio::time::sleep(PATIENCE + MS).await;
                    assert_eq!(client.jobs.stats().halted, 1);
                    assert_eq!(gaps.ranges(), [(1, 2), (1, 2)]);
                    lane.skip().unwrap();
                }
                "skip" => lane.skip().unwrap(),
                _ => client.submit_versions(1, [2, 1]).await,
            }
            quiet().await;
            assert_eq!(client.jobs.stats().halted, 0);
            let handled: &[u64] = if way == "fill" {
                &[4, 3, 1, 2]
            } else {
                &[1, 2]
            };
            assert_eq!(client.history.handled(), handled, "{way}");
            assert_eq!(lane.inspect(), None);
            let (report, _) = client.finish(gaps.evidence()).await;
            assert_eq!(report.done, handled.len() as u64);
        });
    }
}

/// One message above the bound, and what happens at the time-out happens at once.
#[test]
fn the_bound_of_early_messages_has_the_same_policies() {
    for then in [OnGap::Skip, OnGap::DeadLetter, OnGap::Halt] {
        paused().block_on(async {
            let (gaps, _guard) = Gaps::listen();
            let history = History::new();
            let client = client(then, 3, None, &history);
            client.submit_versions(1, [5, 9, 6]).await;
            quiet().await;
            assert_eq!(gaps.ranges(), []);
            assert!(client.history.handled().is_empty());
            client.submit_version(1, 8).await;
            quiet().await;
            assert_eq!(gaps.ranges(), [(1, 4)]);
            match then {
                OnGap::Skip => {
                    assert_eq!(client.history.handled(), [1, 3]);
                    client.submit_version(1, 7).await;
                    quiet().await;
                    assert_eq!(client.history.handled(), [1, 3, 5, 4, 2]);
                }
                OnGap::DeadLetter => {
                    assert_eq!(client.jobs.stats().dead_lettered, 4);
                    assert_eq!(client.jobs.inspect(&1), None);
                }
                _ => {
                    assert_eq!(client.jobs.stats().halted, 1);
                    client.jobs.lane(&1).skip().unwrap();
                    quiet().await;
                    // The next gap has its own time.
                    assert_eq!(client.history.handled(), [1, 3]);
                    tokio::time::sleep(PATIENCE + MS).await;
                    assert_eq!(client.jobs.stats().halted, 1);
                    assert_eq!(gaps.ranges(), [(1, 4), (7, 7)]);
                    client.jobs.lane(&1).skip().unwrap();
                    quiet().await;
                    assert_eq!(client.history.handled(), [1, 3, 4, 2]);
                }
            }
            client.finish(gaps.evidence()).await;
        });
    }
}

/// The time of a gap passes while the head is with its handler.
#[test]
fn a_gap_times_out_while_the_head_runs() {
    for then in [OnGap::Skip, OnGap::DeadLetter, OnGap::Halt] {
        paused().block_on(async {
            let (gaps, _guard) = Gaps::listen();
            let history = History::new();
            let gate = Gate::new();
            let client = client(then, 100, Some(&gate), &history);
            client.submit_versions(1, [1, 4]).await;
            tokio::time::sleep(PATIENCE + MS).await;
            assert_eq!(gaps.ranges(), [(2, 3)]);
            assert_eq!(client.history.attempts(), [(1, 1)]);
            assert_eq!(client.jobs.stats().halted, 0, "the head goes on");
            gate.open();
            quiet().await;
            match then {
                OnGap::Skip => assert_eq!(client.history.handled(), [1, 2]),
                OnGap::DeadLetter => assert_eq!(client.jobs.stats().dead_lettered, 1),
                _ => {
                    assert_eq!(client.jobs.stats().halted, 1);
                    client.submit_versions(1, [2, 3]).await;
                    quiet().await;
                    assert_eq!(client.history.handled(), [1, 3, 4, 2]);
                }
            }
            client.finish(gaps.evidence()).await;
        });
    }
}

#[test]
fn a_gap_that_is_filled_just_in_time_is_not_reported() {
    for then in [OnGap::Skip, OnGap::DeadLetter, OnGap::Halt] {
        paused().block_on(async {
            let (gaps, _guard) = Gaps::listen();
            let history = History::new();
            let client = client(then, 100, None, &history);
            client.submit_versions(1, [2, 3]).await;
            tokio::time::sleep(PATIENCE - 2 * MS).await;
            client.submit_version(1, 1).await;
            quiet().await;
            assert_eq!(client.history.handled(), [3, 1, 2]);
            // A gap that opens now does not inherit the old one's time.
            client.submit_version(1, 5).await;
            tokio::time::sleep(PATIENCE - 2 * MS).await;
            assert_eq!(gaps.ranges(), []);
            client.submit_version(1, 4).await;
            quiet().await;
            tokio::time::sleep(2 * PATIENCE).await;
            assert_eq!(gaps.ranges(), []);
            let (report, _) = client.finish(gaps.evidence()).await;
            assert_eq!(report.done, 5);
        });
    }
}

/// A gap behind a gap, with each policy, and an operator who skips both.
#[test]
fn two_gaps_in_a_row() {
    for then in [OnGap::Skip, OnGap::Halt] {
        paused().block_on(async {
            let (gaps, _guard) = Gaps::listen();
            let history = History::new();
            let client = client(then, 100, None, &history);
            let lane = client.jobs.lane(&1);
            client.submit_versions(1, [3, 6]).await;
            quiet().await;
            lane.skip().unwrap();
            quiet().await;
            assert_eq!(client.history.handled(), [1]);
            let view = lane.inspect().unwrap();
            assert!(
                matches!(
                    view.state,
                    LaneState::Gap {
                        first: 4,
                        last: 5,
                        ..
                    }
                ),
                "{view:?}"
            );
            tokio::time::sleep(2 * PATIENCE).await;
            assert_eq!(
                gaps.ranges(),
                [(4, 5)],
                "the second gap has a time-out of its own"
            );
            if then == OnGap::Halt {
                lane.skip().unwrap();
                quiet().await;
            }
            assert_eq!(client.history.handled(), [1, 2]);
            client.finish(gaps.evidence()).await;
        });
    }
}

/// The time of a gap goes on while the key is paused; what it brings waits for `resume`.
#[test]
fn a_gap_in_a_paused_key() {
    for then in [OnGap::Skip, OnGap::DeadLetter, OnGap::Halt] {
        paused().block_on(async {
            let history = History::new();
            let client = client(then, 100, None, &history);
            let lane = client.jobs.lane(&1);
            client.submit_version(1, 3).await;
            quiet().await;
            lane.pause();
            tokio::time::sleep(PATIENCE + MS).await;
            assert_eq!(lane.inspect().unwrap().state, LaneState::Paused);
            assert_eq!(
                (client.history.handled().len(), client.jobs.stats().halted),
                (0, 0)
            );
            lane.resume().unwrap();
            quiet().await;
            match then {
                OnGap::Skip => assert_eq!(client.history.handled(), [1]),
                OnGap::DeadLetter => assert_eq!(client.jobs.stats().dead_lettered, 1),
                _ => {
                    assert_eq!(client.jobs.stats().halted, 1);
                    lane.pause();
                    assert_eq!(client.jobs.stats().halted, 0);
                    client.submit_versions(1, [1, 2]).await;
                    quiet().await;
                    assert!(client.history.handled().is_empty());
                    lane.resume().unwrap();
                    quiet().await;
                    assert_eq!(client.history.handled(), [2, 3, 1]);
                }
            }
            assert_eq!(lane.inspect(), None);
            client.finish(judged()).await;
        });
    }
}

/// A drain waits for a gap as long as its time-out, and then does as told.
#[test]
fn a_drain_with_an_open_gap() {
    for then in [OnGap::Skip, OnGap::DeadLetter, OnGap::Halt] {
        paused().block_on(async {
            let history = History::new();
            let client = client(then, 100, None, &history);
            client.submit_versions(1, [3, 4]).await;
            quiet().await;
            let (report, outcomes) = client.finish(judged()).await;
            let figures = (report.done, report.dead_lettered, report.handed_back);
            let word = match then {
                OnGap::Skip => {
                    assert_eq!(figures, (2, 0, 0));
                    "done"
                }
                OnGap::DeadLetter => {
                    assert_eq!(figures, (0, 2, 0));
                    "dead-lettered"
                }
                _ => {
                    assert_eq!(figures, (0, 0, 2));
                    "handed back"
                }
            };
            assert_eq!(outcomes.words(), [word, word]);
        });
    }
}

/// A halted gap is handed back by a drain at once, in the order of acceptance.
#[test]
fn a_drain_with_a_halted_gap() {
    paused().block_on(async {
        let history = History::new();
        let client = client(OnGap::Halt, 100, None, &history);
        client.submit_versions(1, [4, 3]).await;
        tokio::time::sleep(PATIENCE + MS).await;
        let began = Instant::now();
        let (report, outcomes) = client.finish(judged()).await;
        assert!(began.elapsed() < MS);
        assert_eq!(outcomes.words(), ["handed back", "handed back"]);
        assert_eq!(report.handed_back, 2);
    });
}

/// Other keys go on beside a key that waits for a version, also with one handler at a time.
#[test]
fn a_gap_holds_no_other_key_up() {
    paused().block_on(async {
        let history = History::new();
        let jobs = jobs().concurrency(1).sequence(contiguous().from(1));
        let client = Client::start(&history, Script::new(&history), jobs);
        for key in 1..=50 {
            client.submit_version(key, 2).await;
        }
        client.submit_versions(100, 1..=20).await;
        quiet().await;
        assert_eq!(client.history.handled().len(), 20);
        for key in 1..=50 {
            client.submit_version(key, 1).await;
        }
        let (report, _) = client.finish(judged()).await;
        assert_eq!(report.done, 120);
    });
}
