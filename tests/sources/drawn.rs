//! All that a dispatcher of a source can be set to, and all that can happen to it, drawn together:
//! batches, lanes whose number changes, leases that are lost, messages that are recalled, attempts
//! that are used up, messages that expire. One judge: nothing is lost, each message settles, and the
//! order of every key holds.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::{Intake, IntakeSettings};
use keylane::lease::{LaneLease, LaneLeaseError, LaneLeases};
use keylane::routing::HashLane;
use keylane::source::{Features, RawMessage, Source};
use keylane::{Builder, Context, Dispatcher, OnExhausted, Overflow, Retry};
use keylane_testkit::reference::{Call, Loss, ReferenceServer};
use keylane_testkit::scenario::{MS, Random, SECOND, repeats, watch_for_engine_panics, within};
use keylane_testkit::{Evidence, History, Id, LetterBox, Outcome, ScriptError};
use tokio::time::Instant;

use crate::support::{
    LaneKey, OrdersBy, Rig, adds_up, come_to_rest, id_of, plain, settings, some_features,
    stats_add_up,
};

/// What a run is set to.
#[derive(Debug)]
struct Plan {
    features: Features,
    partitions: usize,
    /// Lanes for keys, or so many for all of them.
    hash_lanes: Option<usize>,
    capacity: Option<usize>,
    lane_capacity: Option<usize>,
    concurrency: usize,
    batch: Option<(usize, Duration)>,
    leased: bool,
    /// Most attempts. Where they may be used up, what then happens.
    attempts: u32,
    gives_up: GivesUp,
    expires: Option<Duration>,
    fails: u64,
    longest: u64,
    held: usize,
    held_bytes: usize,
    deferred: usize,
    revoke_within: Duration,
    keys: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivesUp {
    Never,
    Letters,
    AtSource,
    Discards,
}

impl Plan {
    fn draw(random: &mut Random) -> Self {
        let mut features = some_features(plain(), random);
        if random.one_in(2) {
            features = features.random_access();
        }
        if random.one_in(3) {
            features = features.dead_letters();
        }
        let gives_up = match random.below(6) {
            0 => GivesUp::Letters,
            1 if features.keeps_dead_letters() => GivesUp::AtSource,
            2 => GivesUp::Discards,
            _ => GivesUp::Never,
        };
        let up_to = |random: &mut Random, most: u64| 1 + random.below(most) as usize;
        Self {
            features,
            partitions: up_to(random, 3),
            hash_lanes: random.one_in(2).then(|| up_to(random, 5)),
            capacity: random.one_in(3).then(|| up_to(random, 30)),
            lane_capacity: (!random.one_in(4)).then(|| up_to(random, 12)),
            concurrency: up_to(random, 8),
            batch: random.one_in(2).then(|| {
                let linger = Duration::from_millis(random.below(10));
                (1 + up_to(random, 7), linger)
            }),
            leased: random.one_in(3),
            attempts: match gives_up {
                GivesUp::Never => 1_000,
                _ => 1 + random.below(3) as u32,
            },
            gives_up,
            expires: random
                .one_in(6)
                .then(|| Duration::from_millis(20 + random.below(200))),
            fails: 2 + random.below(30),
            longest: 1 + random.below(20),
            held: up_to(random, 150),
            held_bytes: match random.one_in(3) {
                true => up_to(random, 1_000),
                false => usize::MAX,
            },
            deferred: [0, 1, 70, 10_000][random.below(4) as usize],
            revoke_within: Duration::from_millis(random.below(60)),
            keys: 1 + random.below(5),
        }
    }

    fn settings(&self) -> IntakeSettings {
        settings()
            .held(self.held)
            .held_bytes(self.held_bytes)
            .deferred(self.deferred)
            .revoke_within(self.revoke_within)
            .stall_after(2 * SECOND)
            .confirm_every(Duration::from_millis(1 + self.held as u64 % 50))
    }

    fn spawn<K: LaneKey>(
        &self,
        builder: Builder<
            K,
            RawMessage,
            ScriptError,
            impl Fn(&RawMessage) -> Option<K> + Send + Sync + 'static,
        >,
        (work, leases, letters): (&Work, &Office, &LetterBox),
    ) -> OrdersBy<K> {
        let mut builder = builder
            .retry(Retry::fixed(5 * MS).max_attempts(self.attempts))
            .on_exhausted(match self.gives_up {
                GivesUp::Never => OnExhausted::Halt,
                GivesUp::Letters => OnExhausted::dead_letter(letters.sink(id_of)),
                GivesUp::AtSource => OnExhausted::AtSource,
                GivesUp::Discards => OnExhausted::Discard,
            })
            .concurrency(self.concurrency);
        if let Some(capacity) = self.capacity {
            builder = builder.capacity(capacity);
        }
        if let Some(capacity) = self.lane_capacity {
            builder = builder.lane_capacity(capacity, Overflow::Wait);
        }
        if self.leased {
            builder = builder.leased_by(leases.clone());
        }
        if let Some(expires) = self.expires {
            builder = builder.expire_after(expires);
        }
        let work = work.clone();
        match self.batch {
            None => builder
                .spawn(move |message: RawMessage| {
                    let work = work.clone();
                    async move { work.run(vec![message]).await.remove(0) }
                })
                .unwrap(),
            Some((most, linger)) => builder
                .batch(most, linger)
                .spawn_batches(move |_: Context<K>, messages: Vec<RawMessage>| {
                    let work = work.clone();
                    async move { work.run(messages).await }
                })
                .unwrap(),
        }
    }
}

/// What handlers do.
#[derive(Clone)]
struct Work {
    history: History,
    starts: Arc<Mutex<HashMap<Id, u32>>>,
    fails: u64,
    /// Whether a message that fails does so each time, and is given up in the end.
    gives_up: bool,
    longest: u64,
}

/// The first attempt of a batch, which may be dropped.
struct Running<'a> {
    history: &'a History,
    first: Option<(Id, u32)>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some((id, attempt)) = self.first {
            self.history.end(id, attempt, Outcome::Dropped);
        }
    }
}

