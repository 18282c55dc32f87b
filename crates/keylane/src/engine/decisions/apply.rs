//! Applies what followed from the decision of a lane, once the lock of its shard is released.
//!
//! [`Decisions::apply`] wakes senders, settles messages, arms timers, asks the version store, and
//! returns what goes into the ready queue.

use keylane_lanes::{Due, Effects, Few, Gap, Opening, Out, Store};
use keylane_rt::clock::{self, Instant};

use super::Decisions;
use crate::engine::end::Stage;
use crate::engine::lane::{Lane, LaneEffects, open};
use crate::engine::message::{Held, Job, Parked, Queued, RetryDue, StoreRequest, WakeUp, Work};
use crate::engine::settlement::Tally;
use crate::types::Spec;

impl<T: Spec> Decisions<T> {
    /// Applies the other effects of a decision. Returns what goes into the ready queue. Letters for
    /// messages that left without a lane to wait for them go into `letters`.
    ///
    /// What has to be decided next writes its effects over those that were applied, until nothing
    /// is left to decide.
    #[inline]
    pub(crate) fn apply(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        effects: &mut LaneEffects<T>,
        letters: &mut Vec<Queued<T>>,
    ) -> Option<Queued<T>> {
        loop {
            if let Some(at) = effects.expires_at {
                let (key, due) = (key.clone(), Due::Expiry(at));
                self.clocks.arm_wake_up(WakeUp::Lane { key, hash, due }, at);
            }
            if effects.has_others()
                && let Some(pair) = self.apply_others(tally, &key, hash, effects, letters)
            {
                self.offer_merged(tally, &key, hash, pair, effects);
            } else if effects.holds && self.shutdown.stage() > Stage::Open {
                if !self.close_lane(tally, &key, hash, effects) {
                    return None;
                }
            } else {
                return self.let_go(key, hash, effects);
            }
        }
    }

    /// What goes into the ready queue.
    #[inline]
    fn let_go(&self, key: T::Key, hash: u64, effects: &mut LaneEffects<T>) -> Option<Queued<T>> {
        match std::mem::replace(&mut effects.out, Out::Nothing) {
            Out::Nothing => {
                if std::mem::needs_drop::<T::Key>() {
                    self.probe.drop_quietly(key);
                }
                None
            }
            Out::Lane { class } => Some(Queued::Lane { key, hash, class }),
            Out::Message(parked) => Some(Job::first(Some(key), hash, parked).into()),
            Out::Head {
                head,
                restarts,
                counts,
            } => Some(self.let_out(key, hash, *head, restarts, counts).into()),
        }
    }

    /// Applies what followed from a head that settled, or from a lane that was asked.
    #[inline]
    pub(crate) fn follow(
        &self,
        key: T::Key,
        hash: u64,
        effects: &mut LaneEffects<T>,
    ) -> Option<Queued<T>> {
        if effects.has_others() || effects.holds || effects.expires_at.is_some() {
            return self.follow_others(key, hash, effects);
        }
        self.let_go(key, hash, effects)
    }

    #[inline(never)]
    fn follow_others(
        &self,
        key: T::Key,
        hash: u64,
        effects: &mut LaneEffects<T>,
    ) -> Option<Queued<T>> {
        let mut tally = Tally::default();
        let queued = self.apply_quiet(&mut tally, key, hash, effects);
        if !tally.is_empty() {
            self.settlement.flush(&mut tally);
        }
        queued
    }

    /// Applies what followed from a decision that turns no message away.
    pub(crate) fn apply_quiet(
        &self,
        tally: &mut Tally,
        key: T::Key,
        hash: u64,
        effects: &mut LaneEffects<T>,
    ) -> Option<Queued<T>> {
        let mut letters = Vec::new();
        let queued = self.apply(tally, key, hash, effects, &mut letters);
        assert!(letters.is_empty(), "only what comes in can be turned away");
        queued
    }

    /// Applies all but what goes into the ready queue. Returns two messages that have to be merged.
    #[inline(never)]
    fn apply_others(
        &self,
        tally: &mut Tally,
        key: &T::Key,
        hash: u64,
        effects: &mut LaneEffects<T>,
        letters: &mut Vec<Queued<T>>,
    ) -> Option<(Parked<T>, Few<Parked<T>>)> {
        let overflows = effects.overflows();
        let rare = effects.rare.take().map(|rare| *rare);
        let rare = rare.unwrap_or_default();
        open(std::mem::replace(&mut effects.opening, Opening::Nothing));
        if let Some(accepted_at) = rare.stalled_since {
            self.table.note_stalled(hash, accepted_at);
        }
        self.arm_timers(key, hash, effects.wake, rare.gap_until);
        if effects.stale {
            self.clocks.outdate();
        }
        if overflows {
            self.probe.notify_overflowed(key);
        }
        if let Some(gap) = rare.gap {
            self.report_gap(key, hash, gap);
        }
        if let Some((head, taken)) = rare.taken {
            self.settle_taken(tally, *head, taken);
        }
        for (parked, why) in std::mem::replace(&mut effects.left, Few::None) {
            let letter = self.settle_left(tally, key, hash, parked, why);
            letters.extend(letter.map(Queued::Job));
        }
        for body in rare.bodies {
            self.probe.drop_quietly(body);
        }
        match rare.store {
            None => {}
            Some(Store::Load) => self.ask_store(key.clone(), hash, None),
            Some(Store::Record(version)) => self.ask_store(key.clone(), hash, Some(version)),
        }
        rare.merge
    }

