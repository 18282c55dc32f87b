//! The source of a dispatcher that is made of a system.

use std::fmt;
use std::sync::Arc;

use keylane_source::{
    Deliveries, Delivery, Describer, Features, Generation, Outcome, RawMessage, Received,
    Settlement, Source, SourceError, SourceLetter, StartGuard,
};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::changes::Changes;
use crate::position::WorkerPosition;
use crate::session::{Session, SessionOf};
use crate::starts::{Starts, StartsOf};
use crate::system::{End, Entry, Handed, Memory, System};
use crate::task::{Task, lasts, lease_ends_at};

/// The messages of a [`System`], as a source for a dispatcher: one worker.
///
/// - A message is handed over while there is room, and its outcome is reported with the next
///   exchange. One exchange is in progress at a time: more messages make larger exchanges, not more
///   of them.
/// - While no message is there, the source waits on a connection of its own. If that fails, it asks
///   five times a second, and `failed_parts` reports the part `… (waiting)`.
/// - If the connection breaks, the source is opened again, and goes on as the same worker: no other
///   worker comes between its attempts and the messages that come again. It is a new worker once
///   the system does not know it any more. Attempts in flight end then. Without messages in hand it
///   opens itself again, and that is no failure.
/// - An attempt starts only while the lease lasts, by this clock and a tenth shorter.
pub struct WorkerSource<S: System> {
    system: Arc<S>,
    pub(crate) starts: Arc<StartsOf<S>>,
    /// The worker that this source was and is, until the system does not know it any more.
    worker: Option<Arc<S::Worker>>,
    open: Option<Open<S>>,
    generation: Generation,
    /// Settlements that the system may not know, from before the source was opened again.
    settled: Changes<S::Id>,
    /// Returned messages, to be asked for again when there is room.
    again: Vec<S::Id>,
    /// Messages of this generation that were handed over and have not settled.
    held: usize,
    /// The source has begun to open itself again. The call that did so may have been dropped.
    opens_again: bool,
}

struct Open<S: System> {
    link: S::Link,
    worker: Arc<S::Worker>,
    session: Arc<SessionOf<S>>,
    task: AbortOnDropHandle<()>,
}

impl<S: System> WorkerSource<S> {
    /// Creates a source. It sends nothing yet.
    pub fn new(system: impl Into<Arc<S>>) -> Self {
        let system = system.into();
        Self {
            starts: Arc::new(Starts::new(lasts(system.lease()))),
            system,
            worker: None,
            open: None,
            generation: Generation(0),
            settled: Changes::default(),
            again: Vec::new(),
            held: 0,
            opens_again: false,
        }
    }

    fn opened(&mut self) -> Result<&mut Open<S>, SourceError> {
        let open = self.open.as_mut();
        open.ok_or_else(|| SourceError::failed("the source is not open"))
    }

    fn session(&mut self) -> Result<Arc<SessionOf<S>>, SourceError> {
        Ok(Arc::clone(&self.opened()?.session))
    }

    /// Ends the session: no exchange is in progress when this returns. May be dropped and called
    /// again.
    async fn stop(&mut self) {
        if let Some(open) = &mut self.open {
            open.task.abort();
            // It may have ended in a call before.
            if !open.task.is_finished() {
                let _ = (&mut open.task).await;
            }
        }
    }

    /// Lets go of the connection, and keeps the settlements that the system may not know.
    fn let_go(&mut self) {
        if let Some(open) = self.open.take() {
            // The notes and the returned messages come with the rest.
            self.settled = open.session.lock().outbox.take_settlements();
        }
    }

    /// Lets a worker leave over a new connection: it has none, or leaving over it has failed. Tries
    /// once, for no longer than a lease: then others have its messages anyway.
    async fn leave_anew(&mut self) -> Result<(), End<S::Error>> {
        let Some(worker) = self.worker.clone() else {
            return Ok(());
        };
        let leave = async {
            let mut link = self.system.connect().await.map_err(End::Failed)?;
            let entry = Entry {
                is_new: false,
                settled: &self.settled,
            };
            match self.system.enter(&mut link, &worker, entry).await {
                // It has nothing any more.
                Err(End::Lost | End::Forgotten) => return Ok(()),
                entered => entered?,
            };
            let left = self.system.leave(&mut link, &worker).await;
            left.map_err(End::Failed)
        };
        let left = timeout(self.system.lease(), leave).await;
        left.unwrap_or(Err(End::Lost))
    }

