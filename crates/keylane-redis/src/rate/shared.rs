//! The state that the callers of one process share: permits, waiting callers, and times of
//! requests.
//!
//! Callers only look and wait. One task asks the server for all of them, and ends when there is
//! nothing more to ask for. It runs in the runtime of the caller that has started it. If that
//! runtime ends, or stops running, the waiting callers start another task in their own.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::bucket::{Borrowing, Bucket};
use super::error::TryAcquireError;
use super::figures::{RateCounts, RateFigures};
use super::limits::{Limits, Local};
use super::policy::WhenAway;
use super::server::Server;
use crate::error::RedisError;
use keylane_connector::lock;

/// Most keys in a call.
const AT_ONCE: usize = 500;

/// With fewer keys than this, it does not search for keys to forget.
const FEW: usize = 1_024;

/// The first pause after the server could not be asked, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

pub(super) struct Shared {
    pub(super) server: Server,
    pub(super) borrowing: Borrowing,
    limits: Limits,
    when_away: WhenAway,
    /// Notified when there is something new to ask for.
    pub(super) wake: Notify,
    state: Mutex<State>,
    pub(super) figures: RateFigures,
}

struct State {
    keys: HashMap<Bytes, Entry>,
    /// The keys to ask for, and when.
    due: BTreeSet<(Instant, Bytes)>,
    /// The current task, if there is one. Any other task that still exists was replaced.
    asker: Option<Asker>,
    askers: u64,
    /// How often a key was served.
    turns: u64,
    away: Option<Away>,
    /// The use of the local share of the total.
    local: Local,
    /// With this many keys, it forgets those whose state does not matter.
    sweep_at: usize,
    /// Calls to the server, and those that failed.
    calls: (u64, u64),
}

/// A task that asks the server.
#[derive(Clone, Copy)]
struct Asker {
    number: u64,
    /// When it is back at the latest, if its runtime runs.
    expected: Instant,
}

/// The state while the server is away.
struct Away {
    error: RedisError,
    retry_at: Instant,
    pause: Duration,
}

#[derive(Default)]
struct Entry {
    bucket: Bucket,
    waiting: VecDeque<Waiter>,
    /// With this many waiters, it forgets those that are gone.
    forget_at: usize,
    /// Its time in `due`.
    due: Option<Instant>,
    /// The turn in which it was served last: the key that has waited longest is asked for first.
    served: u64,
    /// Whether it is in the call in progress.
    is_asked: bool,
    local: Local,
}

type Answer = Result<Grant, TryAcquireError>;

struct Waiter {
    answer: oneshot::Sender<Answer>,
    /// Whether it waits for as long as necessary.
    is_patient: bool,
}

/// Answers to send after the lock is released.
type Told = Vec<(Waiter, Answer)>;

/// The state that a caller finds.
pub(super) enum Entered {
    Permit,
    Refused(TryAcquireError),
    Wait(oneshot::Receiver<Answer>),
}

/// The next step of the task.
pub(super) enum Next {
    /// Asks for this many permits of each key.
    Ask(Vec<(Bytes, u32)>),
    /// Does nothing before this time.
    Wait(Instant),
    /// Ends. Another task does later work.
    End,
}

impl Shared {
    pub(super) fn new(
        server: Server,
        limits: Limits,
        borrowing: Borrowing,
        when_away: WhenAway,
        figures: RateFigures,
    ) -> Self {
        Self {
            server,
            borrowing,
            limits,
            when_away,
            wake: Notify::new(),
            state: Mutex::new(State {
                keys: HashMap::new(),
                due: BTreeSet::new(),
                asker: None,
                askers: 0,
                turns: 0,
                away: None,
                local: Local::default(),
                sweep_at: FEW,
                calls: (0, 0),
            }),
            figures,
        }
    }

    /// Takes a permit for a caller, or queues the caller. Starts the task if it is needed and does
    /// not run.
    pub(super) fn enter(&self, key: &[u8], is_patient: bool, start: impl FnOnce(u64)) -> Entered {
        // Without a rate per key all keys are one.
        let key = self.limits.per_key.map_or(&b""[..], |_| key);
        let now = Instant::now();
        let mut state = lock(&self.state);
        self.sweep(&mut state, now);
        let stopped = self.stopped(&state, now).map(|away| away.error.clone());
        let key = match state.keys.get_key_value(key) {
            Some((known, _)) => known.clone(),
            None => Bytes::copy_from_slice(key),
        };
        let entry = state.keys.entry(key.clone()).or_default();
        entry.forget_some();
        let found = if entry.waiting.is_empty() && entry.bucket.take(now, self.borrowing).is_some()
        {
            Entered::Permit
        } else if !is_patient && let Some(error) = stopped {
            return Entered::Refused(TryAcquireError::Redis(error));
        } else if !is_patient && let Some(after) = entry.bucket.wait(now) {
            return Entered::Refused(TryAcquireError::NotYet { after });
        } else {
            let (answer, told) = oneshot::channel();
            entry.waiting.push_back(Waiter { answer, is_patient });
            Entered::Wait(told)
        };
        let is_new = self.list(&mut state, &key, now);
        let number = (is_new && state.asker.is_none()).then(|| state.start_asker(now));
        drop(state);
        match number {
            Some(number) => start(number),
            None if is_new => self.wake.notify_one(),
            None => {}
        }
        found
    }

