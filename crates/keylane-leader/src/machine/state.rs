//! The states, and what follows from each input.

use tokio::time::Instant;

use super::input::{Call, Input, Outcome, Phase, Sight, Succession, Wants};
use crate::career::End;
use crate::settings::{Lost, Settings};
use crate::store::CandidateId;

/// A candidate, from its start to its end.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    state: State,
    settings: Settings,
    /// Whether the candidate leaves for good when its term has ended.
    is_closing: bool,
    /// Whether the career is prepared for the leader that is leaving.
    is_prepared: bool,
    /// Terms in a row that have failed.
    failures: u32,
    /// When `execute` has begun.
    leads_since: Instant,
}

/// The state of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// It waits for its election.
    Candidate,
    /// The same, and the career prepares.
    Preparing,
    /// It is elected, and takes over.
    Inaugurating,
    /// It leads.
    Executing,
    /// It leads, and a renewal of its term is overdue.
    Doubtful,
    /// Its term ends.
    Leaving,
    /// It is no candidate any more.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Candidate(Standing),
    Preparing {
        standing: Standing,
        until: Instant,
    },
    Inaugurating(Taking),
    /// Held until then.
    Executing(Instant),
    /// Whether it is renewed is asked again then.
    Doubtful(Instant),
    Leaving(Leaving),
    Over,
}

/// Where a candidate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It does nothing until then.
    Resting(Instant),
    /// It is being entered again.
    Looking,
    /// It waits for a change, at most until then.
    Watching(Instant),
    /// It asks for the lease.
    Asking,
}

/// How far a new leader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    /// The term is being recorded.
    Recording,
    /// The leader before it was lost: it waits until then.
    Waiting(Instant),
    /// `inaugurate` runs, at most until then.
    Running(Instant),
}

/// How far a leader that is leaving is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Leaving {
    step: Step,
    /// Whether the lease is lost.
    is_lost: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// `execute` was asked to stop, and is dropped then.
    Stopping(End, Instant),
    /// `hand_over` runs, at most until then.
    HandingOver(End, Instant),
    /// The lease is being released.
    Releasing {
        is_orderly: bool,
        chosen: Option<CandidateId>,
    },
    /// The candidate is being withdrawn.
    Withdrawing,
}

impl Machine {
    pub(crate) fn new(settings: Settings, now: Instant) -> Self {
        Self {
            state: State::Candidate(Standing::Looking),
            settings,
            is_closing: false,
            is_prepared: false,
            failures: 0,
            leads_since: now,
        }
    }

    pub(crate) fn name(&self) -> Name {
        match self.state {
            State::Candidate(_) => Name::Candidate,
            State::Preparing { .. } => Name::Preparing,
            State::Inaugurating(_) => Name::Inaugurating,
            State::Executing(_) => Name::Executing,
            State::Doubtful(_) => Name::Doubtful,
            State::Leaving(_) => Name::Leaving,
            State::Over => Name::Over,
        }
    }

    /// Returns why the term ends, if it does.
    pub(crate) fn end(&self) -> Option<&End> {
        match &self.state {
            State::Leaving(leaving) => match &leaving.step {
                Step::Stopping(why, _) | Step::HandingOver(why, _) => Some(why),
                Step::Releasing { .. } | Step::Withdrawing => None,
            },
            _ => None,
        }
    }

    #[cfg(test)]
    pub(crate) fn closes(&self) -> bool {
        self.is_closing
    }