    /// Marks all messages as lost: other workers may have them, or had them in the state that the
    /// system has forgotten.
    fn lose(&mut self, has_forgotten: bool) {
        self.starts.lose(self.generation);
        if has_forgotten {
            tracing::warn!(
                target: "keylane",
                source = %self.system.name(),
                "the server has an earlier state and has lost confirmed changes: its messages are \
                 read again"
            );
        }
    }

    /// Begins, or goes on as the worker that this source was.
    async fn enter(&mut self, link: &mut S::Link) -> Result<Arc<S::Worker>, SourceError> {
        loop {
            let is_new = self.worker.is_none();
            // Before the request: a worker whose request was dropped is known, or is lost.
            let worker = self
                .worker
                .get_or_insert_with(|| Arc::new(self.system.worker()));
            let worker = Arc::clone(worker);
            let settled = &self.settled;
            let entry = Entry { is_new, settled };
            match self.system.enter(link, &worker, entry).await {
                Ok(memory) => {
                    self.starts.confirm(&self.settled);
                    self.settled = Changes::default();
                    if memory == Memory::Earlier {
                        self.lose(true);
                    }
                    return Ok(worker);
                }
                Err(end @ (End::Lost | End::Forgotten)) if !is_new => {
                    self.lose(matches!(end, End::Forgotten));
                    self.settled = Changes::default();
                    self.worker = None;
                }
                Err(end) => return Err(SourceError::failed(end)),
            }
        }
    }

    /// Opens the source again without a failure. May be dropped and called again.
    async fn open_again(&mut self) -> Result<(), SourceError> {
        self.opens_again = true;
        self.open().await?;
        // A wait that failed before is only known to the driver. If it still fails, it is reported
        // again.
        self.session()?.lock().waits.get_or_insert(Ok(()));
        Ok(())
    }

    fn deliver(&self, handed: Handed<S::Id>) -> Delivery<RawMessage, WorkerPosition<S::Id>> {
        let attempts = self.starts.count(&handed.id, handed.attempts);
        let position = WorkerPosition {
            id: handed.id,
            // If the system knows too many, it is told how many there are with the next note, or
            // when the message is returned.
            noted: match attempts < handed.attempts {
                true => attempts,
                false => handed.noted,
            },
            generation: self.generation,
        };
        delivery(position, handed.message, attempts)
    }
}

fn delivery<I>(
    position: WorkerPosition<I>,
    message: RawMessage,
    attempts: u32,
) -> Delivery<RawMessage, WorkerPosition<I>> {
    let generation = position.generation;
    Delivery::raw(message, position)
        .generation(generation)
        .attempts(attempts)
}

impl<S: System> Source for WorkerSource<S> {
    type Message = RawMessage;
    type Position = WorkerPosition<S::Id>;

    fn name(&self) -> String {
        self.system.name()
    }

    fn describer(&self) -> Describer<Self::Position> {
        let system = Arc::clone(&self.system);
        Describer::new(move |position: &Self::Position| system.describe(&position.id))
    }

    fn features(&self) -> Features {
        self.system.features().nack()
    }