    /// Checks whether the task still runs; callers that have waited long call it. If the task's
    /// runtime does not run, starts another task, which replaces it.
    pub(super) fn look_after(&self, start: impl FnOnce(u64)) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let late = self.borrowing.keep * 2;
        if state.asker.is_some_and(|asker| now < asker.expected + late) {
            return;
        }
        let number = state.start_asker(now);
        state.due.clear();
        let mut waiting = Vec::new();
        for (key, entry) in &mut state.keys {
            (entry.due, entry.is_asked) = (None, false);
            if !entry.waiting.is_empty() {
                waiting.push(key.clone());
            }
        }
        for key in waiting {
            self.list(&mut state, &key, now);
        }
        drop(state);
        start(number);
    }

    /// Lists a key to be asked for, if that is necessary. Returns whether that is news for the
    /// task.
    fn list(&self, state: &mut State, key: &Bytes, now: Instant) -> bool {
        let stopped_until = self.stopped(state, now).map(|away| away.retry_at);
        let Some(entry) = state.keys.get_mut(key) else {
            return false;
        };
        if entry.is_asked || entry.due.is_some() {
            return false;
        }
        let waiting = entry.waiting();
        let wait = entry.bucket.wait(now);
        let wanted = entry.bucket.wanted(waiting, now, self.borrowing);
        // Without a waiting caller, it asks for nothing while the server has no permits or is away.
        if wanted == 0 || waiting == 0 && (wait.is_some() || state.away.is_some()) {
            return false;
        }
        let due = now + wait.unwrap_or_default();
        let due = stopped_until.map_or(due, |until| due.max(until));
        entry.due = Some(due);
        state.due.insert((due, key.clone()));
        if let Some(asker) = &mut state.asker {
            asker.expected = asker.expected.min(due);
        }
        true
    }

    /// Returns the next step of the task. While the server is away and each process uses its share,
    /// it gives out that share here.
    pub(super) fn next(self: &Arc<Self>, number: u64, is_probing: bool) -> Next {
        let now = Instant::now();
        let mut told = Told::new();
        let mut state = lock(&self.state);
        if !state.is_asked_by(number) {
            return Next::End;
        }
        let retry_at = self.shares_until(&state);
        let stopped_until = self.stopped(&state, now).map(|away| away.retry_at);
        let mut due_keys = Vec::new();
        while stopped_until.is_none()
            && due_keys.len() < AT_ONCE
            && let Some((due, _)) = state.due.first()
            && *due <= now
            && let Some((_, key)) = state.due.pop_first()
        {
            due_keys.push((state.keys.get(&key).map_or(0, |entry| entry.served), key));
        }
        due_keys.sort();
        let mut asked = Vec::new();
        for (_, key) in due_keys {
            let Some(entry) = state.keys.get_mut(&key) else {
                continue;
            };
            entry.due = None;
            entry.forget_gone();
            let waiting = entry.waiting();
            let wanted = entry.bucket.wanted(waiting, now, self.borrowing);
            match wanted {
                0 => {}
                _ if retry_at.is_some() => self.share(&mut state, &key, now, &mut told),
                _ => {
                    entry.is_asked = true;
                    asked.push((key, wanted));
                }
            }
        }
        let next = match state.due.first() {
            _ if !asked.is_empty() => Next::Ask(asked),
            Some((due, _)) => {
                let probe_at = retry_at.filter(|_| !is_probing);
                let due = probe_at.map_or(*due, |at| at.min(*due));
                Next::Wait(stopped_until.map_or(due, |until| due.max(until)))
            }
            // Otherwise, with few callers, the task would never see that the server is back.
            None if is_probing => Next::Wait(now + self.borrowing.keep),
            None => Next::End,
        };
        let expected = match &next {
            Next::Ask(_) => Some(now + self.borrowing.keep),
            Next::Wait(at) => Some(*at),
            Next::End => None,
        };
        state.asker = expected.map(|expected| Asker { number, expected });
        drop(state);
        tell(told);
        next
    }

    /// Whether to probe if the server is back, while each process uses its share.
    pub(super) fn is_probe_due(&self) -> bool {
        let retry_at = self.shares_until(&lock(&self.state));
        retry_at.is_some_and(|at| at <= Instant::now())
    }

    /// While each process uses its share, returns when to ask the server again.
    fn shares_until(&self, state: &State) -> Option<Instant> {
        match self.when_away {
            WhenAway::LocalShare { .. } => Some(state.away.as_ref()?.retry_at),
            WhenAway::Stop => None,
        }
    }

    /// Gives out the share of this process to the callers that wait for a key.
    fn share(self: &Arc<Self>, state: &mut State, key: &Bytes, now: Instant, told: &mut Told) {
        let State { keys, local, .. } = state;
        let Some(entry) = keys.get_mut(key) else {
            return;
        };
        let waiting = entry.waiting();
        let taken = self
            .limits
            .take_share(&mut entry.local, local, now, waiting);
        self.grant(state, key, taken, (now, now), told);
    }

    /// Adds the permits that were granted for a key at a past time. There are no more for this long
    /// from now on.
    fn grant(
        self: &Arc<Self>,
        state: &mut State,
        key: &Bytes,
        (count, wait): (u32, Duration),
        (granted, now): (Instant, Instant),
        told: &mut Told,
    ) {
        let State { keys, turns, .. } = state;
        let Some(entry) = keys.get_mut(key) else {
            return;
        };
        if count > 0 {
            *turns += 1;
            entry.served = *turns;
        }
        entry.bucket.granted(count, granted, self.borrowing);
        if !wait.is_zero() {
            entry.bucket.none_before(now + wait);
        }
        self.deliver(entry, key, now, told);
        self.list(state, key, now);
    }

    /// Processes the answer to a call that was sent at this time: for each key how many permits the
    /// server grants, and how long there are no more.
    pub(super) fn answered(
        self: &Arc<Self>,
        number: u64,
        asked: &[(Bytes, u32)],
        sent: Instant,
        answer: Result<Vec<(u32, Duration)>, RedisError>,
    ) {
        let now = Instant::now();
        let mut told = Told::new();
        let mut state = lock(&self.state);
        if !state.is_asked_by(number) {
            // Its permits are lost.
            return;
        }
        state.calls.0 += 1;
        state.calls.1 += u64::from(answer.is_err());
        match answer {
            Ok(answers) => {
                if state.away.take().is_some() {
                    tracing::info!(target: "keylane", "the rate is shared again");
                }
                for ((key, _), answer) in asked.iter().zip(answers) {
                    if let Some(entry) = state.keys.get_mut(key) {
                        entry.is_asked = false;
                    }
                    self.grant(&mut state, key, answer, (sent, now), &mut told);
                }
            }
            Err(error) => {
                if error.is_away() {
                    let pause = state.away.as_ref().map(|away| away.pause * 2);
                    let pause = pause.unwrap_or(PAUSES.0).min(PAUSES.1);
                    tracing::warn!(
                        target: "keylane",
                        %error,
                        when_away = ?self.when_away,
                        "the rate cannot be shared now, will retry"
                    );
                    state.away = Some(Away {
                        error: error.clone(),
                        retry_at: now + pause,
                        pause,
                    });
                }
                for (key, _) in asked {
                    if let Some(entry) = state.keys.get_mut(key) {
                        entry.is_asked = false;
                        if !error.is_away() || self.when_away == WhenAway::Stop {
                            let is_last = !error.is_away();
                            entry.refuse(is_last, &error, &mut told);
                        }
                    }
                    self.list(&mut state, key, now);
                }
            }
        }
        drop(state);
        tell(told);
    }

    /// Publishes the counters.
    pub(super) fn show(&self) {
        self.figures.show(|| {
            let state = lock(&self.state);
            let mut counts = RateCounts::default();
            (counts.calls, counts.failed_calls) = state.calls;
            counts.keys = state.keys.len() as u64;
            counts.is_away = state.away.is_some();
            counts
        });
    }

    /// Gives the permits of a key to the callers that wait for them, and answers callers that do
    /// not wait long.
    fn deliver(self: &Arc<Self>, entry: &mut Entry, key: &Bytes, now: Instant, told: &mut Told) {
        entry.forget_some();
        while !entry.waiting.is_empty()
            && let Some(until) = entry.bucket.take(now, self.borrowing)
            && let Some(waiter) = entry.waiting.pop_front()
        {
            told.push((waiter, Ok(Grant::new(self, key, until))));
            entry.forget_some();
        }
        if let Some(after) = entry.bucket.wait(now) {
            let waiting = std::mem::take(&mut entry.waiting);
            for waiter in waiting {
                match waiter.is_patient {
                    true => entry.waiting.push_back(waiter),
                    false => told.push((waiter, Err(TryAcquireError::NotYet { after }))),
                }
            }
        }
    }

    /// Puts back a permit that was not used.
    fn put_back(self: &Arc<Self>, key: &Bytes, until: Instant) {
        let now = Instant::now();
        let mut told = Told::new();
        let mut state = lock(&self.state);
        if let Some(entry) = state.keys.get_mut(key) {
            entry.bucket.put_back(until);
            self.deliver(entry, key, now, &mut told);
        }
        drop(state);
        tell(told);
    }

    /// Handles the end of a task before it was done, with its runtime. Wakes the callers that wait;
    /// the first of them starts another task.
    pub(super) fn asker_is_gone(&self, number: u64) {
        let mut state = lock(&self.state);
        if !state.is_asked_by(number) {
            return;
        }
        state.asker = None;
        state.due.clear();
        let mut waiting = Vec::new();
        for entry in state.keys.values_mut() {
            entry.due = None;
            entry.is_asked = false;
            waiting.extend(entry.waiting.drain(..));
        }
        drop(state);
        drop(waiting);
    }

    /// Closes the state: there is no handle any more, and so no caller.
    pub(super) fn close(&self) {
        lock(&self.state).due.clear();
        self.wake.notify_one();
    }

    /// Returns why nothing may start now.
    fn stopped<'a>(&self, state: &'a State, now: Instant) -> Option<&'a Away> {
        let away = state.away.as_ref()?;
        (self.when_away == WhenAway::Stop && now < away.retry_at).then_some(away)
    }

    fn sweep(&self, state: &mut State, now: Instant) {
        if state.keys.len() < state.sweep_at {
            return;
        }
        let State { keys, .. } = state;
        keys.retain(|_, entry| {
            entry.forget_gone();
            let is_waited_for = !entry.waiting.is_empty() || entry.due.is_some() || entry.is_asked;
            is_waited_for
                || !entry.bucket.is_idle(now, self.borrowing)
                || self.limits.matters(&entry.local, now)
        });
        // As many keys again must come before the next time, so that the cost per key is constant.
        state.sweep_at = (keys.len() * 2).max(FEW);
        keys.shrink_to(state.sweep_at);
    }

    /// Returns the number of known keys.
    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        lock(&self.state).keys.len()
    }
}

