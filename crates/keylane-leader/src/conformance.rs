//! A test suite for implementations of [`ElectionStore`].
//!
//! # Examples
//!
//! ```
//! use std::sync::Arc;
//! use keylane_leader::{MemoryElections, conformance};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let store = Arc::new(MemoryElections::new());
//! conformance::check(store.clone(), conformance::SHORTEST).await;
//! conformance::check_end(store.clone()).await;
//! conformance::check_turns(store).await;
//! # }
//! ```

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylane_leases::store::{Answer, Claim, Wish};
use keylane_leases::{Owner, Token};
use tokio::time::{Instant, sleep, timeout};

use crate::store::{
    CandidateId, Election, ElectionStore, Entry, Recorded, Stage, TermRecord, decode, encode,
};
use crate::{Candidate, Career, Elections, End, Stop, Term};

/// Longer than a case takes. A session of a store must be able to last so long.
const LONG: Duration = Duration::from_secs(60);

/// A time to live that cases wait for, if the store can have one so short.
pub const SHORTEST: Duration = Duration::from_millis(300);

/// How long a change may take to wake the candidate that waits for it.
const WOKEN: Duration = Duration::from_secs(10);

/// Runs every case, each with an election of its own. Candidates that are not entered again are
/// entered for `shortest`.
///
/// Other times to live are 60 seconds.
///
/// # Panics
///
/// Panics if the store breaks a rule. The case is printed before it starts.
pub async fn check(store: Arc<dyn ElectionStore>, shortest: Duration) {
    for (name, case) in CASES {
        println!("case: {name}");
        let scene = Scene {
            key: Bytes::from(format!("{name}/{}", Owner::random())),
            owner: Owner::random(),
            store: Arc::clone(&store),
            shortest,
        };
        case(&scene).await;
    }
}

/// Checks a store that releases the lease of a term in the step that records its end: see
/// [`ElectionStore::record`].
///
/// # Panics
///
/// Panics if the lease is not free then, or if the store has not written what it must.
pub async fn check_end(store: Arc<dyn ElectionStore>) {
    let scene = Scene {
        key: Bytes::from(format!("end/{}", Owner::random())),
        owner: Owner::random(),
        store,
        shortest: SHORTEST,
    };
    let token = scene.grant().await;
    scene.enter("a", 1).await;
    scene.record(token.0, "a", Stage::Began).await;
    let seen = scene.enter("b", 1).await;
    let ended = Some(record(token.0, "a", Stage::Ended));
    // The next one sees both at once: that the lease is free, and that the term has ended.
    let is_first_seen = |seen: &Election| {
        assert_eq!(seen.holder.is_none(), seen.term == ended, "{seen:?}");
        seen.holder.is_none()
    };
    let waits = scene.until(Some("b"), seen, is_first_seen);
    let ends = async {
        sleep(Duration::from_millis(50)).await;
        scene.record(token.0, "a", Stage::Ended).await;
    };
    tokio::join!(waits, ends);
    let next = scene.grant().await;
    assert!(next > token, "{next} after {token}");
    // The answer was lost, and the call comes again.
    scene.record(token.0, "a", Stage::Ended).await;
    let holder = scene.look().await.holder.map(|holder| holder.token);
    assert_eq!(holder, Some(next), "the lease of another term was released");
    scene.release(next).await;
}

/// Checks that two candidates lead one after the other, and never both.
///
/// # Panics
///
/// Panics if a candidate does not run, none leads within a minute, or both lead.
pub async fn check_turns(store: Arc<dyn ElectionStore>) {
    let elections = Elections::open(store);
    let elections = elections.unwrap_or_else(|error| panic!("no elections: {error}"));
    let election = format!("turns/{}", Owner::random());
    let (leads, both) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let [one, other] = ["one", "other"].map(|id| {
        let candidate = Candidate::builder(&elections, &election).id(id);
        let running = candidate.run(Leads {
            leads: Arc::clone(&leads),
            both: Arc::clone(&both),
        });
        running.unwrap_or_else(|error| panic!("{id} is no candidate: {error}"))
    });
    until(|| one.leads() || other.leads()).await;
    let (first, second) = match one.leads() {
        true => (one, other),
        false => (other, one),
    };
    // The second one would lead by now if it could.
    sleep(SHORTEST).await;
    first.close().await;
    until(|| second.leads()).await;
    second.close().await;
    assert!(!both.load(Ordering::SeqCst), "both lead");
}

