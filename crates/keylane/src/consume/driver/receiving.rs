//! What the source hands over, now and again.

use keylane_rt::clock;
use keylane_rt::unwind::{caught, dropped};
use keylane_source::{Deliveries, Outcome, Settlement, Source};

use super::call::call;
use super::core::{Trouble, later};
use super::task::Driver;
use crate::types::{Error, Key, Message, Output};

impl<K: Key, M: Message, O: Output, E: Error, S: Source<Message = M>> Driver<K, M, O, E, S> {
    /// Takes what the source has handed over.
    pub(super) async fn take_in(&mut self) {
        let machine = &mut self.machine;
        if machine.deliveries.is_empty() {
            return;
        }
        let now = clock::now();
        if !machine.deliveries.is_news_alone() {
            machine.core.heard(now);
        }
        let news = machine.deliveries.take_parts();
        machine.core.heard_of_parts(news, now);
        match machine.core.settles_first() {
            true => self.settle_first().await,
            false => machine.take_in(now),
        }
        self.carry_out().await;
    }

    /// Settles messages before they are run.
    async fn settle_first(&mut self) {
        let deliveries = &mut self.machine.deliveries;
        let dead_lettered = deliveries.take_dead_lettered();
        let mut taken = deliveries.take();
        let told = taken
            .iter()
            .map(|delivery| Settlement::new(delivery.position.clone(), Outcome::Done));
        let told: Vec<_> = told.collect();
        let answer = self.tell_and_confirm(&told).await;
        let now = clock::now();
        if answer.is_err() {
            dropped(taken.drain(..));
        }
        self.machine.core.settled_first(told.len(), answer, now);
        let refused = self.machine.take_in_settled(&mut taken);
        self.machine.core.took_in(refused, dead_lettered, now);
        self.machine.deliveries.reuse(taken);
    }

    async fn tell_and_confirm(&mut self, told: &[Settlement<S::Position>]) -> Result<(), Trouble> {
        let limit = self.machine.core.settings().stall_after;
        call(limit, self.source.settle(told)).await?;
        call(limit, self.source.confirm()).await
    }

    /// Reads deferred messages again that are about to go in.
    pub(super) async fn read_deferred(&mut self) {
        while let Some((lane, slots)) = self.machine.inlet.next_to_read() {
            let core = &self.machine.core;
            let told = slots.into_iter();
            let told = told.filter_map(|slot| Some((slot, core.position_of(slot)?)));
            let (slots, positions): (Vec<_>, Vec<_>) = told.unzip();
            if positions.is_empty() {
                continue;
            }
            let limit = self.machine.core.settings().stall_after;
            let mut into = Deliveries::new(positions.len(), later(clock::now(), limit).into());
            let read = call(limit, self.source.reread(&positions, &mut into)).await;
            match read {
                Ok(()) => self.take_read(lane, slots, &positions, into),
                Err(trouble) => self.machine.core.failed(&trouble, clock::now()),
            }
            self.carry_out().await;
            if !self.machine.core.phase().is_open() {
                return;
            }
        }
    }

    /// Takes messages that were read again. What is not what it was goes back.
    fn take_read(
        &mut self,
        lane: u64,
        slots: Vec<u32>,
        positions: &[S::Position],
        mut read: Deliveries<M, S::Position>,
    ) {
        let (core, inlet) = (&mut self.machine.core, &mut self.machine.inlet);
        let mut read = read.take().into_iter().peekable();
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for (slot, position) in slots.into_iter().zip(positions) {
            match read.next_if(|delivery| delivery.position == *position) {
                Some(delivery) => {
                    core.ledger.set_bytes(slot, delivery.bytes);
                    found.push((slot, delivery.message));
                }
                None => missing.push(slot),
            }
        }
        dropped(read);
        let all: Vec<u32> = found.iter().map(|(slot, _)| *slot).collect();
        // If a function of the user panics that did not do so before, none of them is right.
        let others = caught(|| inlet.take_read(lane, found)).unwrap_or(all);
        let has_failed = !others.is_empty();
        missing.extend(others);
        if !missing.is_empty() {
            let is_missing = |slot: Option<u32>| slot.is_some_and(|slot| missing.contains(&slot));
            let missing = inlet.extract(is_missing);
            match has_failed {
                true => core.unreadable(missing),
                false => core.missing(missing),
            }
        }
    }
}
