//! The core against a naive world: a sink that fails, writes in part and refuses, but never
//! reorders; a disk that fails; crashes. The guarantees judge the result.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::core::{Batch, Flight, Flush, Landing, Moment, Offer, Settings, Waiter, Wants};
use crate::error::PushError;
use crate::id::Epoch;
use crate::journal::DiskErrorKind;
use crate::message::Message;
use crate::policy::{AtLimit, Persist};
use crate::sink::Fate;
use crate::size::size_of;

#[derive(Clone, Debug)]
enum Step {
    Push {
        key: u8,
        len: usize,
    },
    /// Time passes, and the driver looks.
    Drive(u64),
    /// A batch returns: for each message whether it was written, and then how it failed.
    Land {
        flight: prop::sample::Index,
        answer: Answers,
    },
    /// The writer takes work.
    Begin,
    /// The writer answers; or takes work and answers at once.
    Write {
        works: bool,
    },
    Resume(u8),
    Skip(u8),
    Flush,
    Crash,
    Close {
        disk_works: bool,
    },
}

#[derive(Clone, Debug)]
enum Answers {
    Written,
    /// The sink keeps the order: of each key a prefix is written.
    Partly(Vec<bool>),
    Refused(Vec<bool>),
    Unnamed,
    /// Written, but the answer was lost.
    Unknown,
}

fn any_answers() -> impl Strategy<Value = Answers> {
    let bits = || proptest::collection::vec(any::<bool>(), 1..8);
    prop_oneof![
        6 => Just(Answers::Written),
        2 => bits().prop_map(Answers::Partly),
        1 => bits().prop_map(Answers::Refused),
        1 => Just(Answers::Unnamed),
        1 => Just(Answers::Unknown),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0_u8..4, 0_usize..400).prop_map(|(key, len)| Step::Push { key, len }),
        6 => (0_u64..200).prop_map(Step::Drive),
        6 => (any::<prop::sample::Index>(), any_answers())
            .prop_map(|(flight, answer)| Step::Land { flight, answer }),
        3 => Just(Step::Begin),
        6 => prop::bool::weighted(0.9).prop_map(|works| Step::Write { works }),
        1 => (0_u8..4).prop_map(Step::Resume),
        1 => (0_u8..4).prop_map(Step::Skip),
        1 => Just(Step::Flush),
        1 => Just(Step::Crash),
        1 => any::<bool>().prop_map(|disk_works| Step::Close { disk_works }),
    ]
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let persist = prop_oneof![
        Just(Persist::Each),
        (1_usize..12).prop_map(Persist::EveryMessages),
        (1_u64..100).prop_map(|ms| Persist::Every(Duration::from_millis(ms))),
        Just(Persist::None),
    ];
    let at_limit = prop_oneof![
        Just(AtLimit::Wait),
        Just(AtLimit::Reject),
        Just(AtLimit::DropOldest)
    ];
    let batch = (1_usize..6, 200_usize..2_000, 0_u64..50);
    let room = (4_096_usize..8_192, prop::option::of(2_048_u64..16_384));
    (persist, at_limit, batch, 1_usize..4, room, any::<bool>()).prop_map(
        |(persist, at_limit, (count, bytes, linger), in_flight, (memory, disk), halts)| Settings {
            batch: Batch {
                count,
                bytes,
                linger: Duration::from_millis(linger),
            },
            in_flight,
            persist: disk.map_or(Persist::None, |_| persist),
            at_limit,
            memory,
            disk,
            max_message: disk.map_or(memory, |disk| (memory / 4).min(disk as usize)),
            halts,
        },
    )
}

/// The state that the core does not decide.
struct World {
    settings: Settings,
    core: Core,
    now: Instant,
    disk: BTreeMap<u64, Spooled>,
    flights: Vec<Flight>,
    /// The current work of the writer.
    work: Option<Work>,
    waiters: Vec<(u64, Waiter)>,
    /// Messages that must not be lost, by the number in their payload.
    acked: Vec<u64>,
    /// In the order of acceptance.
    pushed: Vec<(u64, u8)>,
    /// The messages at the sink, in its order.
    sink: Vec<(u8, u64)>,
    /// Delivered and confirmed to the core in this life of the process.
    confirmed: HashSet<u64>,
    /// May be written again: it was written, and the core or the disk does not know it.
    repeatable: HashSet<u64>,
    gone: HashSet<u64>,
    /// Skipped or dead-lettered.
    skipped: HashSet<u64>,
    epoch: Epoch,
    next: u64,
}

fn number(message: &Spooled) -> u64 {
    u64::from_le_bytes(message.payload[..8].try_into().unwrap())
}