async fn until(is_so: impl Fn() -> bool) {
    let waits = async {
        while !is_so() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = timeout(LONG, waits).await;
    assert!(waited.is_ok(), "no candidate leads");
}

/// Leads until it is to stop.
struct Leads {
    /// Whether one of them leads.
    leads: Arc<AtomicBool>,
    /// Whether both have led at once.
    both: Arc<AtomicBool>,
}

impl Career for Leads {
    type Error = Infallible;

    async fn inaugurate(&mut self, _: &Term) -> Result<(), Infallible> {
        if self.leads.swap(true, Ordering::SeqCst) {
            self.both.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    async fn execute(&mut self, _: &Term, stop: Stop) -> Result<(), Infallible> {
        stop.requested().await;
        Ok(())
    }

    async fn hand_over(&mut self, _: &Term, _: End) {
        self.leads.store(false, Ordering::SeqCst);
    }
}

struct Scene {
    store: Arc<dyn ElectionStore>,
    key: Bytes,
    owner: Owner,
    shortest: Duration,
}

type Case = for<'a> fn(&'a Scene) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        const CASES: &[(&str, Case)] = &[$((stringify!($name), |scene| Box::pin($name(scene)))),*];
    };
}

cases![
    an_election_is_empty_at_first,
    the_first_candidate_is_next,
    a_lower_rank_is_next,
    entering_again_keeps_the_place,
    a_candidate_that_withdraws_is_gone,
    a_candidate_that_is_silent_is_gone,
    the_lease_is_seen,
    a_term_is_recorded_and_its_leader_is_no_candidate,
    an_older_term_is_refused,
    a_stage_never_goes_back,
    a_record_outlasts_its_lease,
    an_end_is_recorded_twice_and_then_released,
    an_end_releases_no_lease_of_another_term,
    the_chosen_candidate_is_next,
    a_chosen_one_that_is_not_there_is_ignored,
    the_next_one_is_woken_by_a_release,
    the_next_one_is_woken_by_a_leaving_leader,
    the_second_is_woken_when_the_first_withdraws,
    a_watcher_is_woken_by_a_term,
    what_has_changed_before_the_call_wakes_at_once,
    elections_do_not_meet,
    records_of_every_kind_come_back,
];

fn id(name: &str) -> CandidateId {
    CandidateId::new(name).unwrap_or_else(|| panic!("{name} is no id"))
}

impl Scene {
    async fn enter(&self, name: &str, rank: u16) -> Election {
        let entry = Entry { id: id(name), rank };
        let entered = self.store.enter(&self.key, &entry, LONG).await;
        entered.unwrap_or_else(|error| panic!("{name} cannot enter: {error}"))
    }

    async fn look(&self) -> Election {
        let seen = self.store.look(&self.key).await;
        seen.unwrap_or_else(|error| panic!("cannot look: {error}"))
    }

    async fn withdraw(&self, name: &str) {
        let gone = self.store.withdraw(&self.key, &id(name)).await;
        gone.unwrap_or_else(|error| panic!("{name} cannot withdraw: {error}"));
    }

    async fn grant(&self) -> Token {
        let wishes = [Wish::new(self.key.clone(), self.lease_ttl())];
        let answers = self.store.acquire(&self.owner, &wishes).await;
        match answers.as_deref() {
            Ok([Answer::Granted(token)]) => *token,
            other => panic!("the lease was not granted: {other:?}"),
        }
    }

    async fn release(&self, token: Token) {
        let claims = [Claim::new(self.key.clone(), token, self.lease_ttl())];
        let released = self.store.release(&self.owner, &claims).await;
        released.unwrap_or_else(|error| panic!("not released: {error}"));
    }

    /// A time to live that every store can grant to a lease, and longer than a case takes.
    fn lease_ttl(&self) -> Duration {
        self.shortest.max(Duration::from_secs(10))
    }

    async fn record(&self, token: u64, leader: &str, stage: Stage) -> Recorded {
        self.write(record(token, leader, stage)).await
    }

    async fn write(&self, term: TermRecord) -> Recorded {
        let recorded = self.store.record(&self.key, &term).await;
        recorded.unwrap_or_else(|error| panic!("not recorded: {error}"))
    }

