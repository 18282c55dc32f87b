//! A runner's place among the runners, given back when its task is gone.

use std::future::poll_fn;

use super::Engine;
use super::batch::Mate;
use super::hand::{Concluded, Letter, Owed};
use super::message::{Queued, Ticket, Turn, Work};
use super::settle::{Outcome, Tally};
use crate::clock;
use crate::error::Failure;
use crate::handler::Context;
use crate::lanes::{Role, Take};
use crate::observe::hot_keys::NO_SLOT;
use crate::rt::{self, Arc};
use crate::types::Spec;

/// Made before the task is spawned and moved into it, so that a task which is dropped before its
/// first poll gives its place back too.
pub(crate) struct Seat<T: Spec> {
    engine: Arc<Engine<T>>,
    number: u64,
    role: Role,
    tally: Tally,
    /// Turns until this task's budget is asked again.
    fresh: u8,
    /// Messages of the lane in hand until it goes behind the others.
    quantum: u32,
    /// Whether it made another runner a poller, and has not stepped aside since.
    recruited: bool,
    /// Where it is seen to wait.
    place: u32,
}

/// A turn is a small part of what Tokio's budget counts as one operation.
const TURNS_PER_OPERATION: u8 = if cfg!(keylane_shuttle) { 1 } else { 4 };

impl<T: Spec> Seat<T> {
    pub(crate) fn new(engine: Arc<Engine<T>>, number: u64) -> Self {
        Self {
            engine,
            number,
            role: Role::Starting,
            tally: Tally::default(),
            fresh: TURNS_PER_OPERATION,
            quantum: 0,
            recruited: false,
            place: NO_SLOT,
        }
    }

    #[inline]
    pub(super) fn engine(&self) -> &Arc<Engine<T>> {
        &self.engine
    }

    #[inline]
    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Whether this task should let others run before its next turn.
    #[inline]
    pub(super) fn is_tired(&mut self) -> bool {
        self.fresh -= 1;
        if self.fresh > 0 {
            return false;
        }
        self.fresh = TURNS_PER_OPERATION;
        !rt::spend_budget()
    }

    /// Whether this task must get out of the way of a runner that it woke.
    #[inline]
    pub(super) fn is_in_the_way(&mut self) -> bool {
        let recruited = std::mem::take(&mut self.recruited);
        recruited && self.role == Role::Poller && !cfg!(keylane_mutant = "never-aside")
    }

    pub(super) fn flush(&mut self) {
        self.engine.flush(&mut self.tally);
    }