    fn validate(&self) -> Result<(), SourceError> {
        self.system.validate().map_err(SourceError::failed)
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.stop().await;
        self.let_go();
        self.again.clear();
        self.held = 0;
        let mut link = self.system.connect().await.map_err(SourceError::failed)?;
        let sent = Instant::now();
        let worker = self.enter(&mut link).await?;
        self.generation.0 += 1;
        let session = Arc::new(Session::new(lease_ends_at(sent, self.system.lease())));
        self.starts.open(Arc::clone(&session));
        let task = Task {
            system: Arc::clone(&self.system),
            worker: Arc::clone(&worker),
            link: link.clone(),
            session: Arc::clone(&session),
            starts: Arc::clone(&self.starts),
            entered: sent,
        };
        self.open = Some(Open {
            link,
            worker,
            session,
            task: AbortOnDropHandle::new(tokio::spawn(task.run())),
        });
        self.opens_again = false;
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, Self::Position>,
    ) -> Result<Received<Self::Position>, SourceError> {
        if self.opens_again {
            self.open_again().await?;
        }
        let mut session = self.session()?;
        // The count of answers when the source asked whether the system is well.
        let mut probed_at = None;
        loop {
            if self.held == 0 && session.lock().may_begin_again() {
                tracing::info!(
                    target: "keylane",
                    source = %self.system.name(),
                    "the connection was lost while no message was held, connects again"
                );
                self.open_again().await?;
                session = self.session()?;
                probed_at = None;
            }
            let until = {
                let mut state = session.lock();
                state.over()?;
                let part = || format!("{} (waiting)", self.system.name());
                match state.waits.take() {
                    Some(Err(why)) => into.part_failed(part(), why),
                    Some(Ok(())) => into.part_recovered(part()),
                    None => {}
                }
                while into.room() > 0
                    && let Some(handed) = state.messages.pop_front()
                {
                    into.push(self.deliver(handed));
                    self.held += 1;
                }
                let room = into.room();
                let is_more = state.want(room);
                let comes_again = room > 0 && !self.again.is_empty();
                if comes_again {
                    self.again.sort_unstable();
                    let now = self.again.drain(..room.min(self.again.len()));
                    let again = &mut state.outbox.waiting().again;
                    again.extend(now);
                    // Those before them may not have been asked for yet.
                    again.sort_unstable();
                }
                if is_more || comes_again {
                    session.to_task.notify_one();
                }
                if !into.is_empty() {
                    return Ok(Received::Messages);
                }
                if probed_at.is_some_and(|probed_at| state.answers > probed_at) {
                    return Ok(Received::Idle);
                }
                state.until
            };
            let idle = into.until();
            tokio::select! {
                () = session.to_source.notified() => {}
                () = sleep_until(until) => {}
                () = sleep_until(idle), if probed_at.is_none() => {
                    let mut state = session.lock();
                    probed_at = Some(state.answers);
                    state.is_probed = true;
                    session.to_task.notify_one();
                }
            }
        }
    }

