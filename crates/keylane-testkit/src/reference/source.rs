//! The source of a reference server.

use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use keylane::source::{
    Deliveries, Features, Generation, RawMessage, Received, Settlement, Source, SourceError,
    SourceLetter, StartGuard,
};
use tokio::time::Instant;

use super::call::{Call, Loss};
use super::guard::AttemptCounter;
use super::place::Place;
use super::plan::take;
use super::server::ReferenceServer;
use super::state::State;

/// A source of a [`ReferenceServer`]. Each `open` is a session of its own.
#[derive(Debug)]
pub struct ReferenceSource {
    server: ReferenceServer,
    session: Option<u64>,
}

/// The result of one look at the server.
enum Look {
    Received(Received<Place>),
    /// Look again at this time, or when something changes.
    Wait(Option<Instant>),
    /// No answer comes.
    Stalled,
}

impl ReferenceServer {
    /// Returns a new source of this server.
    pub fn source(&self) -> ReferenceSource {
        ReferenceSource {
            server: self.clone(),
            session: None,
        }
    }
}

impl ReferenceSource {
    /// Runs the checks at the start of each call.
    async fn begin(&self, call: Call) -> Result<u64, SourceError> {
        let delay = self.server.lock().plan.delay;
        if delay > Duration::ZERO {
            tokio::time::sleep(delay).await;
        }
        let session = {
            let mut state = self.server.lock();
            if state.plan.panics.get_mut(&call).is_some_and(take) {
                drop(state);
                resume_unwind(Box::new(format!("scripted panic in {call:?}")));
            }
            if state.plan.errors.get_mut(&call).is_some_and(take) {
                return Err(SourceError::failed(format!("scripted error of {call:?}")));
            }
            self.session(&state)?
        };
        match session {
            Some(session) => Ok(session),
            None => std::future::pending().await,
        }
    }

    /// Returns the session, if it is open. `None`: it gets no answer.
    fn session(&self, state: &State) -> Result<Option<u64>, SourceError> {
        let open = self.session.and_then(|session| {
            let found = state.sessions.get(&session)?;
            Some((!found.is_stalled).then_some(session))
        });
        open.ok_or_else(|| SourceError::failed("the connection is lost"))
    }

    fn look(
        &self,
        into: &mut Deliveries<RawMessage, Place>,
        now: Instant,
    ) -> Result<Look, SourceError> {
        let mut state = self.server.lock();
        let Some(session) = self.session(&state)? else {
            return Ok(Look::Stalled);
        };
        let of_session = state.sessions.get_mut(&session);
        if let Some(news) = of_session.and_then(|session| session.news.pop_front()) {
            return Ok(Look::Received(news));
        }
        if !state.plan.parts.is_empty() {
            for (part, why) in state.plan.parts.drain(..) {
                match why {
                    Some(why) => into.part_failed(part, why),
                    None => into.part_recovered(part),
                }
            }
            return Ok(Look::Received(Received::Messages));
        }
        let handed = state.hand_over(session, (into.room(), into.room_bytes()), now);
        if !handed.is_empty() {
            handed.into_iter().for_each(|delivery| into.push(delivery));
            return Ok(Look::Received(Received::Messages));
        }
        if state.features.is_finite() && state.is_exhausted() {
            return Ok(Look::Received(Received::End));
        }
        Ok(Look::Wait(state.next_due().filter(|due| *due > now)))
    }

    fn end(&mut self) {
        if let Some(session) = self.session.take() {
            self.server.change(|state| state.end_session(session));
        }
    }
}

impl Source for ReferenceSource {
    type Message = RawMessage;
    type Position = Place;

    fn name(&self) -> String {
        "reference".to_owned()
    }

