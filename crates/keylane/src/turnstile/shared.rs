//! What the handle, rooms, places and turns share: it carries out what lanes and gates decide.

use std::convert::Infallible;

use super::gate::{Asked, Gate};
use super::waiter::{Stage, Waiter};
use crate::engine::{Quiet, caught};
use crate::lanes::{AtLimit, LaneMap, Next};
use crate::rt::Arc;
use crate::rt::atomic::{AtomicBool, Ordering};

pub(super) type Hash<K> = Box<dyn Fn(&K) -> u64 + Send + Sync>;

type Lane = crate::lanes::Lane<Arc<Waiter>, Infallible, ()>;

pub(super) struct Shared<K> {
    lanes: LaneMap<Quiet<K>, Arc<Waiter>, Infallible, ()>,
    /// One for each room that is given out, until its place or its turn is gone.
    pub(super) room: Gate,
    /// One for each turn, where there are fewer than rooms.
    turns: Option<Gate>,
    lane_capacity: usize,
    /// Partner: itself. Read late, it lets somebody in who came before; but it is read again under
    /// the shard's lock, so nobody is parked where `close` has swept already.
    closed: AtomicBool,
    pub(super) hash: Hash<K>,
}

/// Whose lane it is. A place without a key stands in no lane.
pub(super) struct Owner<K> {
    pub(super) shared: Arc<Shared<K>>,
    pub(super) key: Option<Quiet<K>>,
    pub(super) hash: u64,
}

/// How somebody who enters stands.
pub(super) enum Standing {
    /// At the head of its lane, and its turn has come.
    Granted,
    Waits(Arc<Waiter>),
    LaneFull,
    Closed,
}