impl State {
    fn start_asker(&mut self, now: Instant) -> u64 {
        self.askers += 1;
        self.asker = Some(Asker {
            number: self.askers,
            expected: now,
        });
        self.askers
    }

    fn is_asked_by(&self, number: u64) -> bool {
        self.asker.is_some_and(|asker| asker.number == number)
    }
}

impl Entry {
    /// Forgets callers that were dropped.
    fn forget_gone(&mut self) {
        self.waiting.retain(|waiter| !waiter.answer.is_closed());
        self.forget_at = (self.waiting.len() * 2).max(16);
    }

    /// Forgets dropped callers at the front, and the others at intervals.
    fn forget_some(&mut self) {
        if self.waiting.len() >= self.forget_at {
            self.forget_gone();
        }
        while self
            .waiting
            .front()
            .is_some_and(|waiter| waiter.answer.is_closed())
        {
            self.waiting.pop_front();
        }
    }

    fn waiting(&self) -> u32 {
        u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }

    /// Answers that there is no permit: to all waiting callers, or to those that do not wait long.
    fn refuse(&mut self, all: bool, error: &RedisError, told: &mut Told) {
        for waiter in std::mem::take(&mut self.waiting) {
            match waiter.is_patient && !all {
                true => self.waiting.push_back(waiter),
                false => told.push((waiter, Err(TryAcquireError::Redis(error.clone())))),
            }
        }
    }
}

