//! What an operator decides about a halted lane.

use std::fmt;

use super::Engine;
use super::message::{Held, Ticket, Turn, Work};
use super::settle::{Outcome, Tally};
use crate::rt::Arc;
use crate::rt::atomic::Ordering;

impl<K, M, O, E> Engine<K, M, O, E>
where
    K: Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// The halted head goes out again, as a first attempt.
    pub(crate) fn resume(self: &Arc<Self>, key: &K, hash: u64) -> bool {
        let head = self
            .lanes
            .with(hash, key, |lane| lane.is_halted().then(|| lane.resume()));
        let Some(Some(mut head)) = head else {
            return false;
        };
        let attempts = u8::try_from(head.work.attempts()).unwrap_or(u8::MAX);
        let load = head.ticket.debt.load_mut();
        load.earlier = load.earlier.saturating_add(attempts);
        self.restart(key, hash, *head);
        true
    }

    /// The halted head goes out again with another message; the old one comes back.
    pub(crate) fn replace(
        self: &Arc<Self>,
        key: &K,
        hash: u64,
        message: M,
        weight: u32,
    ) -> Result<M, M> {
        let head = self
            .lanes
            .with(hash, key, |lane| lane.is_halted().then(|| lane.resume()));
        let Some(Some(head)) = head else {
            return Err(message);
        };
        let mut head = *head;
        let old = std::mem::replace(&mut head.message, message);
        self.reweigh(&mut head.ticket, weight);
        self.restart(key, hash, head);
        Ok(old)
    }

    /// Another message, of another size, stands for this ticket from now on.
    fn reweigh(&self, ticket: &mut Ticket<M, O, E>, weight: u32) {
        let load = ticket.debt.load_mut();
        load.earlier = 0;
        if let (false, Some(bytes)) = (load.apart, &self.bytes) {
            match weight.checked_sub(load.weight) {
                None => self.give_room(0, (load.weight - weight) as usize),
                Some(more) => match bytes.try_acquire_many(more) {
                    Ok(permit) => permit.forget(),
                    // It was let in once and is not turned away now; it gives back what it took.
                    Err(_) => return,
                },
            }
        }
        load.weight = weight;
    }

    fn restart(self: &Arc<Self>, key: &K, hash: u64, head: Held<K, M, O, E>) {
        self.halted.fetch_sub(1, Ordering::Relaxed);
        let Held {
            message,
            ticket,
            work,
            ..
        } = head;
        self.drop_quietly(work);
        let work = Work::Attempt(1);
        self.enqueue(Turn {
            key: Some(key.clone()),
            hash,
            message,
            ticket,
            work,
        });
    }

    /// The halted head settles as failed; the key goes on behind it.
    pub(crate) fn skip(self: &Arc<Self>, key: &K, hash: u64) -> bool {
        let skipped = self.lanes.advance(hash, key, |lane| {
            lane.is_halted().then(|| {
                let opening = self.see_departure(lane);
                let (head, next) = lane.skip();
                ((head, opening), next)
            })
        });
        let Some(((head, opening), next)) = skipped else {
            return false;
        };
        opening.carry_out();
        self.halted.fetch_sub(1, Ordering::Relaxed);
        let Held {
            message,
            ticket,
            work,
            ..
        } = *head;
        self.drop_quietly(message);
        let failure = match work {
            Work::Letter(given_up) => given_up.failure,
            Work::Attempt(_) => unreachable!("a halted head was given up on"),
        };
        let mut tally = Tally::default();
        self.settle(&mut tally, ticket, Outcome::Discarded(failure));
        self.flush(&mut tally);
        if let Some(parked) = next {
            self.enqueue(Turn::first(Some(key.clone()), hash, parked));
        }
        true
    }
}