    /// The next turn for a poller; without one the role has changed.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Turn<T>> {
        let first = self.role == Role::Starting;
        self.role = Role::Poller;
        self.quantum = self.engine.settings.quantum;
        let taken = self.engine.ready.take(first);
        self.follow(taken)
    }

    /// Waits, idle, to poll again. False: leave.
    pub(super) async fn summoned(&mut self) -> bool {
        let (ready, mut waits) = (&self.engine.ready, false);
        let summoned = poll_fn(|cx| ready.poll_summons(self.number, &mut waits, cx)).await;
        self.role = if summoned { Role::Starting } else { Role::Gone };
        summoned
    }

    /// The handler returned `Pending`: from the first time on, this runner holds its lane.
    pub(super) fn hold(&mut self, key: Option<&T::Key>, hash: u64, attempt: u32, parked_at: u64) {
        if self.role == Role::Holder {
            return;
        }
        self.role = Role::Holder;
        // What was settled must not wait with this handler.
        self.flush();
        let recruit = self.engine.ready.hold();
        self.engine.recruit(recruit);
        if let Some(key) = key {
            let now = clock::now();
            self.engine
                .lanes
                .with(hash, key, |lane| lane.wait(now, attempt, parked_at));
            self.place = self.engine.begin_wait(self.number, hash, now);
        }
    }

    /// Settles a message that was handled.
    #[inline]
    pub(super) fn settle_done(
        &mut self,
        key: Option<&T::Key>,
        hash: u64,
        ticket: &mut Ticket<T>,
        answer: T::Output,
    ) {
        if self.engine.loads.is_some()
            && let Some(terms) = ticket.debt.terms()
        {
            self.engine.note_recorded(key, hash, terms.version);
        }
        self.engine
            .settle_in_place(&mut self.tally, ticket, Outcome::Done(answer));
    }

    /// Moves the lane on, retries or gives up; returns the turn of the next message of the key.
    #[inline]
    pub(super) fn after_attempt(
        &mut self,
        context: &mut Context<T::Key>,
        concluded: Concluded<T>,
    ) -> Option<Queued<T>> {
        match concluded {
            Concluded::Settled(hash) => self.engine.advance(context.key.take(), hash),
            Concluded::Failed(failure, owed) => {
                self.engine.failed(&mut self.tally, context, owed, failure)
            }
        }
    }

    /// Settles a batch as far as it succeeded.
    pub(super) fn after_batch(
        &mut self,
        context: &mut Context<T::Key>,
        owed: Owed<T>,
        mates: Vec<Mate<T>>,
        answer: Result<Vec<Result<T::Output, T::Error>>, Box<Failure<T::Error>>>,
    ) -> Option<Queued<T>> {
        self.engine
            .after_batch(&mut self.tally, context, owed, mates, answer)
    }

    /// Settles a letter that was accepted, or brings it back later.
    pub(super) fn after_letter(
        &mut self,
        letter: Letter<T>,
        accepted: Result<(), String>,
    ) -> Option<Queued<T>> {
        let Letter {
            key,
            hash,
            message,
            ticket,
            given_up,
        } = letter;
        #[cfg(keylane_mutant = "letter-unheard")]
        let accepted = accepted.or(Ok::<_, String>(()));
        match accepted {
            Ok(()) => {
                self.engine.drop_quietly(message);
                self.engine.notify_dead_lettered(key.as_ref(), &given_up);
                let outcome = Outcome::DeadLettered(given_up.failure);
                self.engine.settle(&mut self.tally, ticket, outcome);
                self.engine.advance(key, hash)
            }
            Err(error) => {
                let turn = Turn {
                    key,
                    hash,
                    message,
                    ticket,
                    work: Work::Letter(given_up),
                };
                self.engine.refused(&mut self.tally, turn, error);
                None
            }
        }
    }

    /// Decides who runs the next message of the key: this runner at once, or whoever comes.
    #[inline]
    pub(super) fn proceed(&mut self, next: Option<Queued<T>>) -> Option<Turn<T>> {
        if self.role == Role::Holder {
            self.engine.end_wait(&mut self.place);
            match next {
                Some(next) if !self.poll_again() => {
                    self.engine.enqueue(next);
                    return self.come_back();
                }
                None => return self.come_back(),
                Some(_) => {}
            }
        }
        self.engine.flush_some(&mut self.tally);
        let next = next?;
        if self.is_tired() {
            self.fresh = 1;
            self.engine.enqueue(next);
            return None;
        }
        self.quantum -= 1;
        let goes_on = self.quantum > 0;
        if goes_on && self.engine.ready.is_plain() {
            return self.start(next);
        }
        let chosen = if goes_on {
            self.engine.ready.go_on(next)
        } else {
            self.quantum = self.engine.settings.quantum;
            self.engine.ready.rotate(next)
        };
        match chosen {
            Ok(front) => self.start(front?),
            Err(closed) => {
                self.engine.hand_back_queued(closed);
                None
            }
        }
    }

    /// Lets what was in the ready queue start, unless the end hands it back; a call is answered by its
    /// lane.
    ///
    /// Asked for every turn, and not left to the ready queue's being closed: a message that the
    /// router still lets in while runners see the end already may be behind one of its key that a
    /// runner has handed back, and must not run after it.
    #[inline]
    fn start(&mut self, queued: Queued<T>) -> Option<Turn<T>> {
        let ends = self.engine.shutdown.hands_back() && !cfg!(keylane_mutant = "late-start");
        match queued {
            Queued::Turn(turn) if !ends && !self.engine.is_wary() => Some(turn),
            queued => self.start_warily(queued, ends),
        }
    }

    #[cold]
    #[inline(never)]
    fn start_warily(&mut self, queued: Queued<T>, ends: bool) -> Option<Turn<T>> {
        match queued {
            queued if ends => {
                self.engine.hand_back_queued(queued);
                None
            }
            Queued::Turn(turn) if !turn.ticket.debt.is_termed() && !self.engine.has_paused() => {
                Some(turn)
            }
            Queued::Turn(turn) => self.engine.reconsider(&mut self.tally, turn),
            Queued::Call { key, hash, .. } => self.engine.ask(key, hash),
        }
    }

    fn poll_again(&mut self) -> bool {
        let again = self.engine.ready.resume();
        if again {
            self.role = Role::Poller;
        }
        again
    }

    /// A holder whose lane is in other hands, or gone, looks for something else to do.
    #[inline]
    fn come_back(&mut self) -> Option<Turn<T>> {
        self.role = Role::Poller;
        self.quantum = self.engine.settings.quantum;
        self.engine.flush_some(&mut self.tally);
        let (taken, recruit) = self.engine.ready.come_back();
        self.engine.recruit(recruit);
        self.follow(taken)
    }

    #[inline]
    fn follow(&mut self, taken: Take<Queued<T>>) -> Option<Turn<T>> {
        match taken {
            Take::Turn(queued) => return self.start(queued),
            Take::Aside(recruit) => {
                self.recruited = true;
                self.engine.recruit(recruit);
            }
            Take::Idle => self.role = Role::Idle,
            Take::Leave => self.role = Role::Gone,
        }
        self.flush();
        if !self.engine.ready.is_plain() {
            self.tell_of_refusal();
        }
        None
    }

    /// The router brings back what the rate holds up.
    #[cold]
    fn tell_of_refusal(&self) {
        let is_refused = self.engine.ready.refused_until().is_some();
        if is_refused && !cfg!(keylane_mutant = "refused-silently") {
            self.engine.shutdown.nudge();
        }
    }
}

impl<T: Spec> Drop for Seat<T> {
    fn drop(&mut self) {
        self.engine.runners.remove(self.number);
        self.engine.end_wait(&mut self.place);
        if std::thread::panicking() {
            // Handlers' panics are caught. This one came from a key's own `Eq`, `Clone` or `Drop`,
            // and what the runner held of its lane is gone.
            self.engine.count_lost();
        }
        self.flush();
        let recruit = self.engine.ready.lost(self.role, self.number);
        self.engine.recruit(recruit);
        self.engine.shutdown.nudge();
        self.engine.end_orphaned();
    }
}