impl World {
    fn new(settings: Settings) -> Self {
        let mut world = Self {
            settings,
            core: Core::new(settings, backoff(), 1, None),
            now: Instant::now(),
            disk: BTreeMap::new(),
            flights: Vec::new(),
            work: None,
            waiters: Vec::new(),
            acked: Vec::new(),
            pushed: Vec::new(),
            sink: Vec::new(),
            confirmed: HashSet::new(),
            repeatable: HashSet::new(),
            gone: HashSet::new(),
            skipped: HashSet::new(),
            epoch: Epoch::default(),
            next: 0,
        };
        world.open();
        world
    }

    fn open(&mut self) {
        self.epoch.count += 1;
        let range = self
            .disk
            .keys()
            .next()
            .copied()
            .zip(self.disk.keys().last().copied());
        let found = self.settings.disk.map(|_| Found {
            spool: 1,
            epoch: self.epoch,
            range,
            messages: self.disk.len() as u64,
            bytes: self
                .disk
                .values()
                .map(|message| size_of(message) as u64)
                .sum(),
        });
        self.core = Core::new(self.settings, backoff(), 1, found);
        self.flights.clear();
        self.work = None;
        self.waiters.clear();
        self.confirmed.clear();
    }

    fn push(&mut self, key: u8, len: usize) {
        let n = self.next;
        let mut payload = n.to_le_bytes().to_vec();
        payload.resize(8 + len, 0);
        match self.core.offer(Message::new(vec![key], payload), false) {
            Offer::Accepted => {
                self.pushed.push((n, key));
                self.next += 1;
            }
            Offer::Storing(waiter) => {
                self.waiters.push((n, waiter));
                self.pushed.push((n, key));
                self.next += 1;
            }
            Offer::Busy(_) | Offer::Refused(_) => {}
        }
        self.check_limits();
    }

    fn drive(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        let step = self.core.step(self.now);
        assert!(
            step.wake_at.is_none_or(|at| step.is_over || at > self.now),
            "the driver spins"
        );
        if step.is_over {
            self.flights.clear();
        }
        self.flights.extend(step.flights);
        self.check_flights();
    }

    /// Batches at the sink share no key.
    fn check_flights(&self) {
        let mut keys = HashMap::new();
        let mut batches = 0;
        for (n, flight) in self.flights.iter().enumerate() {
            let messages = match flight {
                Flight::Letter { letter, .. } => std::slice::from_ref(&letter.message),
                Flight::Batch { batch, .. } => {
                    batches += 1;
                    &batch[..]
                }
            };
            assert!(!messages.is_empty() && messages.len() <= self.settings.batch.count);
            for message in messages {
                let other = keys.insert(message.key.clone(), n);
                assert!(other.is_none_or(|other| other == n), "a key in two flights");
            }
        }
        assert!(batches <= self.settings.in_flight);
        assert!(self.flights.len() - batches <= 1, "two letters");
    }

    fn check_limits(&self) {
        let view = self.core.view();
        assert!(view.bytes <= self.settings.capacity(), "too much: {view:?}");
        assert!(
            view.memory <= self.settings.memory,
            "too much memory: {view:?}"
        );
        if let Persist::EveryMessages(most) = self.settings.persist {
            assert!(self.core.loose <= most, "too much would be lost");
        }
    }

    fn land(&mut self, flight: &prop::sample::Index, answer: &Answers) {
        if self.flights.is_empty() {
            return;
        }
        let at = Moment {
            now: self.now,
            wall: SystemTime::UNIX_EPOCH,
            dice: 0.5,
        };
        let failed = |fates: Vec<Fate>, one_by_one| Landing::Failed {
            fates,
            one_by_one,
            error: "no".into(),
        };
        let (id, batch) = match self.flights.remove(flight.index(self.flights.len())) {
            Flight::Batch { id, batch } => (id, batch),
            Flight::Letter { id, letter } => {
                let n = number(&letter.message);
                let landing = match answer {
                    Answers::Unknown | Answers::Partly(_) => failed(vec![Fate::Again], false),
                    _ => {
                        self.skipped.insert(n);
                        self.confirmed.insert(n);
                        self.gone.insert(n);
                        Landing::Written
                    }
                };
                self.core.land(id, landing, at);
                return;
            }
        };
        let numbers: Vec<u64> = batch.iter().map(number).collect();
        let landing = match answer {
            Answers::Written => {
                for message in &batch {
                    self.write(message, true);
                }
                Landing::Written
            }
            Answers::Unknown => {
                for message in &batch {
                    self.write(message, false);
                }
                failed(vec![Fate::Again; numbers.len()], false)
            }
            Answers::Unnamed if numbers.len() > 1 => failed(vec![Fate::Again; numbers.len()], true),
            Answers::Unnamed => failed(vec![Fate::Refused], false),
            Answers::Refused(bits) => {
                let fates = bits.iter().cycle().take(numbers.len());
                failed(
                    fates
                        .map(|bit| if *bit { Fate::Refused } else { Fate::Again })
                        .collect(),
                    false,
                )
            }
            Answers::Partly(bits) => {
                let mut stopped = HashSet::new();
                let mut fates = Vec::new();
                for (message, bit) in batch.iter().zip(bits.iter().cycle()) {
                    if *bit && !stopped.contains(&message.key) {
                        self.write(message, true);
                        fates.push(Fate::Written);
                    } else {
                        stopped.insert(message.key.clone());
                        fates.push(Fate::Again);
                    }
                }
                failed(fates, false)
            }
        };
        self.core.land(id, landing, at);
    }

