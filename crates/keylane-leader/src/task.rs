//! The task of a candidate: carries out what the machine wants.

use std::fmt;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;

use futures::future::BoxFuture;
use keylane_leases::error::{AcquireError, LeaseLost, StoreError};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep_until};

use crate::calls::{Answer, Caller, Holding, sight_of};
use crate::career::{Career, End, Following, Stop, Term};
use crate::events::Event;
use crate::guarded::Guarded;
use crate::machine::{Call, Input, Machine, Name, Outcome, Phase};
use crate::metrics::Record;
use crate::orders::{Order, Orders};
use crate::store::{Election, History};
use crate::watching::{leader_of, tell};

pub(crate) struct Task {
    pub(crate) machine: Machine,
    pub(crate) caller: Caller,
    pub(crate) orders: Arc<Orders>,
    pub(crate) events: broadcast::Sender<Event>,
    pub(crate) leader: watch::Sender<Option<Following>>,
    pub(crate) history: watch::Receiver<Option<History>>,
    /// Whether the elections are closed; `None` when that is reported.
    pub(crate) closed: Option<watch::Receiver<bool>>,
    /// The call that is under way, or over: one that is wanted on is not repeated.
    pub(crate) call: Option<(Call, Option<BoxFuture<'static, Answer>>)>,
    pub(crate) seen: Option<Election>,
    pub(crate) holding: Holding,
    pub(crate) stop: Option<watch::Sender<bool>>,
    /// Whether the loss of the lease, or another history, is reported, or matters no more.
    pub(crate) is_loss_reported: bool,
    /// Calls in a row that have failed.
    pub(crate) failed_calls: u64,
    pub(crate) record: Record,
}

impl Task {
    pub(crate) async fn run<C: Career>(mut self, mut career: C) {
        self.arrange();
        loop {
            let wants = self.machine.wants();
            let phase = wants.phase.clone();
            match (phase, self.holding.term().cloned()) {
                (None, _) if self.machine.name() == Name::Over => return,
                (Some(phase @ Phase::Prepare), _) => {
                    let leader = self.leader.borrow().clone();
                    match leader {
                        Some(leader) => {
                            let prepares = async { career.prepare(&leader).await };
                            self.during(&phase, None, prepares).await;
                        }
                        // It is gone by now.
                        None => self.apply(Input::PhaseEnded(Outcome::Ok)),
                    }
                }
                (Some(phase @ Phase::Inaugurate), Some(term)) => {
                    let inaugurates = async { career.inaugurate(&term).await };
                    self.during(&phase, Some(&term), inaugurates).await;
                }
                (Some(phase @ Phase::Execute), Some(term)) => {
                    let (sender, stop) = Stop::new();
                    self.stop = Some(sender);
                    let executes = async { career.execute(&term, stop).await };
                    self.during(&phase, Some(&term), executes).await;
                    self.stop = None;
                }
                (Some(Phase::HandOver(why)), Some(term)) => {
                    let phase = Phase::HandOver(why.clone());
                    let hands_over = async {
                        career.hand_over(&term, why).await;
                        Ok::<_, &str>(())
                    };
                    self.during(&phase, None, hands_over).await;
                }
                _ => {
                    let input = self.next().await;
                    self.apply(input);
                }
            }
        }
    }

    /// Runs a phase until it ends, or is no longer wanted. A phase under a term is dropped when the
    /// term is lost.
    async fn during<E: fmt::Display>(
        &mut self,
        phase: &Phase,
        term: Option<&Term>,
        future: impl Future<Output = Result<(), E>>,
    ) {
        let guarded = Guarded::new(future);
        let mut runs = pin!(async {
            match term {
                Some(term) => term.lease().run(guarded).await,
                None => Ok(guarded.await),
            }
        });
        loop {
            let input = tokio::select! {
                biased;
                ended = &mut runs => {
                    let input = match ended {
                        Ok(outcome) => Input::PhaseEnded(outcome),
                        Err(why) => self.loss(why),
                    };
                    return self.apply(input);
                }
                input = self.next() => input,
            };
            self.apply(input);
            if self.machine.wants().phase.as_ref() != Some(phase) {
                return;
            }
        }
    }

    /// Waits for the next input.
    ///
    /// # Cancel safety
    ///
    /// No input is lost.
    async fn next(&mut self) -> Input {
        let at = self.machine.wants().at;
        let lease = self.holding.lease().filter(|_| !self.is_loss_reported);
        let term = self.holding.term().filter(|_| !self.is_loss_reported);
        let call = self.call.as_mut().and_then(|(_, call)| call.as_mut());
        let answer = tokio::select! {
            biased;
            order = self.orders.next() => return match order {
                Order::Resign(to) => Input::Resign(to),
                Order::Close => Input::Close,
            },
            why = async { match lease {
                Some(lease) => lease.lost().await,
                None => pending().await,
            } } => return self.loss(why),
            () = another_history(&mut self.history, term) => {
                self.is_loss_reported = true;
                if let Some(term) = self.holding.term() {
                    term.end_in_history();
                }
                return Input::OtherHistory;
            }
            () = is_closed(self.closed.as_mut()) => return self.closed(),
            answer = async { match call {
                Some(call) => call.await,
                None => pending().await,
            } } => answer,
            () = sleep_until(at.unwrap_or_else(Instant::now)), if at.is_some() => {
                return self.tick();
            }
        };
        if let Some((_, call)) = &mut self.call {
            *call = None;
        }
        self.answered(answer)
    }