    /// Waits for a change, in whichever task polls it.
    fn changed(
        &self,
        name: Option<&str>,
        seen: &Election,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (store, key, seen) = (Arc::clone(&self.store), self.key.clone(), seen.clone());
        let candidate = name.map(id);
        async move {
            let changed = store.changed(&key, candidate.as_ref(), &seen).await;
            changed.unwrap_or_else(|error| panic!("cannot wait: {error}"));
        }
    }

    /// Waits as a candidate does, until the election is so.
    async fn until(
        &self,
        name: Option<&str>,
        mut seen: Election,
        is_so: impl Fn(&Election) -> bool,
    ) {
        let waits = async {
            while !is_so(&seen) {
                self.changed(name, &seen).await;
                seen = self.look().await;
            }
        };
        let came = timeout(WOKEN, waits).await;
        assert!(came.is_ok(), "no change within {WOKEN:?}");
    }
}

fn record(token: u64, leader: &str, stage: Stage) -> TermRecord {
    TermRecord {
        token: Token(token),
        leader: id(leader),
        stage,
        chosen: None,
    }
}

fn choosing(token: u64, leader: &str, stage: Stage, chosen: &str) -> TermRecord {
    TermRecord {
        chosen: Some(id(chosen)),
        ..record(token, leader, stage)
    }
}

async fn an_election_is_empty_at_first(scene: &Scene) {
    let seen = scene.look().await;
    assert_eq!((seen.holder, seen.term, seen.next), (None, None, None));
}

async fn the_first_candidate_is_next(scene: &Scene) {
    assert_eq!(scene.enter("a", 5).await.next, Some(id("a")));
    assert_eq!(scene.enter("b", 5).await.next, Some(id("a")));
    assert_eq!(scene.look().await.next, Some(id("a")));
}

async fn a_lower_rank_is_next(scene: &Scene) {
    let ranks = [("a", 300), ("b", 20), ("c", 3), ("d", 3), ("e", 65_535)];
    for (name, rank) in ranks {
        scene.enter(name, rank).await;
    }
    assert_eq!(scene.look().await.next, Some(id("c")));
    scene.withdraw("c").await;
    assert_eq!(scene.look().await.next, Some(id("d")));
    scene.withdraw("d").await;
    assert_eq!(scene.look().await.next, Some(id("b")));
    scene.withdraw("b").await;
    assert_eq!(scene.look().await.next, Some(id("a")));
    scene.enter("f", 0).await;
    assert_eq!(scene.look().await.next, Some(id("f")));
}

async fn entering_again_keeps_the_place(scene: &Scene) {
    scene.enter("a", 1).await;
    scene.enter("b", 1).await;
    assert_eq!(scene.enter("a", 1).await.next, Some(id("a")));
    assert_eq!(scene.enter("b", 1).await.next, Some(id("a")));
}

async fn a_candidate_that_withdraws_is_gone(scene: &Scene) {
    scene.enter("a", 1).await;
    scene.enter("b", 1).await;
    scene.withdraw("a").await;
    scene.withdraw("a").await;
    assert_eq!(scene.look().await.next, Some(id("b")));
    scene.withdraw("b").await;
    assert_eq!(scene.look().await.next, None);
    // It comes again at the end.
    scene.enter("b", 1).await;
    scene.enter("a", 1).await;
    assert_eq!(scene.look().await.next, Some(id("b")));
}

async fn a_candidate_that_is_silent_is_gone(scene: &Scene) {
    let silent = Entry {
        id: id("a"),
        rank: 1,
    };
    let entered = scene.store.enter(&scene.key, &silent, scene.shortest).await;
    assert_eq!(entered.map(|seen| seen.next), Ok(Some(id("a"))));
    let until = Instant::now() + scene.shortest * 4;
    let mut next = scene.enter("b", 1).await.next;
    while next == Some(id("a")) && Instant::now() < until {
        sleep(scene.shortest / 10).await;
        next = scene.enter("b", 1).await.next;
    }
    // A store with sessions keeps it while its session lasts: then both are entered.
    let by_session = next == Some(id("a"));
    assert!(by_session || next == Some(id("b")), "{next:?}");
}

async fn the_lease_is_seen(scene: &Scene) {
    let token = scene.grant().await;
    let held = scene.look().await.holder.map(|holder| holder.token);
    assert_eq!(held, Some(token));
    let seen = scene.enter("a", 1).await;
    let holder = seen.holder.unwrap_or_else(|| panic!("the lease is held"));
    assert_eq!(holder.token, token);
    assert!(holder.remaining > Duration::ZERO);
    scene.release(token).await;
    assert_eq!(scene.look().await.holder, None);
}