impl<K> Shared<K> {
    /// Nobody comes in any more, and who waits for room or for one of the turns is sent home.
    fn shut(&self) {
        self.closed.store(true, Ordering::Release);
        self.room.close();
        if let Some(turns) = &self.turns {
            turns.close();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn turns_taken(&self) -> Option<usize> {
        self.turns.as_ref().map(Gate::taken)
    }
}

impl<K: Eq + Clone> Shared<K> {
    pub(super) fn new(
        capacity: usize,
        concurrency: usize,
        lane_capacity: usize,
        shards: Option<usize>,
        hash: Hash<K>,
    ) -> Self {
        Self {
            lanes: LaneMap::new(shards),
            room: Gate::new(capacity),
            turns: (concurrency < capacity).then(|| Gate::new(concurrency)),
            lane_capacity,
            closed: AtomicBool::new(false),
            hash,
        }
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Takes its place in the lane of a key, now.
    #[inline]
    pub(super) fn enter(&self, key: Option<&Quiet<K>>, hash: u64) -> Standing {
        if self.is_closed() {
            return Standing::Closed;
        }
        let Some(key) = key else {
            return self.ask_for_turn();
        };
        let present = self.lanes.enter(hash, key, |lane| {
            if self.is_closed() && !cfg!(keylane_mutant = "turnstile-late-park") {
                return Standing::Closed;
            }
            let gone = lane.extra().map_or(0, |extra| extra.gone);
            if lane.depth() - gone >= self.lane_capacity {
                return Standing::LaneFull;
            }
            let waiter = Arc::new(Waiter::new(Stage::Parked));
            let parked = Arc::clone(&waiter);
            match lane.park(parked, usize::MAX, AtLimit::Park, self.lanes.spares()) {
                crate::lanes::Offered::Parked => Standing::Waits(waiter),
                _ => Standing::LaneFull,
            }
        });
        match present {
            Some(standing) => standing,
            None => match self.ask_for_turn() {
                Standing::Closed => {
                    // Whoever came in behind it meanwhile is sent home by the same door.
                    self.move_on(key, hash);
                    Standing::Closed
                }
                standing => standing,
            },
        }
    }

    /// The head of a new lane, or somebody without one, asks for a turn.
    #[inline]
    fn ask_for_turn(&self) -> Standing {
        match &self.turns {
            None => Standing::Granted,
            Some(gate) if gate.try_take() => Standing::Granted,
            Some(gate) => {
                let waiter = Arc::new(Waiter::new(Stage::Called));
                match gate.take_or_wait(&waiter) {
                    Asked::Taken => Standing::Granted,
                    Asked::Waits => Standing::Waits(waiter),
                    Asked::Gone | Asked::Closed => Standing::Closed,
                }
            }
        }
    }

    /// The head of a lane is gone: calls the next one.
    fn move_on(&self, key: &Quiet<K>, hash: u64) {
        let next = caught(|| {
            self.lanes.advance(hash, key, |lane| {
                let next = call_next(lane);
                Some(((), next))
            })
        });
        let called = match next {
            Ok(Some(((), called))) => called,
            Ok(None) | Err(_) => return self.broken(),
        };
        let Some(waiter) = called else { return };
        let granted = match &self.turns {
            _ if self.is_closed() => waiter.shift(Stage::Called, Stage::Recalled),
            None => waiter.shift(Stage::Called, Stage::Granted),
            Some(gate) => match gate.take_or_wait(&waiter) {
                Asked::Taken => {
                    let granted = waiter.shift(Stage::Called, Stage::Granted);
                    if !granted && !cfg!(keylane_mutant = "turnstile-permit-lost") {
                        gate.give();
                    }
                    granted
                }
                // Whoever left while it was called moves the lane on.
                Asked::Waits | Asked::Gone => false,
                Asked::Closed => waiter.shift(Stage::Called, Stage::Recalled),
            },
        };
        if granted {
            waiter.wake();
        }
    }

    /// Ends a turn, or the place of a head that had none yet.
    pub(super) fn end(&self, key: Option<&Quiet<K>>, hash: u64, had_turn: bool) {
        // Before the lane moves on: with one permit and one key its next one takes it.
        if had_turn && let Some(gate) = &self.turns {
            gate.give();
        }
        if let Some(key) = key {
            self.move_on(key, hash);
        }
        self.room.give();
    }

    /// Somebody who waits for its turn leaves.
    pub(super) fn leave(&self, key: Option<&Quiet<K>>, hash: u64, waiter: &Waiter) {
        waiter.hush();
        if let Some(key) = key {
            let left = caught(|| self.lanes.with(hash, key, |lane| leave_lane(lane, waiter)));
            match left {
                Ok(Some(true)) => return self.room.give(),
                // It has been called, granted or sent home; its lane may be gone.
                Ok(Some(false) | None) => {}
                Err(_) => self.broken(),
            }
        }
        let left = match &self.turns {
            Some(gate) => gate.leave(waiter),
            None => waiter.shift(Stage::Called, Stage::Gone),
        };
        match waiter.stage() {
            _ if left && cfg!(keylane_mutant = "turnstile-called-stays") => self.room.give(),
            _ if left => self.end(key, hash, false),
            Stage::Granted => self.end(key, hash, true),
            Stage::Recalled => self.end(key, hash, false),
            Stage::Parked | Stage::Called | Stage::Gone | Stage::Dismissed => {
                // Parked where its key does not find it, and not because somebody closes.
                if waiter.stage() == Stage::Parked && !self.is_closed() {
                    self.broken();
                }
                self.room.give();
            }
        }
    }

    /// Nobody comes in any more, and everybody who waits is sent home.
    pub(super) fn close(&self) {
        self.shut();
        let mut sent = Vec::new();
        self.lanes.sweep(|_, _, lane| {
            let (_, parked) = lane.hand_back();
            if let Some(extra) = lane.extra_if_any() {
                extra.gone = 0;
            }
            sent.extend(parked);
            // Its head is with somebody who moves it on.
            true
        });
        for waiter in sent {
            if waiter.shift(Stage::Parked, Stage::Dismissed) {
                waiter.wake();
            }
        }
    }

    /// A key cannot be found again by itself, so its lane cannot be moved on: nobody may wait for it.
    #[cold]
    fn broken(&self) {
        tracing::error!(target: "keylane", "a key is not equal to itself, or panics: the turnstile is closed");
        self.close();
    }
}

/// Under the shard's lock: the first one behind the head that has not left is called.
fn call_next(lane: &mut Lane) -> Next<Arc<Waiter>> {
    loop {
        let next = lane.finish();
        let Next::Start(waiter) = &next else {
            return next;
        };
        if waiter.shift(Stage::Parked, Stage::Called) {
            tidy(lane);
            return next;
        }
        if let Some(extra) = lane.extra_if_any() {
            extra.gone = extra.gone.saturating_sub(1);
        }
    }
}

/// Under the shard's lock: leaves the lane, if it is parked there.
fn leave_lane(lane: &mut Lane, waiter: &Waiter) -> bool {
    if !waiter.shift(Stage::Parked, Stage::Gone) {
        return false;
    }
    lane.extra_mut().gone += 1;
    tidy(lane);
    true
}

/// Under the shard's lock: sweeps out those who have left once they are the half of it.
fn tidy(lane: &mut Lane) {
    let parked = lane.parked_len();
    if let Some(extra) = lane.extra_if_any()
        && extra.gone > parked / 2
        && !cfg!(keylane_mutant = "turnstile-gone-kept")
    {
        extra.gone = 0;
        lane.retain_parked(|waiter| waiter.stage() != Stage::Gone);
    }
}
