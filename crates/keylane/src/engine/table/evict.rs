//! Evicts messages: hands back those that will not be handled.

use keylane_lanes::{Effects, Evicted, Keep, Opening, Out};
use keylane_rt::unwind::{caught, cloned};

use super::{LaneTable, Wait};
use crate::engine::end::HandedBack;
use crate::engine::lane::{Gate, Lane, open};
use crate::engine::leases::LaneLeaseTable;
use crate::engine::message::{Held, Job, Parked, Queued, Work};
use crate::engine::room::change_gauge;
use crate::engine::settlement::Tally;
use crate::letter::OnExhausted;
use crate::types::{Spec, Types};

impl<T: Spec> LaneTable<T> {
    /// Hands back a job that will not start, and everything parked behind it.
    pub(crate) fn hand_back_job(&self, job: Job<T>) {
        let mut tally = Tally::default();
        let Job {
            key,
            hash,
            message,
            envelope,
            work,
        } = job;
        let attempts = work.attempts();
        let owner = key.as_ref().and_then(cloned).or_else(|| beside(&work));
        self.probe.drop_quietly(work);
        let back = HandedBack::idle(owner, message, attempts);
        // All of its batch goes back.
        self.settlement
            .hand_back(&mut tally, back, envelope.into_running());
        self.release_handing_back(&mut tally, key, hash);
        self.settlement.flush(&mut tally);
    }

    /// Hands back an entry of the ready queue.
    pub(crate) fn hand_back_queued(&self, queued: Queued<T>) {
        match queued {
            Queued::Job(job) => self.hand_back_job(job),
            // The router hands back what waits in the stripe.
            Queued::Turn(_) => {}
            Queued::Lane { key, hash, .. } => {
                let mut tally = Tally::default();
                self.release_handing_back(&mut tally, Some(key), hash);
                self.settlement.flush(&mut tally);
            }
        }
    }

    /// Hands back everything parked behind a job that has just settled, and removes the lane.
    pub(crate) fn release_handing_back(&self, tally: &mut Tally, key: Option<T::Key>, hash: u64) {
        let Some(key) = key else { return };
        // Also run while a panic of the key's own `Eq` unwinds, and must not be the second one. The
        // messages first: the removal drops a key, and that is the user's too.
        let released = caught(|| {
            let emptied = self.lanes.with(hash, &key, |lane| self.empty(lane, hash));
            if let Some(emptied) = emptied {
                self.hand_back_emptied(tally, Some(&key), emptied);
            }
            let mut removed = None;
            self.lanes.step(
                hash,
                &key,
                || None,
                |lane| {
                    // An operator may have paused it since.
                    removed = Some(self.empty(lane, hash));
                    Keep::Remove
                },
            );
            if let Some(removed) = removed {
                self.hand_back_emptied(tally, Some(&key), removed);
            }
        });
        if released.is_err() {
            self.settlement.count_lost_messages();
        }
        self.probe.drop_quietly(key);
    }

    /// Takes everything out of a lane. Under the shard's lock.
    fn empty(&self, lane: &mut Lane<T>, hash: u64) -> Emptied<T> {
        // A lane that waits goes.
        self.waits.count(Wait::of(lane), lane, true);
        let Evicted {
            head,
            parked,
            effects,
        } = lane.evict();
        change_gauge(&self.halted, effects.halted);
        change_gauge(&self.slow_path.paused, effects.paused);
        self.room.count_full(hash, effects.full);
        Emptied {
            head,
            parked,
            opening: effects.opening,
        }
    }

    pub(crate) fn hand_back_held(&self, tally: &mut Tally, key: Option<T::Key>, held: Held<T>) {
        let Held {
            message,
            envelope,
            work,
            ..
        } = held;
        let attempts = work.attempts();
        let owner = key.or_else(|| beside(&work));
        self.probe.drop_quietly(work);
        self.settlement
            .hand_back(tally, HandedBack::idle(owner, message, attempts), envelope);
    }