async fn a_term_is_recorded_and_its_leader_is_no_candidate(scene: &Scene) {
    scene.enter("a", 1).await;
    scene.enter("b", 1).await;
    assert_eq!(
        scene.record(7, "a", Stage::Began).await,
        Recorded::Written(None)
    );
    let seen = scene.look().await;
    assert_eq!(seen.term, Some(record(7, "a", Stage::Began)));
    assert_eq!(seen.next, Some(id("b")));
    // A late answer of the store to an earlier call is no new candidate by itself.
    let was = Recorded::Written(seen.term);
    assert_eq!(scene.record(9, "b", Stage::Began).await, was);
    assert_eq!(scene.look().await.next, None);
}

async fn an_older_term_is_refused(scene: &Scene) {
    scene.record(7, "a", Stage::Began).await;
    for stage in [Stage::Began, Stage::Leaving, Stage::Ended] {
        assert_eq!(scene.record(6, "b", stage).await, Recorded::Refused);
    }
    let seen = scene.look().await;
    assert_eq!(seen.term, Some(record(7, "a", Stage::Began)));
}

async fn a_stage_never_goes_back(scene: &Scene) {
    scene.record(7, "a", Stage::Leaving).await;
    let again = scene.record(7, "a", Stage::Began).await;
    assert!(matches!(again, Recorded::Written(Some(_))));
    let leaving = Some(record(7, "a", Stage::Leaving));
    assert_eq!(scene.look().await.term, leaving);
    scene.write(choosing(7, "a", Stage::Leaving, "b")).await;
    let leaving = Some(choosing(7, "a", Stage::Leaving, "b"));
    assert_eq!(scene.look().await.term, leaving);
    scene.record(7, "a", Stage::Ended).await;
    scene.record(7, "a", Stage::Leaving).await;
    let ended = Some(record(7, "a", Stage::Ended));
    assert_eq!(scene.look().await.term, ended);
    // The next term begins anew.
    assert_eq!(
        scene.record(8, "b", Stage::Began).await,
        Recorded::Written(ended)
    );
    let began = Some(record(8, "b", Stage::Began));
    assert_eq!(scene.look().await.term, began);
}

async fn a_record_outlasts_its_lease(scene: &Scene) {
    let token = scene.grant().await;
    scene.record(token.0, "a", Stage::Began).await;
    scene.release(token).await;
    let seen = scene.look().await;
    assert_eq!(seen.holder, None);
    assert_eq!(seen.term, Some(record(token.0, "a", Stage::Began)));
    let next = scene.grant().await;
    assert!(next > token, "{next} after {token}");
    scene.release(next).await;
}

async fn an_end_is_recorded_twice_and_then_released(scene: &Scene) {
    let token = scene.grant().await;
    scene.enter("a", 1).await;
    scene.enter("b", 1).await;
    scene.record(token.0, "a", Stage::Began).await;
    for _ in 0..2 {
        scene.record(token.0, "a", Stage::Ended).await;
    }
    scene.release(token).await;
    let seen = scene.look().await;
    assert_eq!((seen.holder, seen.next), (None, Some(id("b"))));
    assert_eq!(seen.term, Some(record(token.0, "a", Stage::Ended)));
    let next = scene.grant().await;
    assert!(next > token, "{next} after {token}");
    scene.release(next).await;
}

async fn an_end_releases_no_lease_of_another_term(scene: &Scene) {
    let first = scene.grant().await;
    scene.record(first.0, "a", Stage::Began).await;
    scene.release(first).await;
    let second = scene.grant().await;
    // It is late: first the next term is not recorded yet, and then it is.
    scene.record(first.0, "a", Stage::Ended).await;
    let held = |seen: Election| seen.holder.map(|holder| holder.token);
    assert_eq!(held(scene.look().await), Some(second));
    scene.record(second.0, "b", Stage::Began).await;
    let late = scene.record(first.0, "a", Stage::Ended).await;
    assert_eq!(late, Recorded::Refused);
    let seen = scene.look().await;
    assert_eq!(seen.term, Some(record(second.0, "b", Stage::Began)));
    assert_eq!(held(seen), Some(second));
    // What is written again, and ignored, releases nothing either.
    scene.record(second.0, "b", Stage::Leaving).await;
    scene.record(second.0, "b", Stage::Began).await;
    assert_eq!(held(scene.look().await), Some(second));
    scene.release(second).await;
}