    fn write(&mut self, message: &Spooled, is_confirmed: bool) {
        let n = number(message);
        assert!(
            !self.confirmed.contains(&n),
            "written after it was confirmed"
        );
        let key = message.key[0];
        let has = self.sink.iter().any(|(_, other)| *other == n);
        assert!(
            !has || self.repeatable.contains(&n),
            "a duplicate out of the set"
        );
        if !has {
            let last = self.sink.iter().rev().find(|(other, _)| *other == key);
            // It may come back after a crash, if its removal was not confirmed.
            let is_dropped = self.dropped_by_policy() || self.skipped.contains(&n);
            let may_be_late = is_dropped && message.id.epoch < self.epoch;
            assert!(
                may_be_late || last.is_none_or(|(_, last)| *last < n),
                "key {key}: {n} after {last:?}"
            );
            self.sink.push((key, n));
        }
        if is_confirmed {
            self.confirmed.insert(n);
        } else {
            self.repeatable.insert(n);
        }
    }

    fn begin(&mut self) {
        let has_journal = self.settings.disk.is_some() && self.core.stage() != Stage::Ended;
        if has_journal && self.work.is_none() && self.core.wants() != Wants::Nothing {
            self.work = Some(self.core.take_work());
        }
    }

    fn journal(&mut self, works: bool) {
        self.begin();
        let Some(mut work) = self.work.take() else {
            return;
        };
        if work.is_last {
            self.core.end();
            return;
        }
        if !works {
            let error = DiskError::new(DiskErrorKind::Full, "spool.redb".as_ref(), "planned");
            // Half of the failed commits came through after all.
            if work.appends.len().is_multiple_of(2) {
                self.apply(&work);
            }
            self.core
                .commit_failed(work, &error, SystemTime::UNIX_EPOCH);
            return;
        }
        self.apply(&work);
        let read = work.read.take();
        self.core.committed(&work);
        if let Some((range, bytes)) = read {
            let mut taken = 0;
            let page = self.disk.range(range).map(|(_, message)| message.clone());
            let page: Vec<_> = page
                .enumerate()
                .take_while(|(n, message)| {
                    taken += size_of(message);
                    *n == 0 || taken <= bytes
                })
                .map(|(_, message)| message)
                .collect();
            self.core.page(page);
        }
        self.check_limits();
        // Unless the policy is `None`, messages that are not stored are younger than stored ones.
        if self.settings.persist != Persist::None {
            let upto = self.core.durable_upto;
            let in_memory = self
                .core
                .line
                .iter()
                .chain(self.core.flying())
                .chain(self.core.halted.iter());
            for entry in in_memory {
                assert!(entry.sequence() > upto || self.disk.contains_key(&entry.sequence()));
            }
        }
    }

    fn apply(&mut self, work: &Work) {
        for message in &work.appends {
            self.disk.insert(message.id.sequence, message.clone());
        }
        for sequence in &work.removals {
            self.disk.remove(sequence);
        }
    }

    fn answers(&mut self) {
        let (_, answers) = self.core.take_effects();
        for answer in answers {
            let _ = answer.to.send(answer.result);
        }
        let mut waiting = Vec::new();
        for (n, mut waiter) in std::mem::take(&mut self.waiters) {
            match waiter.try_recv() {
                Ok(Ok(())) => self.acked.push(n),
                Ok(Err(PushError::Disk(message, _) | PushError::Closed(message))) => {
                    assert_eq!(message.payload[..8], n.to_le_bytes());
                    self.gone.insert(n);
                }
                Ok(Err(other)) => panic!("{other:?}"),
                Err(_) => waiting.push((n, waiter)),
            }
        }
        self.waiters = waiting;
    }