    /// Hands back one lane that is not out, if the end has come for it.
    pub(crate) fn evict_one(&self, tally: &mut Tally, key: &T::Key, hash: u64) {
        let all = self.shutdown.hands_back();
        let mut evicted = None;
        self.lanes.step(
            hash,
            key,
            || None,
            |lane| {
                if !self.is_endless(lane) && (!all || lane.state().is_out()) {
                    return Keep::Stay;
                }
                evicted = Some(self.empty(lane, hash));
                Keep::Remove
            },
        );
        if let Some(emptied) = evicted {
            self.hand_back_emptied(tally, Some(key), emptied);
        }
        self.settlement.flush(tally);
    }

    /// Whether a lane cannot go on by itself any more.
    fn is_endless(&self, lane: &Lane<T>) -> bool {
        let is_closed = self
            .leases
            .as_deref()
            .is_some_and(LaneLeaseTable::is_closed);
        lane.is_endless() || (is_closed && lane.state().is_unleased())
    }

    /// Evicts what lanes hold: everything, or only what cannot finish by itself.
    ///
    /// A lane whose job is out stays, empty, until the job comes back.
    pub(crate) fn evict(&self, only_endless: bool) {
        let mut evicted = Vec::new();
        self.lanes.sweep(|key, hash, lane| {
            if only_endless && !self.is_endless(lane) {
                return true;
            }
            let stays = lane.state().is_out();
            evicted.push((cloned(key), self.empty(lane, hash)));
            stays
        });
        let mut tally = Tally::default();
        for (key, emptied) in evicted {
            self.hand_back_emptied(&mut tally, key.as_ref(), emptied);
        }
        if let OnExhausted::Halt = self.settings.on_exhausted {
            // Held for good, unlike the letter of a message that its lane had no room for.
            let is_halted = |held: &Held<T>| match &held.work {
                Work::Letter(given_up) => given_up.beside.is_none(),
                _ => false,
            };
            for held in self.clocks.laneless.extract(is_halted) {
                self.hand_back_held(&mut tally, None, held);
            }
        }
        self.settlement.flush(&mut tally);
    }

    fn hand_back_emptied(&self, tally: &mut Tally, key: Option<&T::Key>, emptied: Emptied<T>) {
        open(emptied.opening);
        if let Some(head) = emptied.head {
            self.hand_back_held(tally, key.and_then(cloned), *head);
        }
        for Parked { message, envelope } in emptied.parked {
            let back = HandedBack::idle(key.and_then(cloned), message, 0);
            self.settlement.hand_back(tally, back, envelope);
        }
    }

    /// Wakes every sender at a gate, to see that the dispatcher is closed. Returns the lanes whose
    /// batches wait for more messages, which will not come.
    pub(crate) fn close_lanes(&self) -> Vec<Queued<T>> {
        let (mut openings, mut scheduled) = (Vec::new(), Vec::new());
        self.lanes.sweep(|key, hash, lane| {
            // A key that cannot be cloned cannot be asked for its batch; it is handed back at the
            // end.
            if let Some(key) = cloned(key) {
                let mut effects = Effects::new();
                let before = Wait::of(lane);
                lane.close(&mut effects);
                self.waits.count(before, lane, false);
                self.room.count_full(hash, effects.full);
                if let Out::Lane { class } = effects.out {
                    scheduled.push(Queued::Lane { key, hash, class });
                }
                openings.push(effects.opening);
            }
            true
        });
        openings.into_iter().for_each(open);
        if let Some(places) = &self.places {
            places.layout().open_gates();
        }
        scheduled
    }
}

/// What was in a lane that was emptied.
struct Emptied<T: Types> {
    head: Option<Box<Held<T>>>,
    parked: Vec<Parked<T>>,
    opening: Opening<Gate>,
}

/// The key of a letter that no lane waits for.
fn beside<T: Spec>(work: &Work<T>) -> Option<T::Key> {
    match work {
        Work::Entered | Work::Leased(_) | Work::Attempt(_) => None,
        Work::Letter(given_up) => given_up.beside.as_ref().and_then(cloned),
    }
}
