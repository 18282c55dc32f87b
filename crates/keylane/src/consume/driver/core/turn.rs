//! What the driver waits for, and what it does by the clock.

use std::time::Duration;

use keylane_rt::clock::Instant;

use super::action::{Action, Call, Unplaced};
use super::held::GenerationState;
use super::state::Core;
use super::trouble::{FAR, Trouble, later};

/// With less than this share of `held` free, what settles is read in batches of that share: the
/// source could hand over no more than what has settled, and each turn costs as much as several
/// messages.
const SHARE: usize = 16;

/// How long a smaller batch may take.
const BATCH_WITHIN: Duration = Duration::from_millis(1);

/// What is in no lane yet.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct InletView {
    pub(in super::super) len: usize,
    /// How many of those are deferred.
    pub(in super::super) deferred: usize,
    /// Whether the dispatcher takes no more messages.
    pub(in super::super) is_closed: bool,
}

/// What the driver waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Turn {
    /// Whether the source is asked for news.
    pub(in super::super) receives: bool,
    /// How many messages it may hand over, and how many bytes of them.
    pub(in super::super) room: usize,
    pub(in super::super) room_bytes: usize,
    /// When it has to say that it is idle.
    pub(in super::super) idle_at: Instant,
    /// How many settlements are waited for.
    pub(in super::super) least: usize,
    pub(in super::super) wake_at: Option<Instant>,
}

impl<P: Clone + PartialEq> Core<P> {
    /// The driver has something to do, and the source is not listened to meanwhile.
    pub(in super::super) fn woke(&mut self, now: Instant) {
        self.silence.pause(now);
    }

    /// The driver has nothing more to do, and waits.
    pub(in super::super) fn waits(&mut self, inlet: InletView, now: Instant) -> Turn {
        self.silence.resume(now);
        let settings = &self.terms.settings;
        let most = self.terms.most_held;
        let takes_in = self.phase.is_running() && !inlet.is_closed;
        let is_paused = self.phase.is_paused();
        let room_bytes = settings.held_bytes.saturating_sub(self.ledger.held.bytes());
        let room = match takes_in && !is_paused && room_bytes > 0 {
            false => 0,
            // What is settled before it runs is not held.
            true => {
                let here = self.ledger.held.len().max(inlet.len);
                most.saturating_sub(here.saturating_sub(inlet.deferred))
            }
        };
        let batch = if takes_in { most / SHARE } else { 1 };
        let batch_at = later(self.settled_at, BATCH_WITHIN);
        let is_in_batches =
            room < batch && now < batch_at && !is_paused && self.revocations.is_empty();
        let batch_at = is_in_batches.then_some(batch_at);
        Turn {
            receives: self.phase.receives(),
            room,
            room_bytes,
            idle_at: self.silence.lasts(settings.stall_after / 2),
            least: if is_in_batches { batch } else { 1 },
            wake_at: self.wake_at().into_iter().chain(batch_at).min(),
        }
    }

    /// When something is due by the clock.
    fn wake_at(&self) -> Option<Instant> {
        let is_open = self.phase.is_open();
        let stall_after = self.terms.settings.stall_after;
        let stalls = self.phase.is_running() && stall_after < FAR;
        let extends =
            is_open && self.ledger.held.len() > 0 && self.terms.features.lease_of().is_some();
        let all = [
            self.phase.wake_at(),
            stalls.then(|| self.silence.lasts(stall_after)),
            extends.then_some(self.extend_at),
            self.ledger.unconfirmed.confirm_at().filter(|_| is_open),
            self.parts.wake_at(),
            self.revocations.wake_at(),
            self.ledger.wake_at(),
        ];
        all.into_iter().flatten().min()
    }

    /// Does what is due by the clock.
    pub(in super::super) fn timer(&mut self, now: Instant) {
        for saying in self.parts.due(now) {
            self.actions.push(Action::Say(saying));
        }
        let (ledger, actions) = (&mut self.ledger, &mut self.actions);
        if self.revocations.follow(now, ledger, actions) {
            self.look();
        }
        let stall_after = self.terms.settings.stall_after;
        let stalls = self.phase.is_running() && stall_after < FAR;
        if stalls && now >= self.silence.lasts(stall_after) {
            let lasted = self.silence.lasted(now);
            return self.failed(&Trouble::Late(lasted), now);
        }
        let (ledger, actions) = (&mut self.ledger, &mut self.actions);
        if self.phase.hands_back(now) {
            ledger.held.end(GenerationState::Revoked, |_| true);
            self.revocations.begin_all(now, ledger, actions);
        }
        ledger.give_back_refused(Unplaced::None, now, actions);
        self.release_finished(now);
        self.actions.push(Action::Serve);
    }

    /// What goes back now has settled: extends leases, confirms acks.
    pub(in super::super) fn serve(&mut self, now: Instant) {
        if !self.phase.is_open() {
            return;
        }
        if let Some(lease) = self.terms.features.lease_of()
            && now >= self.extend_at
        {
            self.extend_at = later(now, lease / 3);
            // Also what is revoked, as long as it is here.
            let over = GenerationState::Over;
            let ours = self.ledger.held.positions(|held| held.standing != over);
            let ours: Vec<P> = ours.into_iter().map(|(_, position)| position).collect();
            if ours.is_empty() {
                self.extended_at = None;
            } else {
                self.extends_since = now;
                self.actions.call(Call::Extend(ours));
            }
        }
        let unconfirmed = &mut self.ledger.unconfirmed;
        if unconfirmed.confirm_at().is_some_and(|at| now >= at) {
            unconfirmed.ask(later(now, self.terms.settings.confirm_every));
            self.actions.call(Call::Confirm);
        }
    }
}
