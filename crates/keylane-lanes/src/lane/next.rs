//! The next start of a lane.

use keylane_rt::clock::Instant;

use super::super::gate::Gate;
use super::super::item::Item;
use super::super::rules::{PlanRules, Rules, Survivor, later};
use super::effects::{Effects, Few, Left, Memory, Out, Stall, Store};
use super::state::{State, Timer, Transition, WaitReason};
use super::{Due, Lane, Next, Spares};

/// The reason why a head comes back to its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It is tried again, or brought to the dead-letter sink again, at this time.
    Retry(Instant),
    /// Its next attempt was due at this time, and its key is paused.
    Paused(Instant),
    /// It had to go on at this time, and the lease of its key is not held.
    Unleased(Instant),
    /// It was given up on, and the policy is to stop.
    Halt,
}

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    /// Decides what starts when a runner takes this lane out of the ready queue.
    pub fn next(&mut self, now: Instant, rules: &Rules, effects: &mut Effects<T, H, G>) {
        self.pick(now, rules, effects);
        if !effects.removes {
            self.open_or_renew_gate(rules, effects);
        }
    }

    /// Moves on after the head has settled, in any lane. If later messages can still change what
    /// starts, the lane itself goes into the ready queue.
    pub fn advance(&mut self, now: Instant, rules: &Rules, effects: &mut Effects<T, H, G>) {
        if !rules.has_discipline() {
            return self.advance_plain(rules, effects);
        }
        if self.is_bare() && self.parked_len() == 0 {
            // It was alone, and no plan, rate or operator keeps anything of it.
            let next = self.finish();
            effects.removes = matches!(next, Next::Remove);
            return;
        }
        self.requeue();
        if self.parked_len() > 0 && !rules.starts_at_once() {
            effects.out = self.queued();
        } else {
            self.pick(now, rules, effects);
        }
        if !effects.removes {
            self.open_or_renew_gate(rules, effects);
        }
    }

    /// The head settled in a lane without a discipline that is full, paused or has a watermark, or
    /// was.
    fn advance_plain(&mut self, rules: &Rules, effects: &mut Effects<T, H, G>) {
        self.count_departure(rules, effects);
        if self.is_paused() {
            self.requeue();
            return self.wait(WaitReason::Paused, None, effects);
        }
        match self.finish() {
            Next::Start(item) => effects.out = Out::Message(item),
            Next::Stay => {}
            Next::Remove => {
                self.remove_gate(effects);
                effects.removes = true;
            }
        }
    }

    /// Takes back a head that may not go on now. The messages that wait with it do not count.
    pub fn hold(&mut self, head: Box<H>, hold: Hold, effects: &mut Effects<T, H, G>) {
        match hold {
            Hold::Retry(until) => {
                self.back_off(head, until);
                effects.wake = Some(Due::Backoff(until));
            }
            Hold::Paused(until) => {
                let timer = Timer::Spent;
                self.transition(Transition::BackOff, State::Backoff { until, timer, head });
            }
            Hold::Unleased(until) => {
                let timer = Timer::Unleased;
                self.transition(Transition::BackOff, State::Backoff { until, timer, head });
            }
            Hold::Halt => {
                self.transition(Transition::Halt, State::Halted { head });
                effects.halted.up();
            }
        }
        effects.stall = Stall::Lane;
        effects.holds = true;
    }

    /// Takes back a message that was out and has not started, because its key is paused or its time
    /// has not come. The members of its batch come back with it, the first one first.
    pub fn take_back(
        &mut self,
        items: Vec<T>,
        until: Option<Instant>,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        let reason = WaitReason::Delay;
        self.come_back(items, (reason, until), spares, effects);
    }

    /// Messages that were out wait in the lane: for this, or for `resume` if it is paused.
    fn come_back(
        &mut self,
        items: Vec<T>,
        (reason, until): (WaitReason, Option<Instant>),
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        let (reason, until) = match self.is_paused() {
            true => (WaitReason::Paused, None),
            false => (reason, until),
        };
        for item in items.into_iter().rev() {
            self.park_again(item, spares, effects);
        }
        if let Some(more) = &mut self.more {
            more.plan.reset_batch();
        }
        self.wait(reason, until, effects);
    }

    /// Takes back a message that was out and has not started, because the lease of its key is not
    /// held. The members of its batch come back with it, the first one first.
    ///
    /// It has used nothing of its rate, and its batch does not wait for more messages again.
    pub fn wait_for_lease(
        &mut self,
        items: Vec<T>,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        self.come_back(items, (WaitReason::Lease, None), spares, effects);
        if rules.rate.is_some() {
            let more = self.more_mut();
            more.tat = more.tat_before;
        }
        if rules.batch().is_some_and(|batch| !batch.linger.is_zero()) {
            self.more_mut().plan.batch_mut().has_lingered = true;
        }
    }

    /// Goes on with the lane: the lease of its key is held from now on.
    pub fn leased(&mut self, effects: &mut Effects<T, H, G>) {
        if self.is_paused() {
            // `resume` lets it go.
            return;
        }
        match self.state {
            State::Waiting {
                reason: WaitReason::Lease,
                ..
            } => self.schedule(effects),
            State::Backoff {
                timer: Timer::Unleased,
                ..
            } => self.let_out(false, effects),
            _ => {}
        }
    }

    /// Begins the first message of this lane, which a runner has taken out of the ready queue.
    /// Returns whether it starts, because no other message has come since.
    #[inline]
    pub fn begin(&mut self) -> bool {
        let is_alone = self.parked_len() == 0 && !self.is_paused();
        if is_alone {
            self.transition(Transition::Start, State::Ready);
        }
        is_alone
    }

    /// Combines the first message, which a runner has taken out of the ready queue, with those that
    /// came after it, and decides what starts. Messages that have to be merged are returned in
    /// [`Rare::merge`](super::effects::Rare::merge): they have started, and the merged message runs
    /// unless it has to [come back](Self::take_back).
    pub fn rejoin(
        &mut self,
        item: T,
        now: Instant,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        let coalesce = match &rules.plan {
            PlanRules::Coalesce(coalesce) => Some(*coalesce),
            PlanRules::Fifo | PlanRules::Batch(_) | PlanRules::Sequence(_) => None,
        };
        let merges = coalesce.is_some_and(|coalesce| coalesce.survivor == Survivor::Merged);
        if merges && self.parked_len() > 0 {
            let newcomers = std::iter::from_fn(|| self.pop()).collect();
            effects.rare_mut().merge = Some((item, Few::More(newcomers)));
            // They are all out, and what comes from now on meets no head that waits.
            self.transition(Transition::Start, State::Ready);
            return self.open_or_renew_gate(rules, effects);
        }
        self.requeue();
        let coalesce = coalesce.filter(|_| !merges);
        let newer = coalesce.and_then(|coalesce| Some((coalesce, self.pop_newest()?)));
        self.put_back(item, spares);
        if let Some((coalesce, newer)) = newer {
            self.coalesce(coalesce, newer, rules, spares, effects);
        }
        self.next(now, rules, effects);
        let stays = self
            .oldest_parked()
            .filter(|_| self.wait_reason().is_some());
        if let Some(at) = stays.and_then(Item::expires_at) {
            // It had no timer in the ready queue.
            self.arm_expiry(at, effects);
        }
    }

    /// Ends a batch: these messages of it go back into the lane, in front of all others.
    pub fn end_batch(
        &mut self,
        back: Vec<T>,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        if let Some(more) = &mut self.more {
            more.plan.reset_batch();
        }
        effects.stall = Stall::Returned(back.len());
        for item in back.into_iter().rev() {
            self.park_again(item, spares, effects);
        }
        self.open_gate(self.depth(rules), rules, effects);
    }

    /// Parks a message that was out in front of all others, and has its expiry watched.
    fn park_again(&mut self, item: T, spares: &Spares<T>, effects: &mut Effects<T, H, G>) {
        let expires_at = item.expires_at();
        self.put_back(item, spares);
        if let Some(at) = expires_at {
            self.arm_expiry(at, effects);
        }
    }

    /// Decides what starts, what is waited for, or that the lane goes.
    pub(super) fn pick(&mut self, now: Instant, rules: &Rules, effects: &mut Effects<T, H, G>) {
        if self.is_paused() {
            return self.wait(WaitReason::Paused, None, effects);
        }
        while let Some(first) = self.oldest_parked() {
            if rules.expires && first.is_expired(rules.stamp(now)) {
                if let Some(expired) = self.pop() {
                    effects.left.push((expired, Left::Expired));
                }
                continue;
            }
            if let Some(until) = first.delayed_until(now) {
                return self.wait(WaitReason::Delay, Some(until), effects);
            }
            break;
        }
        if self.parked_len() == 0 {
            return self.vacate(now, rules, effects);
        }
        if let Some(until) = self.lingers(now, rules) {
            return self.wait(WaitReason::Linger, Some(until), effects);
        }
        if let Some(limiter) = &rules.rate {
            let more = self.more_mut();
            more.tat_before = more.tat;
            if let Err(at) = limiter.ask(&mut more.tat, rules.stamp(now)) {
                let until = rules.moment(at, now);
                return self.wait(WaitReason::Rate, Some(until), effects);
            }
        }
        self.start(now, rules, effects);
    }

    /// Nothing of this key starts for now.
    pub(super) fn wait(
        &mut self,
        reason: WaitReason,
        until: Option<Instant>,
        effects: &mut Effects<T, H, G>,
    ) {
        if reason == WaitReason::HaltedGap {
            effects.halted.up();
        }
        self.transition(Transition::Wait, State::Waiting { reason, until });
        effects.holds = true;
        // A gap has a timer of its own, from when it was seen.
        if reason != WaitReason::Gap {
            effects.wake = until.map(Due::Wait);
        }
        if self.is_stalled() {
            effects.stall = effects.stall.with_lane();
            let oldest = self.oldest_parked().filter(|_| reason != WaitReason::Rate);
            if let Some(oldest) = oldest {
                effects.rare_mut().stalled_since = Some(oldest.accepted_at());
            }
        }
    }

    /// The head settled, and the lane is to be asked for its next message.
    pub(super) fn requeue(&mut self) {
        self.transition(Transition::Requeue, State::Scheduled);
    }

    /// The first of the parked messages, and all that start with it, are out from here on.
    pub(super) fn start(&mut self, now: Instant, rules: &Rules, effects: &mut Effects<T, H, G>) {
        self.transition(Transition::Start, State::Ready);
        let Some(mut head) = self.pop() else {
            unreachable!("a lane that starts has something parked")
        };
        if let Some(batch) = rules.batch() {
            let mut members = Vec::new();
            while members.len() + 1 < batch.max
                && let Some(next) = self.oldest_parked()
                && !(rules.expires && next.is_expired(rules.stamp(now)))
                && next.delayed_until(now).is_none()
            {
                members.extend(self.pop());
            }
            if let Some(more) = &mut self.more {
                more.plan.reset_batch();
            }
            if !members.is_empty() {
                self.more_mut().plan.batch_mut().members = members.len();
                head.set_members(members);
            }
        }
        effects.out = Out::Message(head);
    }

    /// Whether a message that is next in this lane, and not delayed, may start at once.
    pub(super) fn is_idle(&self, rules: &Rules) -> bool {
        self.wait_reason() == Some(WaitReason::Empty) && rules.rate.is_none()
    }

    /// A message is the head of this lane, in which nothing was. It is out and was never parked.
    pub(super) fn start_at_once(&mut self, item: T, effects: &mut Effects<T, H, G>) {
        self.transition(Transition::Start, State::Ready);
        effects.out = Out::Message(item);
    }

    /// Until when a batch waits for more messages.
    fn lingers(&mut self, now: Instant, rules: &Rules) -> Option<Instant> {
        let batch = rules.batch()?;
        if batch.linger.is_zero() || self.parked_len() >= rules.full_batch(batch) {
            return None;
        }
        let plan = self.more_mut().plan.batch_mut();
        if std::mem::replace(&mut plan.has_lingered, true) {
            return None;
        }
        Some(later(now, batch.linger))
    }

    /// Nothing is parked: the lane waits for what it misses, or goes.
    pub(super) fn vacate(&mut self, now: Instant, rules: &Rules, effects: &mut Effects<T, H, G>) {
        if let Some(more) = &mut self.more {
            more.plan.reset_batch();
        }
        if self.is_merging() {
            return self.wait(WaitReason::Empty, None, effects);
        }
        if let Some((reason, until)) = self.missing(now, rules) {
            return self.wait(reason, until, effects);
        }
        if let Some(version) = self.unrecorded(rules) {
            effects.rare_mut().store = Some(Store::Record(version));
            return self.wait(WaitReason::Record, None, effects);
        }
        self.check(Transition::Leave);
        self.leave(effects);
    }

    /// The lane goes.
    pub(super) fn leave(&mut self, effects: &mut Effects<T, H, G>) {
        self.remove_gate(effects);
        effects.removes = true;
    }

    /// Returns the memory of the key of a lane that goes.
    #[inline]
    pub fn memory(&self) -> Memory {
        Memory {
            version: self.passed(),
            tat: self.more.as_ref().map_or(0, |more| more.tat),
        }
    }

    /// What stands for this lane in the ready queue.
    pub(super) fn queued(&self) -> Out<T, H> {
        Out::Lane {
            class: self.oldest_parked().map_or(0, Item::class),
        }
    }
}