impl Work {
    fn start(&self, id: Id) -> u32 {
        let attempt = {
            let mut starts = self.starts.lock().unwrap();
            let attempt = starts.entry(id).or_default();
            *attempt += 1;
            *attempt
        };
        self.history.start(id, attempt, 0);
        attempt
    }

    /// Handles messages of one lane, one after the other. Only the first one has begun until the time
    /// has passed: those behind it are as if they had not, if the attempt is dropped.
    async fn run(&self, messages: Vec<RawMessage>) -> Vec<Result<Id, ScriptError>> {
        let ids: Vec<Id> = messages.iter().map(id_of).collect();
        let attempt = self.start(ids[0]);
        let mut running = Running {
            history: &self.history,
            first: Some((ids[0], attempt)),
        };
        let dice = ids[0] * 7 + u64::from(attempt);
        tokio::time::sleep(Duration::from_millis(dice * 13 % self.longest)).await;
        if !self.gives_up && dice % (7 * self.fails) == 3 {
            resume_unwind(Box::new("as drawn"));
        }
        running.first = None;
        let mut answers = Vec::new();
        for (n, &id) in ids.iter().enumerate() {
            let attempt = if n == 0 { attempt } else { self.start(id) };
            // What is given up is so again, if it comes again because its ack was lost.
            let dice = id * 7 + u64::from(attempt) * u64::from(!self.gives_up);
            let (outcome, answer) = match dice.is_multiple_of(self.fails) {
                true => (Outcome::Error, Err(ScriptError::Error(id))),
                false => (Outcome::Ok, Ok(id)),
            };
            self.history.end(id, attempt, outcome);
            answers.push(answer);
        }
        answers
    }
}

/// Leases of one office, which takes all of them back now and then.
#[derive(Clone, Default)]
struct Office(Arc<Mutex<Leases>>);

#[derive(Default)]
struct Leases {
    /// All that were given before this one are lost.
    lost_before: u64,
    given: u64,
    losses: u64,
    wakers: Vec<Waker>,
    delay: Duration,
}

struct Lease {
    office: Office,
    token: u64,
}