    fn crash(&mut self) {
        // Half of the commits in progress have come through.
        let work = self.work.take();
        if let Some(work) = work.filter(|work| work.appends.len().is_multiple_of(2)) {
            self.apply(&work);
        }
        // Messages that were written and may be repeated: they are still on the disk.
        let on_disk: HashSet<u64> = self.disk.values().map(number).collect();
        self.repeatable
            .extend(self.confirmed.intersection(&on_disk));
        // A message that is neither on the disk nor delivered is lost, if the policy allows it.
        let is_strict = self.settings.persist == Persist::Each && !self.dropped_by_policy();
        if self.settings.disk.is_some() && is_strict {
            for n in &self.acked {
                let is_safe = on_disk.contains(n) || self.confirmed.contains(n) || self.has(*n);
                assert!(
                    is_safe || self.gone.contains(n),
                    "{n} was acknowledged and is lost"
                );
            }
        }
        let is_left = |n: &u64| on_disk.contains(n);
        let lost: Vec<u64> = self
            .pushed
            .iter()
            .map(|(n, _)| *n)
            .filter(|n| !is_left(n))
            .collect();
        self.gone.extend(lost);
        self.open();
    }

    fn has(&self, n: u64) -> bool {
        self.sink.iter().any(|(_, other)| *other == n)
    }

    fn dropped_by_policy(&self) -> bool {
        self.settings.at_limit == AtLimit::DropOldest
    }

    /// Checks that the numbers add up. Returned messages come once.
    fn check_end(&mut self) -> Vec<Spooled> {
        assert_eq!(
            self.core.stage(),
            Stage::Ended,
            "it does not end: {:#?}",
            self.core
        );
        let counts = self.core.counts();
        let Left {
            on_disk,
            in_memory,
            returned,
            ..
        } = self.core.take_left();
        assert_eq!(returned.len() as u64, in_memory);
        let settled = counts.delivered + counts.dead_lettered + counts.dropped + counts.skipped;
        assert_eq!(
            counts.accepted + counts.recovered,
            settled + on_disk + in_memory,
            "{counts:?}"
        );
        returned
    }

    /// Everything works from now on: checks that all work ends, and no message is missing.
    fn finish(mut self) {
        self.core.drain(None);
        for _ in 0..4_000 {
            if self.core.stage() == Stage::Ended {
                break;
            }
            self.drive(200);
            while !self.flights.is_empty() {
                self.land(&any_index(), &Answers::Written);
            }
            for key in 0..4 {
                self.core.resume(&[key]);
            }
            self.journal(true);
            self.answers();
        }
        self.check_end();
        let counts = self.core.counts();
        let Left {
            on_disk, in_memory, ..
        } = self.core.take_left();
        assert_eq!(counts.out_of_order, 0);
        if counts.dropped == 0 && !self.dropped_by_policy() && on_disk + in_memory == 0 {
            for (n, key) in &self.pushed {
                assert!(
                    self.has(*n) || self.gone.contains(n) || self.confirmed.contains(n),
                    "{n} of key {key} is missing"
                );
            }
            assert!(self.disk.is_empty(), "left on disk: {:?}", self.disk.keys());
        }
    }
}

fn any_index() -> prop::sample::Index {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    any::<prop::sample::Index>()
        .new_tree(&mut runner)
        .unwrap()
        .current()
}

fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(10), Duration::from_millis(100))
}

fn run(settings: Settings, steps: Vec<Step>) {
    let mut world = World::new(settings);
    for step in steps {
        match step {
            Step::Push { key, len } => world.push(key, len),
            Step::Drive(ms) => world.drive(ms),
            Step::Land { flight, answer } => world.land(&flight, &answer),
            Step::Begin => world.begin(),
            Step::Write { works } => world.journal(works),
            Step::Resume(key) => {
                world.core.resume(&[key]);
            }
            Step::Skip(key) => {
                if let Some(message) = world.core.skip(&[key]) {
                    world.skipped.insert(number(&message));
                    world.confirmed.insert(number(&message));
                    world.gone.insert(number(&message));
                }
            }
            Step::Flush => {
                let upto = world.core.flush();
                let flushed = world.core.flushed(upto);
                let is_empty = world.core.unsettled() == 0;
                let is_ended = world.core.stage() == Stage::Ended;
                assert!(is_ended || (flushed == Flush::Done) == is_empty);
            }
            Step::Crash => world.crash(),
            Step::Close { disk_works } => {
                // With the deadline over at once, and then opened again.
                world.core.drain(Some(Duration::ZERO));
                world.drive(0);
                for _ in 0..1_000 {
                    if world.core.stage() == Stage::Ended {
                        break;
                    }
                    world.journal(disk_works);
                }
                world.answers();
                let returned = world.check_end();
                if world.settings.disk.is_some() && disk_works {
                    assert!(
                        returned.is_empty(),
                        "the disk works, and these are not stored"
                    );
                }
                world.gone.extend(returned.iter().map(number));
                world.crash();
            }
        }
        world.answers();
    }
    world.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(2_048)))]

    #[test]
    fn the_promises_hold(
        settings in any_settings(),
        steps in proptest::collection::vec(any_step(), 0..120),
    ) {
        run(settings, steps);
    }
}
