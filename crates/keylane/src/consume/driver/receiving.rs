//! Taking in the messages that the source hands over.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use keylane_rt::clock;
use keylane_rt::unwind::{caught, dropped};
use keylane_source::{Deliveries, Delivery, Outcome, Settlement, Source};

use super::super::held::{GenerationState, HeldDelivery};
use super::super::settings::Guarantee;
use super::call::{Trouble, call, later};
use super::state::{Driver, Phase};

/// What is wrong with a message that cannot be placed.
const UNPLACEABLE: &str = "a message has no key, or is larger than the capacity";

/// How long a message stays that cannot be placed, before it goes back.
const UNPLACEABLE_WAIT: Duration = Duration::from_secs(1);

impl<K, M, O, E, S> Driver<K, M, O, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
    S: Source<Message = M>,
{
    /// Takes what the source has handed over.
    pub(super) async fn take_in(&mut self) {
        if self.deliveries.is_empty() {
            return;
        }
        if !self.deliveries.is_news_alone() {
            self.heard_at = clock::now();
        }
        self.hear_of_parts();
        let dead_lettered = self.deliveries.take_dead_lettered();
        let mut deliveries = self.deliveries.take();
        let received = deliveries.len() as u64 + dead_lettered;
        if let Phase::Stopping { .. } = self.phase {
            // It had no room. Nothing more goes into the lanes.
            let mut back = Vec::new();
            for delivery in deliveries.drain(..) {
                back.extend(self.hold(&delivery));
                dropped(delivery);
            }
            self.publish(|stats| {
                stats.received += received;
                stats.dead_lettered += dead_lettered;
            });
            Box::pin(self.give_back(back)).await;
        } else if self.settings.guarantee == Guarantee::AtMostOnce {
            self.publish(|stats| {
                stats.received += dead_lettered;
                stats.dead_lettered += dead_lettered;
            });
            self.take_in_settled(&mut deliveries).await;
        } else {
            let before = self.unplaceable.len();
            let goes_back_at = later(clock::now(), UNPLACEABLE_WAIT);
            for delivery in deliveries.drain(..) {
                let Some(slot) = self.hold(&delivery) else {
                    continue;
                };
                let pushed = caught(|| self.inlet.push(delivery.message, Some(slot)));
                if !matches!(pushed, Ok(Ok(()))) {
                    dropped(pushed);
                    self.unplaceable.push((goes_back_at, slot));
                }
            }
            // Together with what is held: the two are always seen to agree.
            self.publish(|stats| {
                stats.received += received;
                stats.dead_lettered += dead_lettered;
            });
            if self.unplaceable.len() > before {
                self.report_failure(UNPLACEABLE);
            }
        }
        // The same memory for the next ones.
        self.deliveries.reuse(deliveries);
    }

    fn hold(&mut self, delivery: &Delivery<M, S::Position>) -> Option<u32> {
        let position = &delivery.position;
        let held = HeldDelivery::new(position.clone(), delivery.generation, delivery.bytes);
        let slot = self.held.insert(held)?;
        self.held_bytes += delivery.bytes as usize;
        if let Some(guard) = &self.guard {
            guard.set(slot, position.clone());
        }
        if delivery.attempts > 0 && self.features.does_count_attempts() {
            let at = self.at(slot);
            self.sources().set_attempts(at, delivery.attempts);
            if let Some(held) = self.held.get_mut(slot) {
                held.marked = true;
            }
        }
        Some(slot)
    }

    /// Settles messages before they are run.
    async fn take_in_settled(&mut self, deliveries: &mut Vec<Delivery<M, S::Position>>) {
        let told: Vec<_> = deliveries
            .iter()
            .map(|delivery| Settlement::new(delivery.position.clone(), Outcome::Done))
            .collect();
        let count = told.len() as u64;
        if let Err(error) = self.tell_and_confirm(&told).await {
            // It comes again, so it must not run now.
            self.publish(|stats| {
                stats.received += count;
                stats.given_back += count;
            });
            deliveries.clear();
            return self.restart(error);
        }
        self.publish(|stats| {
            stats.received += count;
            stats.acked += count;
        });
        for delivery in deliveries.drain(..) {
            let pushed = caught(|| self.inlet.push(delivery.message, None));
            if !matches!(pushed, Ok(Ok(()))) {
                dropped(pushed);
                self.report_failure(UNPLACEABLE);
            }
        }
    }

    async fn tell_and_confirm(&mut self, told: &[Settlement<S::Position>]) -> Result<(), Trouble> {
        let limit = self.settings.stall_after;
        call(limit, self.source.settle(told)).await?;
        call(limit, self.source.confirm()).await
    }

    /// Reads deferred messages again that are about to go in.
    pub(super) async fn read_deferred(&mut self) {
        while let Some((hash, slots)) = self.inlet.next_to_read() {
            let held = &self.held;
            let live = slots.into_iter().filter_map(|slot| {
                let held = held.get(slot)?;
                let is_live = held.standing != GenerationState::Over;
                is_live.then(|| (slot, held.position.clone()))
            });
            let (slots, positions): (Vec<_>, Vec<_>) = live.unzip();
            if positions.is_empty() || !self.is_open() {
                continue;
            }
            let limit = self.settings.stall_after;
            let until = later(clock::now(), limit).into();
            let mut into = Deliveries::new(positions.len(), until);
            let read = call(limit, self.source.reread(&positions, &mut into));
            if let Err(error) = read.await {
                return self.restart(error);
            }
            let mut read = into.take().into_iter().peekable();
            let (mut found, mut missing) = (Vec::new(), Vec::new());
            for (slot, position) in slots.into_iter().zip(&positions) {
                match read.next_if(|delivery| delivery.position == *position) {
                    Some(delivery) => {
                        if let Some(held) = self.held.get_mut(slot) {
                            held.bytes = delivery.bytes;
                            self.held_bytes += delivery.bytes as usize;
                        }
                        found.push((slot, delivery.message));
                    }
                    None => missing.push(slot),
                }
            }
            dropped(read);
            let all: Vec<u32> = found.iter().map(|(slot, _)| *slot).collect();
            // If a function of the user panics that did not do so before, none of them is right.
            let others = caught(|| self.inlet.take_read(hash, found)).unwrap_or(all);
            missing.extend(others);
            if !missing.is_empty() {
                self.report_failure("the source could not read some waiting messages again");
                let missing = self
                    .inlet
                    .extract(|slot| slot.is_some_and(|slot| missing.contains(&slot)));
                self.give_back(missing).await;
            }
        }
    }
}