impl Office {
    fn lose_all(&self) {
        let wakers = {
            let mut leases = self.0.lock().unwrap();
            leases.lost_before = leases.given + 1;
            leases.losses += 1;
            std::mem::take(&mut leases.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[keylane::async_trait]
impl<K: LaneKey> LaneLeases<K> for Office {
    async fn acquire(&self, _: &K) -> Result<Box<dyn LaneLease>, LaneLeaseError> {
        let delay = self.0.lock().unwrap().delay;
        tokio::time::sleep(delay).await;
        let mut leases = self.0.lock().unwrap();
        leases.given += 1;
        Ok(Box::new(Lease {
            office: self.clone(),
            token: leases.given,
        }))
    }

    fn losses(&self) -> u64 {
        self.0.lock().unwrap().losses
    }

    fn linger(&self) -> Duration {
        10 * MS
    }
}

impl LaneLease for Lease {
    fn token(&self) -> u64 {
        self.token
    }

    fn held_until(&self) -> Option<Instant> {
        let leases = self.office.0.lock().unwrap();
        (self.token >= leases.lost_before).then(|| Instant::now() + SECOND)
    }

    fn poll_lost(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let mut leases = self.office.0.lock().unwrap();
        if self.token < leases.lost_before {
            return Poll::Ready(());
        }
        leases.wakers.push(cx.waker().clone());
        Poll::Pending
    }
}

/// Something happens. True: the number of lanes is to change.
async fn disturb(rig: &Rig, intake: &Intake, office: &Office, random: &mut Random) -> bool {
    let server = &rig.server;
    let faults = server.faults();
    let loss = match random.one_in(2) {
        true => Loss::Silent,
        false => Loss::Told,
    };
    let calls = [
        Call::Open,
        Call::Receive,
        Call::Settle,
        Call::Confirm,
        Call::Release,
        Call::Reread,
        Call::DeadLetter,
    ];
    let call = calls[random.below(7) as usize];
    let what = random.below(20);
    println!("  {:?}: {what} {call:?} {loss:?}", Instant::now());
    match what {
        0 => server.revoke(),
        1 => server.lose(),
        2 => server.cut(),
        3 => {
            server.kill();
            tokio::time::sleep(Duration::from_millis(random.below(300))).await;
            server.start();
        }
        4 => server.stall(),
        5 => faults.lose_settles(1, loss),
        6 => faults.cut_before_ack(1),
        7 => faults.fail(call, 1),
        8 => faults.panic_in(call, 1),
        9 => faults.be_slow(Duration::from_millis(random.below(20))),
        10 => faults.refuse_letters(1 + random.below(2) as usize),
        11 => faults.refuse_starts(1 + random.below(3) as usize),
        12 => {
            intake.pause();
            tokio::time::sleep(Duration::from_millis(random.below(100))).await;
            intake.resume();
        }
        // Without nack it would not come again.
        13 | 14 if server.source().features().has_nack() => {
            // All from one on, so that none is overtaken by what is behind it.
            let first = rig.history.handled().len() as u64 + random.below(20);
            server.recall(|raw| id_of(raw) >= first);
        }
        15 => office.lose_all(),
        16 | 17 => return true,
        _ => faults.none(),
    }
    false
}

async fn run_with<K: LaneKey>(
    plan: &Plan,
    random: &mut Random,
    rig: &Rig,
    (orders, office): (OrdersBy<K>, Office),
    resize: impl AsyncFn(&OrdersBy<K>, usize),
) {
    let consume = || {
        let source = rig.server.source();
        orders.consume_with(source, plan.settings()).unwrap()
    };
    let mut intake = consume();
    for _ in 0..12 {
        let count = random.below(60);
        rig.publish((0..count).map(|_| match random.one_in(3) {
            true => random.below(plan.keys),
            false => 0,
        }));
        for _ in 0..random.below(3) {
            tokio::time::sleep(Duration::from_millis(random.below(40))).await;
            stats_add_up(&intake);
        }
        if disturb(rig, &intake, &office, random).await {
            resize(&orders, 1 + random.below(6) as usize).await;
        }
        if random.one_in(8) {
            let limit = Duration::from_millis(random.below(100));
            let report = within(async { intake.stop().within(limit).await }).await;
            adds_up(&report);
            intake = consume();
        }
    }
    come_to_rest(rig, &orders, intake).await;
    let handled: BTreeSet<Id> = rig.history.handled().into_iter().collect();
    let stats = orders.stats();
    let unhandled: BTreeSet<Id> = rig.sent().filter(|id| !handled.contains(id)).collect();
    let given_up = stats.dead_lettered + stats.discarded + stats.expired;
    assert!(
        unhandled.len() as u64 <= given_up,
        "lost: {unhandled:?} of which {given_up} were given up"
    );
    // One that has expired and whose ack is lost may be handled when it comes again, behind others.
    if plan.expires.is_none() {
        rig.judge(&orders, Evidence::new().redelivers().discarded(unhandled));
    }
}

async fn run(seed: u64) {
    watch_for_engine_panics();
    let mut random = Random::new(seed);
    let plan = Plan::draw(&mut random);
    println!("seed {seed}: {plan:?}");
    let server = ReferenceServer::new(plan.features).partitions(plan.partitions);
    let rig = Rig::of(server);
    let office = Office::default();
    office.0.lock().unwrap().delay = Duration::from_millis(random.below(5));
    // A message whose ack is lost comes again, and has another letter: that is not judged here.
    let letters = LetterBox::new(&History::new());
    let work = Work {
        history: rig.history.clone(),
        starts: Arc::default(),
        fails: plan.fails,
        gives_up: plan.gives_up != GivesUp::Never,
        longest: plan.longest,
    };
    let with = (&work, &office, &letters);
    match plan.hash_lanes {
        None => {
            let builder = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone());
            let orders = plan.spawn::<Bytes>(builder, with);
            run_with(
                &plan,
                &mut random,
                &rig,
                (orders, office.clone()),
                async |_, _| {},
            )
            .await;
        }
        Some(lanes) => {
            let lanes = NonZeroUsize::new(lanes).unwrap();
            let builder = Dispatcher::hash_lanes(lanes, |message: &RawMessage| message.key.clone());
            let orders = plan.spawn::<HashLane>(builder, with);
            run_with(
                &plan,
                &mut random,
                &rig,
                (orders, office.clone()),
                async |orders, lanes| {
                    // It is carried out, whether it is waited for or not.
                    let _ = tokio::time::timeout(MS, orders.resize(lanes)).await;
                },
            )
            .await;
        }
    }
}

/// `SOURCES_DRAWN=20000 cargo test -p tests --test sources drawn` looks for longer, and
/// `SOURCES_DRAWN_FROM=77` begins with that seed.
#[tokio::test(start_paused = true)]
async fn settings_and_faults_are_drawn_together() {
    let from = std::env::var("SOURCES_DRAWN_FROM");
    let from = from.map_or(0, |from| from.parse().unwrap());
    for seed in from..from + repeats("SOURCES_DRAWN", 200) {
        run(seed).await;
    }
}