    /// Returns whether a phase has reached its limit.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        let until = match &self.state {
            State::Preparing { until, .. } | State::Inaugurating(Taking::Running(until)) => until,
            State::Leaving(leaving) => match &leaving.step {
                Step::Stopping(_, until) | Step::HandingOver(_, until) => until,
                Step::Releasing { .. } | Step::Withdrawing => return false,
            },
            _ => return false,
        };
        *until <= now
    }

    /// Returns what is to be running.
    pub(crate) fn wants(&self) -> Wants {
        let doubtful_below = self.settings.doubtful_below();
        match &self.state {
            State::Candidate(standing) => Wants::call(standing.call(), standing.until()),
            State::Preparing { standing, until } => {
                let at = standing.until().map_or(*until, |at| at.min(*until));
                Wants::call(standing.call(), Some(at)).with(Phase::Prepare)
            }
            State::Inaugurating(Taking::Recording) => Wants::call(Some(Call::Begin), None),
            State::Inaugurating(Taking::Waiting(until)) => Wants::call(None, Some(*until)),
            State::Inaugurating(Taking::Running(until)) => {
                Wants::call(None, Some(*until)).with(Phase::Inaugurate)
            }
            State::Executing(held) => {
                let doubtful = held.checked_sub(doubtful_below).unwrap_or(*held);
                Wants::call(None, Some(doubtful)).with(Phase::Execute)
            }
            State::Doubtful(ask_at) => Wants::call(None, Some(*ask_at)).with(Phase::Execute),
            State::Leaving(leaving) => leaving.wants(),
            State::Over => Wants::call(None, None),
        }
    }

    /// Takes an input, and goes to the next state. An input that does not fit is ignored: it is
    /// late.
    pub(crate) fn on(&mut self, input: Input, now: Instant) {
        let state = std::mem::replace(&mut self.state, State::Over);
        self.state = match (state, input) {
            (State::Over, _) => State::Over,
            (state, Input::Close) => self.close(state, now),
            (State::Candidate(standing), input) => self.stand(standing, input, now),
            (State::Preparing { standing, until }, input) => {
                self.prepare(standing, until, input, now)
            }
            (State::Inaugurating(taking), input) => self.take(taking, input, now),
            (state @ (State::Executing(_) | State::Doubtful(_)), input) => {
                self.execute(state, input, now)
            }
            (State::Leaving(leaving), input) => self.leave(leaving, input, now),
        };
    }

    fn close(&mut self, state: State, now: Instant) -> State {
        self.is_closing = true;
        match state {
            State::Candidate(_) | State::Preparing { .. } => leaving(Step::Withdrawing),
            // The leader before it may have been lost, and the wait for it is not over.
            State::Inaugurating(Taking::Recording | Taking::Waiting(_)) => {
                leaving(Step::released(false, None))
            }
            State::Inaugurating(Taking::Running(_)) => leaving(Step::released(true, None)),
            State::Executing(_) | State::Doubtful(_) => self.stop(End::Closed, now),
            State::Leaving(_) | State::Over => state,
        }
    }

    fn stand(&mut self, standing: Standing, input: Input, now: Instant) -> State {
        let next = match (standing, input) {
            (Standing::Looking, Input::Looked(sight)) => return self.looked(sight, now),
            (Standing::Looking | Standing::Asking | Standing::Watching(_), Input::CallFailed) => {
                Standing::Resting(now + self.settings.pause())
            }
            (Standing::Watching(_), Input::Changed) => Standing::Looking,
            (Standing::Resting(at) | Standing::Watching(at), Input::Tick) if at <= now => {
                Standing::Looking
            }
            (Standing::Asking, Input::Granted) => {
                self.is_prepared = false;
                return State::Inaugurating(Taking::Recording);
            }
            (standing, _) => standing,
        };
        State::Candidate(next)
    }

    fn prepare(&mut self, standing: Standing, until: Instant, input: Input, now: Instant) -> State {
        if matches!(input, Input::PhaseEnded(_)) || until <= now {
            self.is_prepared = true;
            return match input {
                // It may be its turn by now.
                Input::PhaseEnded(_) | Input::Tick => State::Candidate(Standing::Looking),
                // The answer to its call: the same call would not be made again.
                input => self.stand(standing, input, now),
            };
        }
        if let Input::Looked(sight) = input {
            // It waits for the end of `prepare`, also if the lease is free.
            let pause = sight.held_for.unwrap_or(self.settings.look_every());
            let at = now + pause.min(self.settings.look_every());
            let standing = Standing::Watching(at.max(now + self.settings.pause()));
            return State::Preparing { standing, until };
        }
        match self.stand(standing, input, now) {
            State::Candidate(standing) => State::Preparing { standing, until },
            state => state,
        }
    }

    fn looked(&mut self, sight: Sight, now: Instant) -> State {
        let is_free = sight.held_for.is_none();
        if sight.is_next && is_free {
            return State::Candidate(Standing::Asking);
        }
        let every = self.settings.look_every();
        let at = match sight.held_for {
            // It asks when the lease would run out, and not in a busy loop.
            Some(held_for) if sight.is_next => held_for.max(self.settings.pause()).min(every),
            _ => every,
        };
        let standing = Standing::Watching(now + at);
        if !sight.is_leaving {
            self.is_prepared = false;
        } else if sight.is_next && !self.is_prepared {
            let until = now + self.settings.prepare_limit;
            return State::Preparing { standing, until };
        }
        State::Candidate(standing)
    }

    fn take(&mut self, taking: Taking, input: Input, now: Instant) -> State {
        let run = |machine: &Self| Taking::Running(now + machine.settings.inaugurate_limit);
        let next = match (taking, input) {
            (Taking::Recording, Input::Began(succession)) => match self.settings.lost {
                Lost::Wait(grace) if succession == Succession::Lost => Taking::Waiting(now + grace),
                _ => run(self),
            },
            (Taking::Recording, Input::CallFailed) => {
                return self.fail(Step::released(false, None));
            }
            (Taking::Waiting(until), Input::Tick) if until <= now => run(self),
            (Taking::Running(_), Input::PhaseEnded(Outcome::Ok)) => {
                self.leads_since = now;
                // Until when it is held is asked for at once.
                return State::Executing(now);
            }
            (Taking::Running(_), Input::PhaseEnded(_)) => {
                return self.fail(Step::released(true, None));
            }
            (Taking::Running(until), Input::Tick) if until <= now => {
                return self.fail(Step::released(true, None));
            }
            (_, Input::Lost(_)) => return self.after_term(now),
            // Its token means nothing there: a record under it could refuse all later ones.
            (_, Input::OtherHistory) => return leaving(Step::released(false, None)),
            (taking, Input::Resign(to)) => {
                let is_orderly = matches!(taking, Taking::Running(_));
                return leaving(Step::released(is_orderly, to));
            }
            (taking, _) => taking,
        };
        State::Inaugurating(next)
    }

    fn execute(&mut self, state: State, input: Input, now: Instant) -> State {
        match input {
            Input::Held(until) if until > now + self.settings.doubtful_below() => {
                State::Executing(until)
            }
            Input::Held(_) => State::Doubtful(now + self.settings.pause()),
            Input::Resign(None) => self.stop(End::Resigned, now),
            Input::Resign(Some(to)) => self.stop(End::HandedTo(to), now),
            Input::PhaseEnded(outcome) => self.ended(outcome, now),
            Input::Lost(why) => self.lost(End::Lost(why), now),
            Input::OtherHistory => self.lost(End::OtherHistory, now),
            _ => state,
        }
    }

    fn leave(&mut self, leaving: Leaving, input: Input, now: Instant) -> State {
        let Leaving { step, is_lost, .. } = &leaving;
        match (step, input) {
            (Step::Stopping(..), Input::Lost(why)) => self.lost(End::Lost(why), now),
            (Step::Stopping(..), Input::OtherHistory) => self.lost(End::OtherHistory, now),
            (Step::Stopping(why, _), Input::PhaseEnded(_)) => self.hand_over(why.clone(), now),
            (Step::Stopping(why, until), Input::Tick) if *until <= now => {
                self.hand_over(why.clone(), now)
            }
            (Step::HandingOver(..), Input::Lost(_) | Input::OtherHistory) => {
                State::Leaving(Leaving {
                    is_lost: true,
                    ..leaving
                })
            }
            (Step::HandingOver(..), Input::PhaseEnded(_)) if *is_lost => self.after_term(now),
            (Step::HandingOver(_, until), Input::Tick) if *is_lost && *until <= now => {
                self.after_term(now)
            }
            (Step::HandingOver(why, _), Input::PhaseEnded(outcome)) => {
                let step = Step::released(outcome == Outcome::Ok, why.chosen());
                State::Leaving(Leaving { step, ..leaving })
            }
            (Step::HandingOver(_, until), Input::Tick) if *until <= now => {
                let step = Step::released(false, None);
                State::Leaving(Leaving { step, ..leaving })
            }
            (Step::Releasing { .. }, Input::Done | Input::CallFailed | Input::Lost(_)) => {
                self.after_term(now)
            }
            (Step::Withdrawing, Input::Done | Input::CallFailed) => State::Over,
            _ => State::Leaving(leaving),
        }
    }

    /// `execute` has ended without a request to stop.
    fn ended(&mut self, outcome: Outcome, now: Instant) -> State {
        let why = match outcome {
            Outcome::Ok => End::Finished,
            Outcome::Failed(error) => End::Failed(error),
            Outcome::Panicked(message) => End::Panicked(message),
        };
        match why == End::Finished {
            true => self.is_closing = true,
            // A leader that has worked for long is not one that fails again and again.
            false if now > self.leads_since + self.settings.longest_pause => self.failures = 1,
            false => self.failures += 1,
        }
        self.hand_over(why, now)
    }

    fn stop(&self, why: End, now: Instant) -> State {
        leaving(Step::Stopping(why, now + self.settings.stop_limit))
    }

    fn hand_over(&self, why: End, now: Instant) -> State {
        leaving(Step::HandingOver(why, now + self.settings.hand_over_limit))
    }

    fn lost(&self, why: End, now: Instant) -> State {
        let step = Step::HandingOver(why, now + self.settings.hand_over_limit);
        let is_lost = true;
        State::Leaving(Leaving { step, is_lost })
    }

    /// The term is given back before `inaugurate` has returned `Ok`.
    fn fail(&mut self, step: Step) -> State {
        self.failures += 1;
        leaving(step)
    }

    /// The term is over.
    fn after_term(&self, now: Instant) -> State {
        match self.is_closing {
            true => leaving(Step::Withdrawing),
            false => self.rest(now),
        }
    }

    fn rest(&self, now: Instant) -> State {
        let pause = self.settings.pause_after(self.failures);
        State::Candidate(Standing::Resting(now + pause))
    }
}