    async fn settle(&mut self, settled: &[Settlement<Self::Position>]) -> Result<(), SourceError> {
        let session = self.session()?;
        let (again, held, now) = (&mut self.again, &mut self.held, self.generation);
        session.report(|changes| {
            for Settlement {
                position, outcome, ..
            } in settled
            {
                // A message of an earlier generation comes again, and an earlier outcome of it does
                // not count.
                if position.generation != now {
                    continue;
                }
                *held = held.saturating_sub(1);
                let id = position.id.clone();
                match *outcome {
                    Outcome::Done => changes.done.push(id),
                    Outcome::Returned { attempts } => {
                        // Also that there was no attempt, if one was noted and then dropped.
                        if attempts > 0 || position.noted == 0 {
                            changes.notes.push((id.clone(), attempts));
                        }
                        again.push(id);
                    }
                    Outcome::DeadLettered | Outcome::Discarded => changes.gone.push(id),
                }
            }
        });
        Ok(())
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        if self.opens_again {
            // Everything was confirmed before.
            return Ok(());
        }
        let session = self.session()?;
        loop {
            let until = {
                let state = session.lock();
                if state.outbox.is_confirmed() {
                    return Ok(());
                }
                state.over()?;
                state.until
            };
            tokio::select! {
                () = session.to_source.notified() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    async fn reread(
        &mut self,
        positions: &[Self::Position],
        into: &mut Deliveries<RawMessage, Self::Position>,
    ) -> Result<(), SourceError> {
        if !self.system.features().has_random_access() {
            return Err(SourceError::unsupported("read a position again"));
        }
        let (system, starts) = (Arc::clone(&self.system), Arc::clone(&self.starts));
        let open = self.opened()?;
        let mut positions = positions;
        while !positions.is_empty() {
            let ids: Vec<S::Id> = positions
                .iter()
                .map(|position| position.id.clone())
                .collect();
            let found = system.reread(&mut open.link, &open.worker, &ids).await;
            let found = found.map_err(SourceError::failed)?;
            let (read, rest) = positions.split_at(found.len().clamp(1, positions.len()));
            for (position, found) in read.iter().zip(found) {
                if let Some((message, attempts)) = found
                    && !open.session.lock().outbox.settles(&position.id)
                {
                    let attempts = starts.count(&position.id, attempts);
                    into.push(delivery(position.clone(), message, attempts));
                }
            }
            positions = rest;
        }
        Ok(())
    }

    async fn dead_letter(
        &mut self,
        letter: SourceLetter<Self::Position>,
    ) -> Result<(), SourceError> {
        if !self.system.features().keeps_dead_letters() {
            return Err(SourceError::unsupported("keep dead letters"));
        }
        let system = Arc::clone(&self.system);
        let open = self.opened()?;
        let id = letter.position.id.clone();
        let why = letter.into();
        let kept = system.keep_letter(&mut open.link, &open.worker, &id, &why);
        match kept.await.map_err(SourceError::failed)? {
            true => Ok(()),
            false => {
                // The source is opened again, and gets the messages that the system has for it.
                open.session.end(End::Missed);
                Err(SourceError::failed("the worker no longer has this message"))
            }
        }
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<Self::Position>>> {
        Some(Arc::clone(&self.starts) as Arc<dyn StartGuard<Self::Position>>)
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        self.stop().await;
        self.starts.lose(self.generation);
        if let Some(open) = &mut self.open {
            let left = self.system.leave(&mut open.link, &open.worker).await;
            if left.is_ok() {
                self.worker = None;
            }
            self.let_go();
        }
        let left = self.leave_anew().await;
        (self.worker, self.settled) = (None, Changes::default());
        left.map_err(SourceError::failed)
    }
}

impl<S: System> fmt::Debug for WorkerSource<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerSource")
            .field("name", &self.system.name())
            .finish_non_exhaustive()
    }
}

/// Makes a source of a [`System`](crate::System) that stays private: a type around its
/// [`WorkerSource`](crate::WorkerSource). Behind `of` is the [`Id`](crate::System::Id) of the
/// system.
///
/// ```text
/// worker_source! {
///     /// The elements of a list, as a source for a dispatcher.
///     pub struct ListSource(List) of HandOut;
/// }
/// ```
#[macro_export]
macro_rules! worker_source {
    ($(#[$doc:meta])* $public:vis struct $source:ident($system:ty) of $id:ty;) => {
        $(#[$doc])*
        #[derive(Debug)]
        $public struct $source($crate::WorkerSource<$system>);

        const _: () = {
            use $crate::__private::{
                Arc, Deliveries, Describer, Features, RawMessage, Received, Settlement, Source, SourceError,
                SourceLetter, StartGuard,
            };
            use $crate::WorkerPosition;

            impl Source for $source {
                type Message = RawMessage;
                type Position = WorkerPosition<$id>;

                fn name(&self) -> String {
                    self.0.name()
                }

                fn describer(&self) -> Describer<WorkerPosition<$id>> {
                    self.0.describer()
                }

                fn features(&self) -> Features {
                    self.0.features()
                }

                fn validate(&self) -> Result<(), SourceError> {
                    self.0.validate()
                }

                async fn open(&mut self) -> Result<(), SourceError> {
                    self.0.open().await
                }

                async fn receive(
                    &mut self,
                    into: &mut Deliveries<RawMessage, WorkerPosition<$id>>,
                ) -> Result<Received<WorkerPosition<$id>>, SourceError> {
                    self.0.receive(into).await
                }

                async fn settle(
                    &mut self,
                    settled: &[Settlement<WorkerPosition<$id>>],
                ) -> Result<(), SourceError> {
                    self.0.settle(settled).await
                }

                async fn confirm(&mut self) -> Result<(), SourceError> {
                    self.0.confirm().await
                }

                async fn reread(
                    &mut self,
                    positions: &[WorkerPosition<$id>],
                    into: &mut Deliveries<RawMessage, WorkerPosition<$id>>,
                ) -> Result<(), SourceError> {
                    self.0.reread(positions, into).await
                }

                async fn dead_letter(
                    &mut self,
                    letter: SourceLetter<WorkerPosition<$id>>,
                ) -> Result<(), SourceError> {
                    self.0.dead_letter(letter).await
                }

                fn start_guard(&self) -> Option<Arc<dyn StartGuard<WorkerPosition<$id>>>> {
                    self.0.start_guard()
                }

                async fn close(&mut self) -> Result<(), SourceError> {
                    self.0.close().await
                }
            }
        };
    };
}