    /// A lease is renewed without a word to the task: so it looks when it is to look.
    fn tick(&self) -> Input {
        let leads = matches!(self.machine.name(), Name::Executing | Name::Doubtful);
        match self.holding.lease().filter(|_| leads) {
            Some(lease) => Input::Held(lease.held_until().unwrap_or_else(Instant::now)),
            None => Input::Tick,
        }
    }

    /// The elections are closed: this candidate can never lead again.
    fn closed(&mut self) -> Input {
        if self.closed.take().is_some() {
            tracing::warn!(
                candidate = %self.caller.entry.id,
                "the elections of this process are closed: the candidate ends"
            );
            self.send(Event::Closed);
        }
        Input::Close
    }

    fn loss(&mut self, why: LeaseLost) -> Input {
        self.is_loss_reported = true;
        Input::Lost(why)
    }

    /// Begins the call that the machine wants, and drops another one.
    fn arrange(&mut self) {
        let wanted = self.machine.wants().call;
        let is_there = self.call.as_ref().map(|(call, _)| call) == wanted.as_ref();
        if !is_there {
            // A release ends the lease: that is no loss.
            self.is_loss_reported |= matches!(wanted, Some(Call::Release { .. }));
            self.call = wanted.map(|call| {
                let future = self.caller.begin(&call, self.seen.as_ref(), &self.holding);
                (call, Some(future))
            });
        }
    }

    /// Returns what an answer of the store means to the machine.
    fn answered(&mut self, answer: Answer) -> Input {
        match answer {
            Answer::Looked(Ok(seen)) => {
                self.show(leader_of(&seen));
                let sight = sight_of(&seen, &self.caller.entry.id);
                // One that asks for the lease next has failed until it has it.
                if !sight.is_next || sight.held_for.is_some() {
                    self.failed_calls = 0;
                }
                self.seen = Some(seen);
                Input::Looked(sight)
            }
            Answer::Changed(Ok(())) => {
                self.seen = None;
                Input::Changed
            }
            Answer::Acquired(Ok((lease, history))) => {
                self.holding = Holding::Lease(lease, history);
                self.is_loss_reported = false;
                Input::Granted
            }
            Answer::Acquired(Err(AcquireError::Closed)) => self.closed(),
            // Another candidate was faster: no failure of the store.
            Answer::Acquired(Err(AcquireError::Taken { .. })) => Input::CallFailed,
            Answer::Acquired(Err(error)) => self.call_failed(&error),
            Answer::Began(Ok((succession, history))) => {
                match std::mem::replace(&mut self.holding, Holding::Nothing) {
                    Holding::Lease(lease, before) if before == history => {
                        self.failed_calls = 0;
                        let id = self.caller.entry.id.clone();
                        self.holding = Holding::Term(Term::new(id, history, lease));
                        Input::Began(succession)
                    }
                    holding => {
                        self.holding = holding;
                        self.call_failed(&"the history of the store has changed meanwhile")
                    }
                }
            }
            Answer::Looked(Err(error))
            | Answer::Changed(Err(error))
            | Answer::Began(Err(error)) => self.call_failed(&error),
            // What the mark is for is lost: the successor prepares later. It is not repeated.
            Answer::Marked(marked) => {
                self.log(marked);
                Input::Changed
            }
            // A lease that is not released runs out; a candidate that is not withdrawn, too.
            Answer::Done(done) => {
                self.log(done);
                Input::Done
            }
        }
    }

    fn call_failed(&mut self, error: &dyn fmt::Display) -> Input {
        self.failed_calls += 1;
        self.record.call_failed();
        if self.failed_calls.is_power_of_two() {
            tracing::warn!(
                candidate = %self.caller.entry.id, %error, failures = self.failed_calls,
                "a call to the election store has failed, will retry"
            );
        }
        Input::CallFailed
    }

    fn log(&self, answer: Result<(), StoreError>) {
        if let Err(error) = answer {
            let candidate = &self.caller.entry.id;
            tracing::warn!(
                %candidate, %error,
                "a call of a leader that leaves has failed: its lease and its entry run out"
            );
        }
    }

