//! The task that acquires the leases of lanes, and gives up those that are not needed any more.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use keylane_lanes::{Effects, later};
use keylane_rt::clock::{self, Alarm, Instant};
use keylane_rt::unwind::{caught, dropped};
use keylane_rt::{self as rt, Arc, mpsc, unconstrained};
use keylane_source::lease::{LaneLease, LaneLeaseError, LaneLeases};

use super::super::reports::Reports;
use super::super::settlement::Tally;
use super::super::{Engine, Lane};
use super::table::{LaneLeaseTable, LeaseRequest};
use crate::types::Spec;

/// The first wait after an error. It doubles up to `LONGEST_WAIT`.
const WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// A lease is looked at no more often.
const SHORTEST_LINGER: Duration = Duration::from_millis(10);

/// Where there is no room for another lease, so many are looked at every few milliseconds, whether
/// they have lingered or not.
const LOOKS: usize = 256;
const HURRY: Duration = Duration::from_millis(4);

/// Serves requests until the dispatcher has ended.
pub(crate) async fn serve_leases<T: Spec>(
    engine: Arc<Engine<T>>,
    leases: Arc<dyn LaneLeases<T::Key>>,
    mut requests: mpsc::UnboundedReceiver<LeaseRequest<T::Key>>,
) {
    // Where the user's code panics, keys must not wait for ever.
    let mut rounds = Rounds::new(caught(|| leases.linger()).unwrap_or_default());
    let is_full = || caught(|| leases.is_full()).unwrap_or(false);
    let mut reports = Reports::default();
    // Unconstrained: all have the budget of this task. Once it is spent, each call would wake
    // itself, and thousands of calls would be polled for each that gets on.
    let mut asked = FuturesUnordered::new();
    // Keys in backoff do not delay keys that were not asked for yet.
    let mut waiting = FuturesUnordered::new();
    loop {
        let is_short = !asked.is_empty() && is_full();
        tokio::select! {
            biased;
            () = engine.shutdown.ended() => return,
            Some(request) = requests.recv() => {
                rounds.add(&request);
                asked.push(unconstrained(ask(Arc::clone(&leases), request, WAIT)));
            }
            Some((request, wait, answer)) = asked.next(), if !asked.is_empty() => match answer {
                None => {}
                Some(Ok(lease)) => engine.leased(request, lease),
                Some(Err(LaneLeaseError::Closed)) => engine.unleasable(&request, &mut reports),
                Some(Err(LaneLeaseError::Failed(error))) => {
                    // Its text and its drop are the user's code.
                    let why = caught(|| error.to_string()).unwrap_or_default();
                    dropped(error);
                    engine.report_unleased(&why, &mut reports);
                    waiting.push(rest(request, wait));
                }
            },
            Some((request, wait)) = waiting.next(), if !waiting.is_empty() => {
                asked.push(unconstrained(ask(Arc::clone(&leases), request, wait)));
            }
            () = poll_fn(|cx| rounds.poll(is_short, cx)) => rounds.look(&engine, is_short),
        }
        // Any number of these may be ready, and others wait for this worker.
        rt::consume_budget().await;
    }
}

/// One call. `None`: no message of the key waits any more. A panic counts as an error.
async fn ask<K>(
    leases: Arc<dyn LaneLeases<K>>,
    request: LeaseRequest<K>,
    wait: Duration,
) -> (
    LeaseRequest<K>,
    Duration,
    Option<Result<Box<dyn LaneLease>, LaneLeaseError>>,
)
where
    K: Send + Sync + 'static,
{
    let answer = {
        let mut cancelled = pin!(request.cancelled.cancelled());
        let mut call = None;
        poll_fn(|cx| {
            let answer = if cancelled.as_mut().poll(cx).is_ready() {
                None
            } else {
                let polled = caught(|| {
                    let call = call.get_or_insert_with(|| leases.acquire(&request.key));
                    call.as_mut().poll(cx)
                });
                match polled {
                    Ok(Poll::Pending) => return Poll::Pending,
                    Ok(Poll::Ready(answer)) => Some(answer),
                    Err(text) => Some(Err(LaneLeaseError::Failed(text.into()))),
                }
            };
            dropped(call.take());
            Poll::Ready(answer)
        })
        .await
    };
    (request, wait, answer)
}

/// The wait after an error.
async fn rest<K>(request: LeaseRequest<K>, wait: Duration) -> (LeaseRequest<K>, Duration) {
    let mut alarm = Alarm::new(later(clock::now(), wait));
    poll_fn(|cx| alarm.poll(cx)).await;
    (request, (wait * 2).min(LONGEST_WAIT))
}