async fn the_chosen_candidate_is_next(scene: &Scene) {
    for name in ["b", "c", "d"] {
        scene.enter(name, 1).await;
    }
    for stage in [Stage::Leaving, Stage::Ended] {
        scene.write(choosing(7, "a", stage, "c")).await;
        assert_eq!(scene.look().await.next, Some(id("c")));
    }
    scene.enter("e", 0).await;
    assert_eq!(scene.look().await.next, Some(id("c")));
    scene.withdraw("c").await;
    assert_eq!(scene.look().await.next, Some(id("e")));
    // The next term has chosen none.
    scene.enter("c", 1).await;
    scene.record(8, "e", Stage::Began).await;
    assert_eq!(scene.look().await.next, Some(id("b")));
}

async fn a_chosen_one_that_is_not_there_is_ignored(scene: &Scene) {
    scene.enter("b", 1).await;
    scene.write(choosing(7, "a", Stage::Leaving, "x")).await;
    assert_eq!(scene.look().await.next, Some(id("b")));
}

async fn the_next_one_is_woken_by_a_release(scene: &Scene) {
    let token = scene.grant().await;
    let seen = scene.enter("a", 1).await;
    let waits = scene.until(Some("a"), seen, |seen| seen.holder.is_none());
    let releases = async {
        sleep(Duration::from_millis(50)).await;
        scene.release(token).await;
    };
    tokio::join!(waits, releases);
}

async fn the_next_one_is_woken_by_a_leaving_leader(scene: &Scene) {
    let token = scene.grant().await;
    scene.record(token.0, "x", Stage::Began).await;
    let seen = scene.enter("a", 1).await;
    let leaving = Some(record(token.0, "x", Stage::Leaving));
    let waits = scene.until(Some("a"), seen, |seen| seen.term == leaving);
    let leaves = async {
        sleep(Duration::from_millis(50)).await;
        scene.record(token.0, "x", Stage::Leaving).await;
    };
    tokio::join!(waits, leaves);
    scene.release(token).await;
}

async fn the_second_is_woken_when_the_first_withdraws(scene: &Scene) {
    let token = scene.grant().await;
    scene.enter("a", 1).await;
    let seen = scene.enter("b", 1).await;
    let waits = scene.until(Some("b"), seen, |seen| seen.next == Some(id("b")));
    let withdraws = async {
        sleep(Duration::from_millis(50)).await;
        scene.withdraw("a").await;
    };
    tokio::join!(waits, withdraws);
    scene.release(token).await;
}

async fn a_watcher_is_woken_by_a_term(scene: &Scene) {
    let seen = scene.look().await;
    let waits = scene.until(None, seen, |seen| seen.term.is_some());
    let begins = async {
        sleep(Duration::from_millis(50)).await;
        scene.record(7, "a", Stage::Began).await;
    };
    tokio::join!(waits, begins);
}

async fn what_has_changed_before_the_call_wakes_at_once(scene: &Scene) {
    let token = scene.grant().await;
    let seen = scene.enter("a", 1).await;
    scene.release(token).await;
    let woken = timeout(WOKEN, scene.changed(Some("a"), &seen)).await;
    assert!(woken.is_ok(), "the release was missed");
}

async fn elections_do_not_meet(scene: &Scene) {
    scene.enter("a", 1).await;
    scene.record(7, "x", Stage::Began).await;
    for suffix in ["/", "0", "\u{0}", "/lease", "/candidates", "ä"] {
        let mut key = scene.key.to_vec();
        key.extend_from_slice(suffix.as_bytes());
        let seen = scene.store.look(&Bytes::from(key)).await;
        let empty = seen.map(|seen| (seen.next, seen.term));
        assert_eq!(empty, Ok((None, None)), "{suffix:?}");
    }
}

async fn records_of_every_kind_come_back(scene: &Scene) {
    let longest = "x".repeat(crate::store::LONGEST_ID);
    let stages = [Stage::Began, Stage::Leaving, Stage::Leaving, Stage::Ended];
    for (at, stage) in (1..).zip(stages) {
        let term = match at % 2 {
            0 => record(at, &longest, stage),
            _ => choosing(at, "~!-", stage, &longest),
        };
        assert_eq!(decode(&encode(&term)), Some(term.clone()));
        scene.write(term.clone()).await;
        assert_eq!(scene.look().await.term, Some(term));
    }
}
