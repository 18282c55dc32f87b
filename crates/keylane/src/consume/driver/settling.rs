//! Telling the source which messages have settled.

use std::fmt;
use std::hash::Hash;

use keylane_rt::clock::{self, Instant};
use keylane_rt::unwind::caught;
use keylane_source::{Outcome, Settlement, Source, SourceError, SourceLetter};

use super::super::held::GenerationState;
use super::super::report::IntakeStats;
use super::call::{Trouble, call, later, panicked};
use super::state::{Driver, Phase};
use crate::engine::{LetterRequest, SlotGuard};

impl<K, M, O, E, S> Driver<K, M, O, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
    S: Source<Message = M>,
{
    /// Reads what has settled, and tells the source.
    pub(super) async fn settle_news(&mut self) {
        self.settled_at = self.busy_since;
        let mut settled = std::mem::take(&mut self.settled);
        self.settle(settled.drain(..)).await;
        if self.settled.capacity() == 0 {
            self.settled = settled;
        }
        for letter in std::mem::take(&mut self.letters) {
            self.keep_letter(letter).await;
        }
    }

    /// Hands messages back that are in no lane.
    pub(super) async fn give_back(&mut self, slots: Vec<u32>) {
        let guard = self.guard.clone();
        let settled = slots.into_iter().map(|slot| {
            let (attempts, _) = self.sources().before_start(self.at(slot));
            let returned = Outcome::Returned { attempts };
            if let Some(guard) = &guard {
                guard.settles(slot, returned);
            }
            (slot, returned)
        });
        let settled: Vec<_> = settled.collect();
        self.settle(settled.into_iter()).await;
    }

    pub(super) async fn settle(&mut self, settled: impl Iterator<Item = (u32, Outcome)>) {
        let ends = matches!(self.phase, Phase::Stopping { .. });
        let is_open = self.is_open();
        let mut counts = Counts::default();
        let mut told = std::mem::take(&mut self.told);
        let mut unplaced = Ok(());
        for (slot, mut outcome) in settled {
            let Some(held) = self.held.remove(slot) else {
                debug_assert!(false, "a message settles once");
                continue;
            };
            self.held_bytes -= held.bytes as usize;
            if held.marked {
                outcome = self.sources().clear_slot(self.at(slot), outcome);
            }
            if held.recalled
                && let Some((left, _)) = &mut self.recalled
            {
                *left -= 1;
                if *left == 0 {
                    self.recalled = None;
                }
            }
            unplaced = unplaced.and(caught(|| self.inlet.settled(slot)));
            let is_over = held.standing == GenerationState::Over || !is_open;
            counts.count(
                outcome,
                is_over,
                ends || held.standing != GenerationState::Live,
            );
            if !is_over {
                told.push(Settlement::new(held.position, outcome));
            }
        }
        if !self.is_unconfirmed && !told.is_empty() {
            self.is_unconfirmed = true;
            self.confirm_at = later(clock::now(), self.settings.confirm_every);
        }
        self.unconfirmed += counts.acked;
        self.publish(|stats| counts.add_to(stats));
        let mut failed = None;
        if !told.is_empty() {
            let limit = self.settings.stall_after;
            failed = call(limit, self.source.settle(&told)).await.err();
        }
        told.clear();
        self.told = told;
        // As in `place`.
        let panic = unplaced.err().map(panicked);
        let panic = panic.map(|text| Trouble::Failed(SourceError::failed(text)));
        match failed.or(panic) {
            Some(error) => self.restart(error),
            None => self.release_finished().await,
        }
    }

    /// Gives a dead letter to the source, which keeps it.
    async fn keep_letter(&mut self, letter: LetterRequest) {
        let LetterRequest {
            slot,
            attempts,
            cause,
            why,
            done,
        } = letter;
        let at = self.at(slot);
        let live = self
            .held
            .get(slot)
            .filter(|held| held.standing != GenerationState::Over && self.is_open());
        let kept = match live {
            None => Err("the generation of the message has ended".to_owned()),
            // It was kept, and those of messages that it stands for were not.
            Some(_) if self.sources().has_letter(at) => Ok(()),
            Some(held) => {
                let letter = SourceLetter::new(held.position.clone(), attempts, cause, why);
                let limit = self.settings.stall_after;
                let kept = call(limit, self.source.dead_letter(letter)).await;
                let why = kept.as_ref().err().map(Trouble::to_string);
                if kept.is_ok() {
                    self.sources().set_letter(at);
                    if let Some(held) = self.held.get_mut(slot) {
                        held.marked = true;
                    }
                }
                if let Err(late @ Trouble::Late(_)) = kept {
                    self.restart(late);
                }
                why.map_or(Ok(()), Err)
            }
        };
        // If the attempt is gone, so is its generation.
        let _ = done.send(kept);
    }

    /// Extends leases, confirms acks.
    pub(super) async fn serve_source(&mut self, now: Instant) -> Result<(), Trouble> {
        let limit = self.settings.stall_after;
        if let Some(lease) = self.lease()
            && self.is_open()
            && now >= self.extend_at
        {
            self.extend_at = later(now, lease / 3);
            // Also what is revoked, as long as it is here.
            let ours = self.held.iter();
            let ours = ours.filter(|(_, held)| held.standing != GenerationState::Over);
            let ours: Vec<_> = ours.map(|(_, held)| held.position.clone()).collect();
            if !ours.is_empty() {
                call(limit, self.source.extend(&ours)).await?;
            }
        }
        if self.is_unconfirmed && self.is_open() && now >= self.confirm_at {
            call(limit, self.source.confirm()).await?;
            self.confirmed();
        }
        Ok(())
    }

    /// Everything that was told is confirmed.
    pub(super) fn confirmed(&mut self) {
        self.unconfirmed = 0;
        self.is_unconfirmed = false;
        self.failures = 0;
    }
}

/// What settled in one go.
#[derive(Default)]
struct Counts {
    acked: u64,
    dead_lettered: u64,
    nacked: u64,
    given_back: u64,
    stale: u64,
}

impl Counts {
    /// Counts an outcome. `is_over`: its generation is, and the source is not told. `ends`: the
    /// generation ends, or the intake.
    #[inline]
    fn count(&mut self, outcome: Outcome, is_over: bool, ends: bool) {
        match outcome {
            _ if is_over => {
                self.given_back += 1;
                self.stale += u64::from(outcome.is_ack());
            }
            Outcome::Done | Outcome::Discarded => self.acked += 1,
            Outcome::DeadLettered => self.dead_lettered += 1,
            Outcome::Returned { .. } if ends => self.given_back += 1,
            Outcome::Returned { .. } => self.nacked += 1,
        }
    }

    fn add_to(&self, stats: &mut IntakeStats) {
        stats.acked += self.acked;
        stats.dead_lettered += self.dead_lettered;
        stats.nacked += self.nacked;
        stats.given_back += self.given_back;
        stats.stale += self.stale;
    }
}
