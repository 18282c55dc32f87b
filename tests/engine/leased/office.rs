//! Leases that do as they are told, and a dispatcher with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use keylane::lease::{LaneLease, LaneLeaseError, LaneLeases};
use keylane::watching::LaneState;
use keylane::{Builder, Dispatcher, Receipt};
use keylane_testkit::scenario::check_waits;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::support::boxed;

pub(super) const HOUR: Duration = Duration::from_secs(3_600);
pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const LINGER: Duration = Duration::from_millis(100);

/// Grants each lease unless it is told not to.
#[derive(Default)]
pub(super) struct Office {
    pub(super) state: Mutex<State>,
    pub(super) changed: Notify,
    pub(super) linger: Mutex<Duration>,
    /// Leases that exist.
    pub(super) held: AtomicUsize,
    /// Calls that are under way.
    pub(super) waiting: AtomicUsize,
    pub(super) calls: AtomicUsize,
    pub(super) losses: AtomicU64,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) token: u64,
    /// These have another holder.
    pub(super) taken: BTreeSet<u64>,
    pub(super) all_taken: bool,
    pub(super) fails: bool,
    pub(super) panics: bool,
    pub(super) closed: bool,
    pub(super) most: Option<usize>,
    pub(super) flags: BTreeMap<u64, Arc<Flag>>,
}

#[derive(Default)]
pub(super) struct Flag {
    pub(super) is_lost: AtomicBool,
    pub(super) waker: AtomicWaker,
}

#[derive(Clone)]
pub(super) struct Leases(pub(super) Arc<Office>);

impl Leases {
    pub(super) fn new() -> Self {
        let office = Office::default();
        *office.linger.lock().unwrap() = LINGER;
        Self(Arc::new(office))
    }

    pub(super) fn lingering(linger: Duration) -> Self {
        let leases = Self::new();
        *leases.0.linger.lock().unwrap() = linger;
        leases
    }

    pub(super) fn tell(&self, tell: impl FnOnce(&mut State)) {
        tell(&mut self.0.state.lock().unwrap());
        self.0.changed.notify_waiters();
    }

    pub(super) fn take(&self, key: u64) {
        self.tell(|state| assert!(state.taken.insert(key)));
    }

    pub(super) fn leave(&self, key: u64) {
        self.tell(|state| assert!(state.taken.remove(&key)));
    }

    /// The lease of a key is lost, and another has it.
    pub(super) fn lose(&self, key: u64) {
        self.lose_silently(key).waker.wake();
    }

    /// The same, and nothing is reported.
    pub(super) fn lose_silently(&self, key: u64) -> Arc<Flag> {
        let mut flag = None;
        self.tell(|state| {
            state.taken.insert(key);
            flag = state.flags.remove(&key);
        });
        let flag = flag.expect("it is held");
        self.lost(&flag);
        flag
    }

    pub(super) fn lost(&self, flag: &Flag) {
        flag.is_lost.store(true, Ordering::SeqCst);
        self.0.losses.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes the lease of each of these keys in turn, for half a millisecond, and for ever.
    pub(super) fn steal_in_turn(&self, keys: u64) -> tokio::task::JoinHandle<()> {
        let leases = self.clone();
        tokio::spawn(async move {
            for round in 0_u64.. {
                let key = round % keys;
                leases.tell(|state| {
                    state.taken.insert(key);
                    if let Some(flag) = state.flags.remove(&key) {
                        leases.lost(&flag);
                        flag.waker.wake();
                    }
                });
                tokio::time::sleep(MS / 2).await;
                leases.leave(key);
            }
        })
    }

    pub(super) fn held(&self) -> usize {
        self.0.held.load(Ordering::SeqCst)
    }

    pub(super) fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::SeqCst)
    }

    pub(super) fn calls(&self) -> usize {
        self.0.calls.load(Ordering::SeqCst)
    }
}

pub(super) struct Call<'a>(pub(super) &'a AtomicUsize);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[keylane::async_trait]
impl<K: AsU64> LaneLeases<K> for Leases {
    async fn acquire(&self, key: &K) -> Result<Box<dyn LaneLease>, LaneLeaseError> {
        let (office, key) = (&self.0, key.as_u64());
        office.calls.fetch_add(1, Ordering::SeqCst);
        office.waiting.fetch_add(1, Ordering::SeqCst);
        let _call = Call(&office.waiting);
        loop {
            let changed = office.changed.notified();
            if let Some(answer) = self.answer(key) {
                return answer;
            }
            changed.await;
        }
    }

    fn losses(&self) -> u64 {
        self.0.losses.load(Ordering::SeqCst)
    }

    fn linger(&self) -> Duration {
        *self.0.linger.lock().unwrap()
    }

    fn is_full(&self) -> bool {
        let most = self.0.state.lock().unwrap().most;
        most.is_some_and(|most| self.held() >= most)
    }
}