    fn features(&self) -> Features {
        self.server.features()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.end();
        let delay = self.server.lock().plan.delay;
        if delay > Duration::ZERO {
            tokio::time::sleep(delay).await;
        }
        let mut state = self.server.lock();
        if state.is_down {
            return Err(SourceError::failed("the server is down"));
        }
        if state.plan.panics.get_mut(&Call::Open).is_some_and(take) {
            drop(state);
            resume_unwind(Box::new("scripted panic in Open".to_owned()));
        }
        if state.plan.errors.get_mut(&Call::Open).is_some_and(take) {
            return Err(SourceError::failed("scripted error of Open"));
        }
        self.session = Some(state.open());
        drop(state);
        self.server.shared.changed.notify_waiters();
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, Place>,
    ) -> Result<Received<Place>, SourceError> {
        self.begin(Call::Receive).await?;
        loop {
            let server = self.server.clone();
            let mut changed = pin!(server.shared.changed.notified());
            changed.as_mut().enable();
            let due = match self.look(into, Instant::now())? {
                Look::Received(received) => {
                    self.server.shared.changed.notify_waiters();
                    return Ok(received);
                }
                Look::Stalled => std::future::pending().await,
                Look::Wait(due) => due.filter(|_| into.room() > 0),
            };
            let until = due.map_or(into.until(), |due| due.min(into.until()));
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(until) => {
                    if Instant::now() >= into.until() {
                        return Ok(Received::Idle);
                    }
                }
            }
        }
    }

    async fn settle(&mut self, settled: &[Settlement<Place>]) -> Result<(), SourceError> {
        let session = self.begin(Call::Settle).await?;
        self.server.change(|state| {
            if take(&mut state.plan.cuts) {
                state.end_session(session);
                return Err(SourceError::failed("the connection was cut before the ack"));
            }
            let loss = state.plan.lost_settles.1;
            if take(&mut state.plan.lost_settles.0) {
                if let Some(session) = state.sessions.get_mut(&session) {
                    session.has_lost = true;
                }
                return match loss {
                    Loss::Silent => Ok(()),
                    Loss::Told => Err(SourceError::failed("the acks were lost")),
                };
            }
            for settlement in settled {
                state.settle(session, settlement.position, settlement.outcome);
            }
            Ok(())
        })
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        let session = self.begin(Call::Confirm).await?;
        self.server.change(|state| {
            state.counts.confirms += 1;
            let loss = state.plan.lost_confirms.1;
            if take(&mut state.plan.lost_confirms.0) {
                return match loss {
                    Loss::Silent => Ok(()),
                    Loss::Told => Err(SourceError::failed("the acks were not confirmed")),
                };
            }
            let has_lost = state.sessions.get(&session).is_some_and(|s| s.has_lost);
            if has_lost {
                return Err(SourceError::failed("an ack has not arrived"));
            }
            state.confirm(session);
            Ok(())
        })
    }

    async fn release(&mut self, generations: &[Generation]) -> Result<(), SourceError> {
        let session = self.begin(Call::Release).await?;
        self.server
            .change(|state| state.release(session, generations));
        Ok(())
    }

    async fn extend(&mut self, held: &[Place]) -> Result<(), SourceError> {
        if self.features().lease_of().is_none() {
            return Err(SourceError::unsupported("extend a lease"));
        }
        self.begin(Call::Extend).await?;
        self.server
            .change(|state| state.extend(held, Instant::now()));
        Ok(())
    }

    async fn reread(
        &mut self,
        positions: &[Place],
        into: &mut Deliveries<RawMessage, Place>,
    ) -> Result<(), SourceError> {
        if !self.features().has_random_access() {
            return Err(SourceError::unsupported("read a position again"));
        }
        self.begin(Call::Reread).await?;
        let mut state = self.server.lock();
        for position in positions {
            if let Some(delivery) = state.reread(*position) {
                into.push(delivery);
            }
        }
        Ok(())
    }

    async fn dead_letter(&mut self, letter: SourceLetter<Place>) -> Result<(), SourceError> {
        if !self.features().keeps_dead_letters() {
            return Err(SourceError::unsupported("keep dead letters"));
        }
        self.begin(Call::DeadLetter).await?;
        self.server.change(|state| {
            if take(&mut state.plan.refused_letters) {
                return Err(SourceError::failed("scripted refusal of a letter"));
            }
            state.dead_letter(letter.position, letter.attempts, letter.why);
            Ok(())
        })
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<Place>>> {
        let server = self.server.clone();
        let counts = self.features().does_count_attempts();
        counts.then(|| Arc::new(AttemptCounter::new(server)) as Arc<dyn StartGuard<Place>>)
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        self.begin(Call::Close).await?;
        self.end();
        Ok(())
    }
}

impl Drop for ReferenceSource {
    fn drop(&mut self) {
        self.end();
    }
}