fn leaving(step: Step) -> State {
    let is_lost = false;
    State::Leaving(Leaving { step, is_lost })
}

impl Standing {
    fn call(self) -> Option<Call> {
        match self {
            Self::Resting(_) => None,
            Self::Looking => Some(Call::Look),
            Self::Watching(_) => Some(Call::Watch),
            Self::Asking => Some(Call::Acquire),
        }
    }

    fn until(self) -> Option<Instant> {
        match self {
            Self::Resting(until) | Self::Watching(until) => Some(until),
            Self::Looking | Self::Asking => None,
        }
    }
}

impl Step {
    fn released(is_orderly: bool, chosen: Option<CandidateId>) -> Self {
        Self::Releasing { is_orderly, chosen }
    }
}

impl Leaving {
    fn wants(&self) -> Wants {
        match &self.step {
            Step::Stopping(why, until) => Wants {
                stop: true,
                ..Wants::call(Some(Call::Mark(why.chosen())), Some(*until)).with(Phase::Execute)
            },
            Step::HandingOver(why, until) => {
                let mark = (!self.is_lost).then(|| Call::Mark(why.chosen()));
                Wants::call(mark, Some(*until)).with(Phase::HandOver(why.clone()))
            }
            Step::Releasing { is_orderly, chosen } => {
                let (is_orderly, chosen) = (*is_orderly, chosen.clone());
                Wants::call(Some(Call::Release { is_orderly, chosen }), None)
            }
            Step::Withdrawing => Wants::call(Some(Call::Withdraw), None),
        }
    }
}

impl End {
    fn chosen(&self) -> Option<CandidateId> {
        match self {
            Self::HandedTo(to) => Some(to.clone()),
            _ => None,
        }
    }
}

impl Wants {
    fn call(call: Option<Call>, at: Option<Instant>) -> Self {
        Self {
            phase: None,
            call,
            stop: false,
            at,
        }
    }

    fn with(self, phase: Phase) -> Self {
        Self {
            phase: Some(phase),
            ..self
        }
    }
}