/// Sends answers, without the lock. Puts back the permit of a caller that is gone.
fn tell(told: Told) {
    for (waiter, answer) in told {
        let _ = waiter.answer.send(answer);
    }
}

/// A permit that was taken for a caller. It is put back if it is dropped before it is used.
pub(super) struct Grant {
    shared: Option<Arc<Shared>>,
    key: Bytes,
    until: Instant,
}

impl Grant {
    fn new(shared: &Arc<Shared>, key: &Bytes, until: Instant) -> Self {
        Self {
            shared: Some(Arc::clone(shared)),
            key: key.clone(),
            until,
        }
    }

    /// Uses the permit. Returns whether that is allowed: it may have been kept too long.
    pub(super) fn redeem(mut self) -> bool {
        let is_valid = Instant::now() < self.until;
        if is_valid {
            self.shared = None;
        }
        is_valid
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.put_back(&self.key, self.until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::{Quota, SharedRate, SharedRateBuilder};
    use crate::server::Redis;

    /// No server listens at this address.
    fn without_server() -> SharedRateBuilder {
        let redis = Redis::at("redis://127.0.0.1:1/").unwrap();
        let policy = WhenAway::LocalShare { processes: 1 };
        SharedRate::builder(&redis, "rate").when_away(policy)
    }

    #[tokio::test]
    async fn keys_that_are_idle_are_forgotten() {
        let keep = Duration::from_millis(10);
        let rate = without_server()
            .per_key(Quota::per_second(10_000))
            .keep(keep);
        let rate = rate.build().unwrap();
        for n in 0..50_000_u32 {
            rate.acquire(n.to_be_bytes()).await.unwrap();
        }
        tokio::time::sleep(keep * 3).await;
        let before = rate.handle.shared.keys();
        for n in 0..before as u32 * 2 + FEW as u32 {
            rate.acquire(n.to_le_bytes()).await.unwrap();
        }
        println!("{before} keys, and then {}", rate.handle.shared.keys());
        assert!(
            rate.handle.shared.keys() < 50_000,
            "{}",
            rate.handle.shared.keys()
        );
    }

    /// A rate with one waiting caller, as the call in progress finds it.
    fn with_one_that_waits() -> (SharedRate, Bytes, oneshot::Receiver<Answer>) {
        let rate = without_server().per_key(Quota::per_second(1)).build();
        let (rate, key) = (rate.unwrap(), Bytes::from_static(b"key"));
        let Entered::Wait(told) = rate.handle.shared.enter(&key, true, |_| {}) else {
            panic!("there is no permit yet");
        };
        (rate, key, told)
    }

    /// Permits are kept from the time of the request on, since the server counts from that time or
    /// later.
    #[tokio::test]
    async fn an_answer_that_comes_too_late_gives_nothing() {
        let (rate, key, mut told) = with_one_that_waits();
        let shared = &rate.handle.shared;
        let one = || Ok(vec![(1, Duration::ZERO)]);
        let sent = Instant::now() - shared.borrowing.keep;
        shared.answered(1, &[(key.clone(), 1)], sent, one());
        assert!(told.try_recv().is_err());
        shared.answered(1, &[(key, 1)], Instant::now(), one());
        assert!(told.try_recv().unwrap().unwrap().redeem());
    }

    #[tokio::test]
    async fn a_permit_that_is_put_back_is_kept_no_longer() {
        let (rate, key, told) = with_one_that_waits();
        let shared = &rate.handle.shared;
        let sent = Instant::now();
        let answer = Ok(vec![(1, Duration::ZERO)]);
        shared.answered(1, &[(key.clone(), 1)], sent, answer);
        drop(told);
        let mut state = lock(&shared.state);
        let bucket = &mut state.keys.get_mut(&key).unwrap().bucket;
        let until = sent + shared.borrowing.keep;
        assert_eq!(bucket.take(sent, shared.borrowing), Some(until));
        assert_eq!(bucket.take(sent, shared.borrowing), None);
    }

    /// Its caller may have been asleep since the answer.
    #[tokio::test]
    async fn a_permit_that_was_told_too_long_ago_is_not_used() {
        let (rate, key, _told) = with_one_that_waits();
        let shared = &rate.handle.shared;
        let now = Instant::now();
        assert!(!Grant::new(shared, &key, now).redeem());
        assert!(Grant::new(shared, &key, now + Duration::from_secs(3_600)).redeem());
    }

    #[tokio::test]
    async fn callers_that_are_gone_are_forgotten() {
        let rate = without_server().total(Quota::per(1, Duration::from_secs(3_600)));
        let rate = rate.build().unwrap();
        rate.acquire("").await.unwrap();
        let stays = tokio::spawn({
            let rate = rate.clone();
            async move { rate.acquire("").await }
        });
        tokio::task::yield_now().await;
        for _ in 0..10_000 {
            let call = rate.acquire("");
            assert!(futures::FutureExt::now_or_never(call).is_none());
        }
        let state = lock(&rate.handle.shared.state);
        assert!(state.keys[&Bytes::new()].waiting.len() < 40);
        assert!(!stays.is_finished());
    }
}