impl Leases {
    pub(super) fn answer(&self, key: u64) -> Option<Result<Box<dyn LaneLease>, LaneLeaseError>> {
        let mut state = self.0.state.lock().unwrap();
        if state.panics {
            drop(state);
            panic!("told to panic");
        }
        if state.closed {
            return Some(Err(LaneLeaseError::Closed));
        }
        if state.fails {
            return Some(Err(LaneLeaseError::Failed("the office is on fire".into())));
        }
        let is_full = state.most.is_some_and(|most| self.held() >= most);
        if state.all_taken || state.taken.contains(&key) || is_full {
            return None;
        }
        state.token += 1;
        let flag = Arc::new(Flag::default());
        state.flags.insert(key, Arc::clone(&flag));
        self.0.held.fetch_add(1, Ordering::SeqCst);
        Some(Ok(Box::new(Held {
            token: state.token,
            flag,
            leases: self.clone(),
        })))
    }
}

pub(super) struct Held {
    pub(super) token: u64,
    pub(super) flag: Arc<Flag>,
    pub(super) leases: Leases,
}

impl LaneLease for Held {
    fn token(&self) -> u64 {
        self.token
    }

    fn held_until(&self) -> Option<Instant> {
        match self.flag.is_lost.load(Ordering::SeqCst) {
            true => None,
            false => Some(Instant::now() + HOUR),
        }
    }

    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.flag.waker.register(cx.waker());
        match self.flag.is_lost.load(Ordering::SeqCst) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.leases.0.held.fetch_sub(1, Ordering::SeqCst);
        self.leases.0.changed.notify_waiters();
    }
}

pub(super) trait AsU64: Send + Sync + 'static {
    fn as_u64(&self) -> u64;
}

impl AsU64 for u64 {
    fn as_u64(&self) -> u64 {
        *self
    }
}

/// `10 * key + n`.
pub(super) type Message = u64;
pub(super) type Lanes = Dispatcher<u64, Message, u64, ()>;

/// What handlers have done.
#[derive(Default)]
pub(super) struct Log {
    /// Message, attempt, token.
    pub(super) started: Mutex<Vec<(Message, u32, Option<u64>)>>,
    pub(super) done: Mutex<Vec<Message>>,
    pub(super) running: AtomicUsize,
}

impl Log {
    pub(super) fn started(&self) -> Vec<(Message, u32, Option<u64>)> {
        self.started.lock().unwrap().clone()
    }

    pub(super) fn done(&self) -> Vec<Message> {
        self.done.lock().unwrap().clone()
    }

    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }
}

pub(super) fn key(message: &Message) -> u64 {
    message / 10
}

pub(super) fn builder()
-> Builder<u64, Message, (), impl Fn(&Message) -> Option<u64> + Send + Sync + 'static> {
    Dispatcher::builder(key)
}

/// Messages whose last digit is 9 take a permit, those with an 8 fail.
pub(super) struct Rig {
    pub(super) lanes: Lanes,
    pub(super) leases: Leases,
    pub(super) log: Arc<Log>,
    pub(super) gate: Arc<Semaphore>,
}

pub(super) fn rig<F>(leases: &Leases, builder: Builder<u64, Message, (), F>) -> Rig
where
    F: Fn(&Message) -> Option<u64> + Send + Sync + 'static,
{
    let (log, gate) = (Arc::new(Log::default()), Arc::new(Semaphore::new(0)));
    let handler = {
        let (log, gate) = (Arc::clone(&log), Arc::clone(&gate));
        move |context: keylane::Context<u64>, message: Message| {
            let (log, gate) = (Arc::clone(&log), Arc::clone(&gate));
            async move {
                let token = context.lease_token();
                let attempt = context.attempt();
                log.started.lock().unwrap().push((message, attempt, token));
                log.running.fetch_add(1, Ordering::SeqCst);
                let _running = Call(&log.running);
                match message % 10 {
                    9 => gate.acquire().await.unwrap().forget(),
                    8 => return Err(()),
                    _ => {}
                }
                log.done.lock().unwrap().push(message);
                Ok(message)
            }
        }
    };
    Rig {
        lanes: builder
            .leased_by(leases.clone())
            .spawn(boxed(handler))
            .unwrap(),
        leases: leases.clone(),
        log,
        gate,
    }
}

pub(super) fn plain(leases: &Leases) -> Rig {
    rig(leases, builder())
}

/// Those that the messages of tests have.
const KEYS: [u64; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

impl Rig {
    pub(super) async fn submit(&self, message: Message) -> Receipt<Message, u64, ()> {
        self.lanes.submit(message).await.unwrap()
    }

    pub(super) fn state(&self, key: u64) -> Option<LaneState> {
        self.lanes.inspect(&key).map(|view| view.state)
    }

    #[track_caller]
    pub(super) fn assert_waits(&self, key: u64) {
        assert_eq!(self.state(key), Some(LaneState::Leasing));
        assert_eq!(self.lanes.stats().in_flight, 0, "it takes no concurrency");
        self.assert_counted();
    }

    /// What the lanes wait for is what the gauges count.
    #[track_caller]
    pub(super) fn assert_counted(&self) {
        check_waits(&self.lanes, &KEYS);
    }
}

/// At the end of each test.
impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_counted();
        }
    }
}

/// Lets everything happen that happens without time.
pub(super) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
