//! Taking back messages whose generation ends.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use keylane_rt::clock::{self, Instant};
use keylane_source::{Generation, Source};

use super::super::guard::PositionGuard;
use super::super::held::{GenerationState, HeldDelivery};
use super::super::revocation::{Due, Revocation};
use super::call::call;
use super::state::{Driver, Phase};
use crate::engine::{Revoked, Sources};
use crate::slots::Slots;
use crate::watching::SourceEvent;

impl<K, M, O, E, S> Driver<K, M, O, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
    S: Source<Message = M>,
{
    /// Takes messages of these generations back.
    pub(super) async fn revoke(&mut self, generations: Vec<Generation>, is_told: bool) {
        // What has just been handed over is theirs as well.
        self.take_in().await;
        let standing = match is_told {
            true => GenerationState::Revoked,
            false => GenerationState::Over,
        };
        for (_, held) in self.held.iter_mut() {
            let is_later =
                held.standing == GenerationState::Live || standing == GenerationState::Over;
            if generations.contains(&held.generation) && is_later {
                held.standing = standing;
            }
        }
        if !is_told {
            // What is lost while it is being revoked is not waited for any more.
            for revocation in &mut self.revocations {
                let theirs = revocation.generations.iter().flatten();
                let are_lost = theirs
                    .into_iter()
                    .all(|theirs| generations.contains(theirs));
                revocation.is_told &= !are_lost;
            }
        }
        let how = match is_told {
            true => Revoked::Unstarted,
            false => Revoked::InFlight,
        };
        self.begin_revocation(Some(generations), is_told, how);
        self.give_back_unplaced().await;
        self.release_finished().await;
    }

    /// `how`: whether attempts in flight end now, or have time.
    pub(super) fn begin_revocation(
        &mut self,
        generations: Option<Vec<Generation>>,
        is_told: bool,
        how: Revoked,
    ) {
        let engine = &self.inlet.dispatcher.engine;
        let guard = engine.guard_starts();
        let within = match how {
            Revoked::InFlight => Duration::ZERO,
            _ => self.settings.revoke_within,
        };
        let revocation = Revocation::new(generations, is_told, clock::now(), within, guard);
        let slots = revocation.slots(&self.held);
        self.notify(SourceEvent::Revoked {
            messages: slots.len(),
        });
        self.take_back(&slots, how);
        self.revocations.push(revocation);
        self.has_unplaced = true;
    }

    /// Marks messages as taken back, and looks for those that have not started.
    fn take_back(&mut self, slots: &[u32], how: Revoked) {
        for slot in slots {
            if let Some(held) = self.held.get_mut(*slot) {
                held.marked = true;
            }
        }
        let source = self.registration.source;
        self.sources().revoke(source, slots, how);
        self.inlet.dispatcher.engine.sweep_revoked(source);
    }

    /// Gives back what is taken back and in no lane yet.
    pub(super) async fn give_back_unplaced(&mut self) {
        self.has_unplaced = false;
        let held = &self.held;
        let ends = matches!(self.phase, Phase::Stopping { handed_back, .. } if handed_back);
        let is_revoked = |slot: Option<u32>| match slot {
            Some(slot) => held
                .get(slot)
                .is_some_and(|held| held.standing != GenerationState::Live),
            // It was settled before it could run, and is dropped.
            None => ends,
        };
        let mut slots = self.inlet.extract(is_revoked);
        let unplaceable = self
            .unplaceable
            .extract_if(.., |(_, slot)| is_revoked(Some(*slot)));
        slots.extend(unplaceable.map(|(_, slot)| slot));
        if !slots.is_empty() {
            Box::pin(self.give_back(slots)).await;
        }
    }

    /// The source wants these back, if they have not started.
    pub(super) async fn recall(&mut self, positions: &[S::Position]) {
        self.take_in().await;
        let recalled = |held: &HeldDelivery<S::Position>| {
            held.standing == GenerationState::Live && positions.contains(&held.position)
        };
        let slots: Vec<u32> = self
            .held
            .iter()
            .filter(|(_, held)| recalled(held))
            .map(|(slot, _)| slot)
            .collect();
        let unplaced = self
            .inlet
            .extract(|slot| slot.is_some_and(|slot| slots.contains(&slot)));
        let engine = &self.inlet.dispatcher.engine;
        let mut recalled = |slot: &u32| {
            let held = self.held.get_mut(*slot);
            held.is_some_and(|held| !std::mem::replace(&mut held.recalled, true))
        };
        let new = slots.iter().filter(|slot| recalled(slot)).count();
        if new > 0 {
            let (left, _) = self
                .recalled
                .get_or_insert_with(|| (0, engine.guard_starts()));
            *left += new;
        }
        self.take_back(&slots, Revoked::Unstarted);
        if !unplaced.is_empty() {
            self.give_back(unplaced).await;
        }
    }

    /// Lets the source go on with the revocations of which nothing is left.
    pub(super) async fn release_finished(&mut self) {
        let mut at = 0;
        while at < self.revocations.len() {
            if !self.revocations[at].slots(&self.held).is_empty() {
                at += 1;
                continue;
            }
            let revocation = self.revocations.remove(at);
            let Some(generations) = revocation.generations.filter(|_| revocation.is_told) else {
                continue;
            };
            let limit = self.settings.stall_after;
            let released = async {
                call(limit, self.source.confirm()).await?;
                call(limit, self.source.release(&generations)).await
            };
            match released.await {
                Ok(()) => self.confirmed(),
                Err(error) => self.restart(error),
            }
        }
    }

    pub(super) async fn follow_revocations(&mut self, now: Instant) {
        let (mut at, mut is_swept) = (0, false);
        while at < self.revocations.len() {
            let due = self.revocations[at].due(now);
            let slots = match due {
                Due::Nothing => Vec::new(),
                _ => self.revocations[at].slots(&self.held),
            };
            match due {
                Due::Nothing => {}
                Due::Sweep => {
                    self.take_back(&slots, Revoked::Unstarted);
                    is_swept = true;
                }
                Due::Drop => self.take_back(&slots, Revoked::InFlight),
                Due::GiveUp => {
                    // Handlers that block their threads. Their outcomes come, and are not told.
                    let messages = slots.len();
                    for slot in slots {
                        if let Some(held) = self.held.get_mut(slot) {
                            held.standing = GenerationState::Over;
                        }
                    }
                    self.notify(SourceEvent::Overdue { messages });
                    self.release_overdue(at).await;
                }
            }
            at += 1;
        }
        if is_swept {
            let sources = &self.inlet.dispatcher.engine.sources;
            let (held, guard) = (&mut self.held, self.guard.as_deref());
            end_what_is_not_held(held, guard, sources, self.registration.source);
        }
        self.release_finished().await;
    }

    /// Lets the source go on although attempts of this revocation have not ended.
    ///
    /// The revocation itself stays until they have ended: what of it has not started must not start
    /// now.
    async fn release_overdue(&mut self, at: usize) {
        let revocation = &mut self.revocations[at];
        let is_told = std::mem::take(&mut revocation.is_told);
        if let Some(generations) = revocation.generations.clone().filter(|_| is_told) {
            let limit = self.settings.stall_after;
            if let Err(error) = call(limit, self.source.release(&generations)).await {
                self.restart(error);
            }
        }
    }
}

/// Ends the attempts of generations that end or are over, if others may have their messages by now.
pub(super) fn end_what_is_not_held<P: Clone>(
    held: &mut Slots<HeldDelivery<P>>,
    guard: Option<&PositionGuard<P>>,
    sources: &Sources,
    source: u32,
) {
    let Some(guard) = guard else {
        return;
    };
    let ends = held
        .iter_mut()
        .filter(|(_, held)| held.standing != GenerationState::Live && !guard.holds(&held.position));
    let slots = ends.map(|(slot, held)| {
        held.marked = true;
        slot
    });
    let slots: Vec<u32> = slots.collect();
    if !slots.is_empty() {
        sources.revoke(source, &slots, Revoked::InFlight);
    }
}