    /// Gives an input to the machine, and reports what has changed.
    fn apply(&mut self, input: Input) {
        let (before, was_ending) = (self.machine.name(), self.machine.end().cloned());
        let failure = self.failure(&input);
        self.machine.on(input, Instant::now());
        if let Some((method, error)) = failure {
            let candidate = &self.caller.entry.id;
            tracing::warn!(%candidate, method, %error, "a method of the career has failed");
            self.send(Event::Failed { method, error });
        }
        let ending = self.machine.end().cloned();
        if let Some(why) = ending.filter(|why| Some(why) != was_ending.as_ref()) {
            self.log_end(&why);
            self.send(Event::Leaving(why));
        }
        self.report(before, self.machine.name());
        if let Some(stop) = self.stop.as_ref().filter(|_| self.machine.wants().stop) {
            stop.send_replace(true);
        }
        self.arrange();
    }

    fn log_end(&self, why: &End) {
        let candidate = &self.caller.entry.id;
        match why {
            End::Failed(_) | End::Panicked(_) | End::Lost(_) | End::OtherHistory => {
                tracing::warn!(%candidate, %why, "the leader is leaving");
            }
            _ => tracing::info!(%candidate, %why, "the leader is leaving"),
        }
    }

    /// Reports that the state is another one.
    fn report(&mut self, before: Name, after: Name) {
        self.orders.set(after);
        self.record.leads(self.orders.leads());
        if before == after {
            return;
        }
        let token = self.holding.lease().map(|lease| lease.token());
        if matches!(after, Name::Candidate | Name::Over) {
            self.give_up();
        }
        match (after, token) {
            (Name::Preparing, _) => self.send(Event::Preparing),
            (Name::Inaugurating, Some(token)) => {
                tracing::info!(candidate = %self.caller.entry.id, %token, "a leader is elected");
                self.send(Event::Elected(token));
            }
            (Name::Executing, _) if before == Name::Doubtful => self.send(Event::Renewed),
            (Name::Executing, Some(token)) => {
                self.show_own(false);
                self.send(Event::Inaugurated(token));
            }
            (Name::Doubtful, _) => {
                let remaining = self.holding.term().map(Term::remaining).unwrap_or_default();
                let candidate = &self.caller.entry.id;
                tracing::warn!(%candidate, ?remaining, "a renewal of the term is overdue");
                self.send(Event::Doubtful(remaining));
            }
            (Name::Leaving, Some(_)) => self.show_own(true),
            (Name::Candidate, _) if before != Name::Preparing => self.send(Event::Standing),
            (Name::Over, _) => self.send(Event::Over),
            _ => {}
        }
    }

    /// Ends the lease, also if the user still has its term.
    fn give_up(&mut self) {
        if let Some(lease) = self.holding.lease() {
            lease.start_release();
            self.show(None);
        }
        self.holding = Holding::Nothing;
    }

    fn show_own(&mut self, is_leaving: bool) {
        let own = self.holding.term().map(|term| Following {
            leader: term.leader().clone(),
            token: term.token(),
            is_leaving,
        });
        self.record.saw(own.as_ref());
        tell(&self.leader, own);
    }

    fn show(&mut self, leader: Option<Following>) {
        if tell(&self.leader, leader.clone()) {
            self.record.saw(leader.as_ref());
            self.send(leader.map_or(Event::NoLeader, Event::Leader));
        }
    }

    /// Returns which method has failed, and why, if this input says so.
    fn failure(&self, input: &Input) -> Option<(&'static str, String)> {
        let wants = self.machine.wants();
        let method = match wants.phase? {
            Phase::Prepare => "prepare",
            Phase::Inaugurate => "inaugurate",
            // Without a request to stop, it is why the term ends.
            Phase::Execute if !wants.stop => return None,
            Phase::Execute => "execute",
            Phase::HandOver(_) => "hand_over",
        };
        match input {
            Input::PhaseEnded(Outcome::Failed(error)) => Some((method, error.clone())),
            Input::PhaseEnded(Outcome::Panicked(message)) => {
                Some((method, format!("it panicked: {message}")))
            }
            Input::Tick if self.machine.is_overdue(Instant::now()) => {
                Some((method, "it took longer than its limit".to_owned()))
            }
            _ => None,
        }
    }

    fn send(&mut self, event: Event) {
        self.record.happened(&event);
        // Without a reader there is nothing to do.
        let _ = self.events.send(event);
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // Also if its runtime has ended. The user may still have the term.
        if let Some(lease) = self.holding.lease() {
            lease.start_release();
        }
        self.orders.set(Name::Over);
        self.leader.send_replace(None);
    }
}

/// Waits until the store is in another history than the term.
async fn another_history(history: &mut watch::Receiver<Option<History>>, term: Option<&Term>) {
    let Some(term) = term else {
        return pending().await;
    };
    let is_other =
        |seen: &Option<History>| seen.as_ref().is_some_and(|seen| seen != term.history());
    if history.wait_for(is_other).await.is_err() {
        pending().await
    }
}

/// Waits until the elections are closed.
async fn is_closed(closed: Option<&mut watch::Receiver<bool>>) {
    let is_closed = match closed {
        Some(closed) => closed.wait_for(|is_closed| *is_closed).await.is_ok(),
        None => false,
    };
    if !is_closed {
        pending().await
    }
}