/// When which lease is looked at next. Each is in here once.
struct Rounds<K> {
    linger: Duration,
    next: VecDeque<(Instant, K, u64, usize)>,
    /// While room is short: when to look all the same.
    hurry: Option<Instant>,
    alarm: Option<Alarm>,
}

impl<K: Eq + Clone> Rounds<K> {
    fn new(linger: Duration) -> Self {
        Self {
            linger,
            next: VecDeque::new(),
            hurry: None,
            alarm: None,
        }
    }

    fn add(&mut self, request: &LeaseRequest<K>) {
        let LeaseRequest {
            key, hash, number, ..
        } = request;
        self.push(clock::now(), (key.clone(), *hash, *number));
    }

    /// Each comes again after the same time, so the first in the queue is the first to be due.
    fn push(&mut self, now: Instant, (key, hash, number): (K, u64, usize)) {
        let at = later(now, self.linger.max(SHORTEST_LINGER));
        self.next.push_back((at, key, hash, number));
    }

    /// Waits until the next one is due.
    fn poll(&mut self, is_short: bool, cx: &mut Context<'_>) -> Poll<()> {
        let Some((at, ..)) = self.next.front() else {
            self.alarm = None;
            return Poll::Pending;
        };
        self.hurry = match is_short {
            true => Some(*self.hurry.get_or_insert_with(|| clock::now() + HURRY)),
            false => None,
        };
        let at = self.hurry.map_or(*at, |hurry| hurry.min(*at));
        let alarm = self.alarm.get_or_insert_with(|| Alarm::new(at));
        alarm.reset(at);
        std::task::ready!(alarm.poll(cx));
        (self.alarm, self.hurry) = (None, None);
        Poll::Ready(())
    }

    /// Gives up what is not needed, of those that are due. Where room is short also of others, and
    /// then nothing lingers.
    fn look<T: Spec<Key = K>>(&mut self, engine: &Engine<T>, is_short: bool) {
        let Some(table) = &engine.table.leases else {
            return;
        };
        let now = clock::now();
        for _ in 0..LOOKS.min(self.next.len()) {
            let is_due = |next: &mut (Instant, K, u64, usize)| is_short || next.0 <= now;
            let Some((_, key, hash, number)) = self.next.pop_front_if(is_due) else {
                break;
            };
            let lingers = !is_short && !self.linger.is_zero();
            // A panic of the key's own `Eq` or `Drop`.
            let stays = caught(|| {
                let has_lane = || engine.table.lanes.peek(hash, &key, |_| ()).is_some();
                table.look(hash, &key, number, lingers, has_lane)
            });
            match stays {
                Ok(true) => self.push(now, (key, hash, number)),
                Ok(false) => engine.probe.drop_quietly(key),
                Err(_) => engine.settlement.count_lost_messages(),
            }
        }
    }
}

impl<T: Spec> Engine<T> {
    fn table(&self) -> &LaneLeaseTable<T::Key> {
        self.table
            .leases
            .as_ref()
            .expect("the task serves its leases")
    }

    /// A lease was granted: the lane goes on that waits for it.
    fn leased(self: &Arc<Self>, request: LeaseRequest<T::Key>, lease: Box<dyn LaneLease>) {
        // A panic of the key's own `Eq` or `Clone` must not end the task: other keys wait for it.
        let went_on = caught(|| {
            if self.table().grant(&request, lease) {
                let LeaseRequest { key, hash, .. } = request;
                self.go_on_leased(key, hash);
            }
        });
        if went_on.is_err() {
            self.settlement.count_lost_messages();
        }
    }

    fn go_on_leased(self: &Arc<Self>, key: T::Key, hash: u64) {
        let mut effects = Effects::new();
        if !self
            .table
            .step(&key, hash, clock::now(), &mut effects, Lane::<T>::leased)
        {
            return self.probe.drop_quietly(key);
        }
        let mut tally = Tally::default();
        self.apply_and_enqueue(&mut tally, key, hash, &mut effects);
        self.flush(&mut tally);
    }

    /// No lease will be granted any more: what waits for one is handed back at the end.
    fn unleasable(&self, request: &LeaseRequest<T::Key>, reports: &mut Reports) {
        let table = self.table();
        table.close();
        if caught(|| table.forget(request)).is_err() {
            self.settlement.count_lost_messages();
        }
        self.report_unleased("the leases are closed", reports);
        if self.shutdown.has_intake_ended() {
            self.table.evict(true);
            self.end_orphaned();
            self.shutdown.wake_router();
        }
    }

    fn report_unleased(&self, why: &str, reports: &mut Reports) {
        let Some(missed) = reports.admit(clock::now()) else {
            return;
        };
        tracing::error!(
            target: "keylane",
            error = why, suppressed = missed,
            "leases cannot be acquired; the messages of their keys wait"
        );
        self.probe.notify_unleased(why);
    }
}