    /// Closes a lane that begins to wait during the shutdown: a batch waits for no more messages,
    /// and what waits for something that will not come is handed back. False: the lane is gone.
    #[cold]
    fn close_lane(
        &self,
        tally: &mut Tally,
        key: &T::Key,
        hash: u64,
        effects: &mut LaneEffects<T>,
    ) -> bool {
        // The router may have swept before the lane began to wait.
        let is_over = self.shutdown.hands_back();
        let is_stuck = self.shutdown.has_intake_ended();
        if is_over || is_stuck {
            self.table.evict_one(tally, key, hash);
        }
        *effects = Effects::new();
        self.table
            .step(key, hash, clock::now(), effects, Lane::<T>::close)
    }

    fn arm_timers(
        &self,
        key: &T::Key,
        hash: u64,
        wake: Option<Due>,
        gap_until: Option<(Instant, Instant)>,
    ) {
        match wake {
            None => {}
            Some(Due::Expiry(_)) => unreachable!("it has a field of its own"),
            Some(Due::Backoff(until)) => {
                let key = key.clone();
                self.clocks
                    .arm_retry(RetryDue::Lane { key, hash, until }, until);
            }
            Some(due @ (Due::Wait(at) | Due::Gap(at))) => {
                self.wake_at(key, hash, due, at);
            }
        }
        if let Some((since, until)) = gap_until {
            self.wake_at(key, hash, Due::Gap(since), until);
        }
    }

    fn wake_at(&self, key: &T::Key, hash: u64, due: Due, at: Instant) {
        let key = key.clone();
        self.clocks
            .arm_wake_up(WakeUp::Lane { key, hash, due }, self.clocks.stamp(at));
    }

    /// Lets out a job that its lane held.
    fn let_out(
        &self,
        key: T::Key,
        hash: u64,
        mut head: Held<T>,
        restarts: bool,
        counts: bool,
    ) -> Job<T> {
        if restarts {
            let attempts = u8::try_from(head.work.attempts()).unwrap_or(u8::MAX);
            let charge = head.envelope.obligation.charge_mut();
            charge.earlier = charge.earlier.saturating_add(attempts);
            let work = std::mem::replace(&mut head.work, Work::Attempt(1));
            self.probe.drop_quietly(work);
        } else if counts && head.work.is_attempt() {
            self.probe.counters.retries.add(1);
        }
        Job::again(Some(key), hash, head)
    }

    /// Merges a newcomer and the message that waited in the lane. No other message comes in
    /// meanwhile: only the router places messages.
    fn offer_merged(
        &self,
        tally: &mut Tally,
        key: &T::Key,
        hash: u64,
        waiting: (Parked<T>, Few<Parked<T>>),
        effects: &mut LaneEffects<T>,
    ) {
        let survivor = self.merge(tally, waiting);
        let now = clock::now();
        let (rules, spares) = (&self.table.rules, self.table.lanes.spares());
        *effects = Effects::new();
        self.table
            .step_or_make(key, hash, now, effects, |lane, effects| {
                lane.offer_merged(survivor, now, rules, spares, effects);
            });
    }

    /// Notifies the subscribers which versions are missing.
    fn report_gap(&self, key: &T::Key, hash: u64, gap: Gap) {
        tracing::warn!(
            target: "keylane",
            key = %self.probe.shown(Some(key), hash),
            first = gap.first,
            last = gap.last,
            "versions are missing"
        );
        self.probe.notify_gap(key, gap.first, gap.last);
        let halts = self
            .table
            .rules
            .sequence()
            .is_some_and(|rules| rules.halts());
        if halts {
            let why = || format!("versions {} to {} are missing", gap.first, gap.last);
            self.probe
                .notify_halted(key, self.probe.is_watched().then(|| (0, why())));
        }
    }

    /// Sends a request to the store task: load or record a version.
    pub(crate) fn ask_store(&self, key: T::Key, hash: u64, record: Option<u64>) {
        if let Some(store_requests) = &self.store_requests {
            // If the task is gone, so is the dispatcher's runtime.
            let _ = store_requests.send(StoreRequest {
                key,
                hash,
                record,
                wait: StoreRequest::<T::Key>::FIRST_WAIT,
            });
        }
    }
}
