//! Reads an inbox for a dispatcher.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use keylane_inbox::LetterKind;
use keylane_metrics::Figures;
use keylane_rt::shown_key;
use keylane_source::{
    Deliveries, Delivery, Describer, Features, Generation, Outcome, RawMessage, Received,
    Settlement, Source, SourceError, SourceLetter, StartGuard,
};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::super::SqlInbox;
use super::super::backend::Dead;
use super::super::backlog::{self, Backlog};
use super::super::claim::Claim;
use super::super::turn::WorkerState;
use super::backlog::Look;
use super::call::{Call, CallResult, PAUSES};
use super::config::SourceSettings;
use super::core::{Lanes, Limits, Ready};
use super::failures::{Failures, Part, fail};
use super::guard::Starts;
use super::position::SqlPosition;
use super::session::{self, Session};
use super::settle::Letters;
use crate::error::{ErrorKind, SqlError};

/// With so many reports, a second turn begins beside the first. Fewer reports wait for the answer
/// and for more of them: many small turns would cost the database more.
const BULK: usize = 1_024;

/// How long a lane rests that could not be left because a producer has its key.
const REST: Duration = Duration::from_millis(100);

/// The first wait before the source looks again, where the database sends no notifications.
const FIRST_POLL: Duration = Duration::from_millis(5);

/// The openings of all sources of this process.
static OPENINGS: AtomicU64 = AtomicU64::new(0);

/// An inbox in tables as the source of a dispatcher: see [`SqlInbox::source`].
pub struct SqlSource {
    inbox: SqlInbox,
    settings: SourceSettings,
    session: Option<Session>,
    /// The session that is about to begin. It goes on even if `receive` is dropped meanwhile.
    joining: Option<AbortOnDropHandle<Result<Session, SqlError>>>,
    /// The previous worker of the source, if it has not left yet.
    leaving: Option<Leaving>,
    /// No worker has joined since the source was opened, so there is nothing to confirm.
    is_unjoined: bool,
    opening: u64,
    lanes: Lanes,
    ready: VecDeque<Ready>,
    /// How many more messages fit, those in `ready` included.
    room: usize,
    recalled: Vec<SqlPosition>,
    /// Messages that are letters of this inbox already, and have not settled.
    kept: HashSet<u64>,
    /// Turns, and reads of the claims, in progress.
    calls: FuturesUnordered<Call>,
    letters: Letters,
    /// The claims must be read: an answer was lost, or some time has passed.
    is_uncertain: bool,
    /// When to read the claims in any case: a turn that timed out may be done much later.
    look_at: Instant,
    /// How many round trips in a row have failed.
    failed: u32,
    retry_at: Option<Instant>,
    /// The error of the last round trip, if waiting does not clear it.
    lasting: Option<SqlError>,
    failures: Arc<Failures>,
    figures: Arc<Figures<Backlog>>,
    wake: Arc<Notify>,
    starts: Arc<Starts>,
    poll: Duration,
    poll_at: Instant,
}

/// A worker whose claims have changed. It leaves before the source joins anew.
struct Leaving {
    worker: u64,
    /// The time at which its claims have run out.
    until: Instant,
    left: AbortOnDropHandle<Result<(), SqlError>>,
}

impl SqlInbox {
    /// Returns the inbox as the source of a dispatcher. Any number of processes may consume it:
    /// each claims keys, and no two have the same key.
    ///
    /// Messages of a key are handed over in the order in which they were committed. A worker that
    /// dies, or is paused for longer than its claims last, loses its keys to the others. Its later
    /// writes change nothing, because its claims have old tokens. With `OnExhausted::AtSource` the
    /// inbox keeps the dead letters.
    ///
    /// A part that fails while the others go on is in `IntakeStats::failed_parts` until it
    /// recovers, and is tried again. The parts are `messages` (they cannot be claimed, read or
    /// removed: a right or a table is missing), `claims` (they cannot be renewed), `letters`,
    /// `keys of dead workers`, `keys without a worker` and `old ids`. If the source cannot report
    /// what is done, or cannot join, it fails as a whole, and is opened again until it can. On a
    /// server that takes no writes, such as a standby, it only waits: `messages` fails until the
    /// standby is promoted.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn consume(
    /// #     inbox: keylane_sql::SqlInbox,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use keylane::source::{RawMessage, Source};
    /// use keylane::{Dispatcher, OnExhausted};
    ///
    /// #[derive(Clone)]
    /// struct Order { user: String, text: String }
    ///
    /// let orders = Dispatcher::builder(|order: &Order| order.user.clone())
    ///     .on_exhausted(OnExhausted::AtSource)
    ///     .spawn(|order: Order| async move {
    ///         println!("{}: {}", order.user, order.text);
    ///         Ok::<(), std::io::Error>(())
    ///     })?;
    /// let intake = orders.consume(inbox.source().decode(|raw: &RawMessage| {
    ///     let user = String::from_utf8(raw.key.clone().unwrap_or_default().to_vec())?;
    ///     let text = String::from_utf8(raw.payload.to_vec())?;
    ///     Ok(Order { user, text })
    /// }))?;
    /// # drop(intake);
    /// # Ok(())
    /// # }
    /// ```
    pub fn source(&self) -> SqlSource {
        self.source_with(SourceSettings::new())
    }

    /// Returns the same source with other settings.
    pub fn source_with(&self, settings: SourceSettings) -> SqlSource {
        let wake = Arc::new(Notify::new());
        let failures = Arc::default();
        let limits = limits(&settings);
        SqlSource {
            inbox: self.clone(),
            session: None,
            joining: None,
            leaving: None,
            is_unjoined: true,
            opening: 0,
            lanes: Lanes::new(limits),
            ready: VecDeque::new(),
            room: 0,
            recalled: Vec::new(),
            kept: HashSet::new(),
            calls: FuturesUnordered::new(),
            letters: Letters::new(&failures),
            is_uncertain: false,
            look_at: Instant::now() + settings.ttl,
            failed: 0,
            retry_at: None,
            lasting: None,
            failures,
            figures: Arc::new(backlog::figures(&name(self))),
            starts: Arc::new(Starts::new(Arc::clone(&wake))),
            wake,
            poll: FIRST_POLL,
            poll_at: Instant::now(),
            settings,
        }
    }
}

/// Returns the name of a source of this inbox.
fn name(inbox: &SqlInbox) -> String {
    format!("inbox {}", inbox.name)
}

/// Returns where a message is, for the log.
fn place(position: &SqlPosition) -> String {
    format!("sequence {}", position.sequence)
}

fn limits(settings: &SourceSettings) -> Limits {
    Limits {
        keys: settings.keys,
        window: settings.window,
        bytes: settings.bytes,
        exact_starts: settings.exact_starts,
    }
}

impl Source for SqlSource {
    type Message = RawMessage;
    type Position = SqlPosition;

    fn name(&self) -> String {
        name(&self.inbox)
    }

    fn describer(&self) -> Describer<SqlPosition> {
        Describer::new(place)
    }

    fn features(&self) -> Features {
        Features::new()
            .nack()
            .survives_restart()
            .dead_letters()
            .counts_attempts()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.begin_opening();
        self.ready.clear();
        self.recalled.clear();
        (self.retry_at, self.failed) = (None, 0);
        self.failures.reopen(|part| *part == Part::Messages);
        if self.session.as_ref().is_none_or(Session::is_lost) {
            self.end_session();
        }
        // A letter that is not written leaves its message in the table: it is handled again.
        self.letters.end_tries();
        while let Some(said) = self.letters.next().await {
            let _ = self.follow(said.ok());
        }
        while let Some(said) = self.calls.next().await {
            let _ = self.follow(said.ok());
            self.ready.clear();
            self.recalled.clear();
        }
        if self.session.as_ref().is_some_and(Session::is_lost) {
            self.end_session();
        }
        let backend = &self.inbox.shared.backend;
        match &self.session {
            Some(session) => {
                // Messages that are done must not be read again.
                let mut turn = self.lanes.turn(session.worker, 0);
                turn.leave.clear();
                if !turn.is_empty() {
                    let told = self.inbox.limited(backend.turn(&turn)).await;
                    if let Err(error) = told {
                        self.lanes.take_back(turn);
                        return Err(SourceError::failed(error));
                    }
                }
                let found = self.inbox.limited(backend.lanes_of(session.worker)).await;
                let found = found.map_err(SourceError::failed)?;
                self.lanes = Lanes::new(limits(&self.settings));
                self.lanes.adopt(&found);
                self.kept.clear();
            }
            None => {
                self.is_unjoined = true;
                self.join().await?;
            }
        }
        self.is_uncertain = false;
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, SqlPosition>,
    ) -> Result<Received<SqlPosition>, SourceError> {
        let until = into.until();
        loop {
            let Some(session) = &self.session else {
                if self.failures.report(into) {
                    return Ok(Received::Messages);
                }
                if let Some(retry_at) = self.retry_at {
                    tokio::time::sleep_until(retry_at.min(until)).await;
                    if retry_at >= until {
                        return Ok(Received::Idle);
                    }
                    self.retry_at = None;
                }
                self.begin_opening();
                self.join().await?;
                continue;
            };
            if session.is_lost() {
                return self.begin_anew();
            }
            if !self.recalled.is_empty() {
                return Ok(Received::Recalled(std::mem::take(&mut self.recalled)));
            }
            if self.failures.report(into) {
                return Ok(Received::Messages);
            }
            while into.room() > 0
                && let Some(ready) = self.ready.pop_front()
            {
                let delivery = self.delivery(ready);
                into.push(delivery);
            }
            self.room = into.room();
            if !into.is_empty() {
                return Ok(Received::Messages);
            }
            let mut lost = session.watch();
            self.note_wanted();
            self.begin_call();
            let rests = self.lanes.has_resting();
            let (retry_at, poll_at) = (self.retry_at, self.poll_at);
            tokio::select! {
                biased;
                _ = lost.wait_for(|is_lost| *is_lost) => {}
                // By reference: a dropped `receive` does not stop the calls.
                said = said(&mut self.calls, &mut self.letters) => self.follow(said)?,
                () = self.wake.notified() => self.lanes.look(),
                () = self.failures.news() => {}
                () = tokio::time::sleep_until(retry_at.unwrap_or(until)), if retry_at.is_some() => {
                    self.retry_at = None;
                }
                () = tokio::time::sleep(REST), if rests => self.lanes.wake_resting(),
                () = tokio::time::sleep_until(poll_at) => {
                    self.poll_later();
                    self.lanes.look();
                    self.lanes.check();
                }
                () = tokio::time::sleep_until(until) => return Ok(Received::Idle),
            }
        }
    }

    async fn settle(&mut self, settled: &[Settlement<SqlPosition>]) -> Result<(), SourceError> {
        for Settlement {
            position, outcome, ..
        } in settled
        {
            let dropped_by = self.starts.take_dropped(position.in_hand());
            if position.opening != self.opening {
                continue;
            }
            match outcome {
                Outcome::Returned { attempts, .. } => {
                    self.lanes
                        .give_back(position.lane, position.name(), *attempts);
                }
                _ if let Some(attempt) = dropped_by => self.keep_uncommitted(position, attempt),
                _ => {
                    // Its letter is in its place, or waits again already.
                    self.letters.settled(position.name());
                    let is_told = self.kept.remove(&position.sequence);
                    self.lanes.settle(position.lane, position.name(), is_told);
                }
            }
        }
        // Done-marks do not wait for the next call of `receive`. They make room, unless the room is
        // to be 0.
        if self.room > 0 {
            self.room += settled.len();
        }
        self.begin_call();
        Ok(())
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.lasting = None;
        if self.is_unjoined {
            return Ok(());
        }
        loop {
            let Some(session) = self.session.as_ref().filter(|session| !session.is_lost()) else {
                return Err(SourceError::failed("the claims of this worker have ended"));
            };
            let mut lost = session.watch();
            // The driver gets no report of a part while this waits.
            if let Some(error) = self.lasting.take() {
                return Err(SourceError::failed(error));
            }
            if self.calls.is_empty() {
                if self.lanes.is_told() {
                    return Ok(());
                }
                if let Some(retry_at) = self.retry_at {
                    let _ =
                        tokio::time::timeout_at(retry_at, lost.wait_for(|is_lost| *is_lost)).await;
                    self.retry_at = None;
                    continue;
                }
                self.begin_call();
            }
            // While this waits, only this call can see that the claims have ended.
            tokio::select! {
                biased;
                _ = lost.wait_for(|is_lost| *is_lost) => {}
                said = said(&mut self.calls, &mut self.letters) => self.follow(said)?,
            }
        }
    }

    async fn dead_letter(&mut self, letter: SourceLetter<SqlPosition>) -> Result<(), SourceError> {
        let message = letter.position.name();
        let SqlPosition {
            sequence,
            lane,
            opening,
            ..
        } = letter.position;
        let claimed = self
            .lanes
            .claim_of(lane)
            .filter(|_| opening == self.opening);
        let (Some(claimed), Some(session)) = (claimed, &self.session) else {
            return Err(SourceError::failed("its key is no longer claimed"));
        };
        let dead = Dead {
            sequence,
            attempts: letter.attempts,
            kind: letter.cause.into(),
            error: letter.why,
        };
        let (inbox, worker, mut lost) = (self.inbox.clone(), session.worker, session.watch());
        let kept = tokio::spawn(async move {
            let kept = inbox
                .shared
                .backend
                .dead_letter(worker, claimed, message, &dead);
            inbox.limited(kept).await
        });
        let kept = tokio::select! {
            biased;
            _ = lost.wait_for(|is_lost| *is_lost) => {
                return Err(SourceError::failed("its key is no longer claimed"));
            }
            kept = kept => kept,
        };
        match kept {
            Ok(Ok(true)) => {
                self.kept.insert(sequence);
                Ok(())
            }
            Ok(Ok(false)) => {
                session.lose();
                Err(SourceError::failed("its key is no longer claimed"))
            }
            Ok(Err(error)) => Err(SourceError::failed(error)),
            Err(error) => Err(SourceError::failed(error)),
        }
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<SqlPosition>>> {
        Some(Arc::clone(&self.starts) as Arc<dyn StartGuard<SqlPosition>>)
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        // Claims nothing more.
        self.room = 0;
        self.joining = None;
        self.letters.end_tries();
        let mut confirmed = self.confirm().await;
        while let Some(said) = self.letters.next().await {
            self.follow(said.ok())?;
        }
        // Reports how often the messages without a written outcome were handled.
        if confirmed.is_ok() && !self.lanes.is_told() {
            confirmed = self.confirm().await;
        }
        self.leave().await?;
        if let Some(session) = self.session.take() {
            let left = self.inbox.shared.backend.leave(session.worker);
            let left = self.inbox.limited(left).await;
            left.map_err(SourceError::failed)?;
        }
        confirmed
    }
}

impl SqlSource {
    fn begin_opening(&mut self) {
        self.opening = OPENINGS.fetch_add(1, Ordering::Relaxed) + 1;
        self.starts.begin(self.opening);
    }

    /// Ends a session whose claims have ended or have changed. The calls in progress belong to it.
    fn end_session(&mut self) {
        let mut calls = std::mem::take(&mut self.calls);
        calls.extend(self.letters.take_under_way());
        let ended = self.session.take();
        if let Some(ended) = ended.filter(Session::is_to_be_left) {
            let now = Instant::now();
            // Handlers under its claims are dropped at once, and have until then to end.
            let from = now + REST;
            self.leaving = Some(Leaving {
                worker: ended.worker,
                until: now + self.settings.ttl,
                left: leave(self.inbox.clone(), ended.worker, from, calls),
            });
        }
    }

    /// Lets the previous worker leave, unless its claims have run out. May be dropped and called
    /// again.
    async fn leave(&mut self) -> Result<(), SourceError> {
        let Some(leaving) = &mut self.leaving else {
            return Ok(());
        };
        let left = tokio::time::timeout_at(leaving.until, &mut leaving.left);
        if let Ok(Ok(Err(error))) = left.await {
            let (inbox, none) = (self.inbox.clone(), FuturesUnordered::new());
            leaving.left = leave(inbox, leaving.worker, Instant::now(), none);
            return Err(SourceError::failed(error));
        }
        self.leaving = None;
        Ok(())
    }

    /// Joins as a new worker. If the database takes no writes, there is no session afterwards, and
    /// this is to be called again at `retry_at`. May be dropped and called again.
    async fn join(&mut self) -> Result<(), SourceError> {
        self.leave().await?;
        if self.joining.is_none() {
            self.letters.begin(&self.failures);
            self.failures.recover_all();
        }
        let joining = self.joining.get_or_insert_with(|| {
            let (name, ttl) = (self.settings.name.clone(), self.settings.ttl);
            let tells = (Arc::clone(&self.wake), Arc::clone(&self.failures));
            let backlog = Look::new(Arc::clone(&self.figures));
            let begins = Session::begin(self.inbox.clone(), name, ttl, tells, backlog);
            AbortOnDropHandle::new(tokio::spawn(begins))
        });
        let session = joining.await;
        self.joining = None;
        let session = match session.map_err(SourceError::failed)? {
            Err(error) if error.kind() == ErrorKind::ReadOnly => {
                self.fail(error);
                return Ok(());
            }
            session => session.map_err(SourceError::failed)?,
        };
        self.is_unjoined = false;
        self.starts
            .joined(self.opening, (session.watch(), session.hold()));
        self.session = Some(session);
        self.lanes = Lanes::new(limits(&self.settings));
        self.kept.clear();
        self.is_uncertain = false;
        Ok(())
    }

    /// Ends the session, whose claims other workers may have. The source goes on as another worker.
    fn begin_anew(&mut self) -> Result<Received<SqlPosition>, SourceError> {
        let lost = Generation(self.opening);
        self.end_session();
        self.recalled.clear();
        self.lanes = Lanes::new(limits(&self.settings));
        self.ready.clear();
        Ok(Received::Lost(vec![lost]))
    }

    /// Sends the reports and asks for more, unless calls are in progress or one has just failed.
    fn begin_call(&mut self) {
        if self.retry_at.is_some() {
            return;
        }
        let Some(session) = self.session.as_ref().filter(|session| !session.is_lost()) else {
            return;
        };
        let (inbox, worker) = (self.inbox.clone(), session.worker);
        if self.is_uncertain || Instant::now() >= self.look_at {
            // Turns in progress would change the result.
            if !self.calls.is_empty() {
                return;
            }
            self.is_uncertain = true;
            self.look_at = Instant::now() + self.settings.ttl;
            let ttl = self.settings.ttl;
            let renewals = Arc::clone(&session.renewals);
            self.calls.push(tokio::spawn(async move {
                let backend = &inbox.shared.backend;
                let found = inbox.limited(async {
                    let found = backend.lanes_of(worker).await?;
                    // The worker is alive now, so it was then: a missing lane was left by us, and
                    // not freed.
                    let standing = session::renew_once(&inbox, (worker, ttl), &renewals).await?;
                    session::tell(&standing);
                    Ok((standing == WorkerState::Alive).then_some(found))
                });
                CallResult::Lanes(found.await)
            }));
            return;
        }
        let most = if self.lanes.unsaid() < BULK { 1 } else { 2 };
        if self.calls.len() >= most {
            return;
        }
        let turn = self
            .lanes
            .turn(worker, self.room.saturating_sub(self.ready.len()));
        if turn.is_empty() {
            return;
        }
        self.calls.push(tokio::spawn(async move {
            let answer = inbox.limited(inbox.shared.backend.turn(&turn)).await;
            CallResult::RoundTrip(Box::new(turn), answer)
        }));
    }

    fn follow(&mut self, said: Option<CallResult>) -> Result<(), SourceError> {
        match said {
            Some(CallResult::RoundTrip(turn, Ok(mut answer))) => {
                self.failed = 0;
                self.failures.recover(&Part::Messages);
                self.starts.told(&turn);
                for brought in &mut answer.messages {
                    brought.attempts = self.starts.count(brought.name(), brought.attempts);
                }
                session::tell(&answer.standing);
                let applied = self.lanes.apply(&turn, answer);
                if applied.is_lost {
                    self.lose();
                    return Ok(());
                }
                if !applied.ready.is_empty() {
                    self.poll = FIRST_POLL;
                }
                self.ready.extend(applied.ready);
                for (lane, message) in applied.recalled {
                    let mut ready = self.ready.iter();
                    match ready.position(|ready| ready.name() == message) {
                        // It is not handed over yet.
                        Some(at) => {
                            self.ready.remove(at);
                            self.lanes.give_back(lane, message, 0);
                        }
                        None => self.recalled.push(SqlPosition {
                            sequence: message.sequence,
                            nonce: message.nonce,
                            lane,
                            noted: 0,
                            opening: self.opening,
                            key: None,
                            id: None,
                        }),
                    }
                }
                Ok(())
            }
            Some(CallResult::RoundTrip(turn, Err(error))) => {
                self.lanes.take_back(*turn);
                // The turn may have been done.
                self.is_uncertain = true;
                self.fail(error);
                Ok(())
            }
            Some(CallResult::Lanes(Ok(found))) => {
                self.is_uncertain = false;
                if !found.is_some_and(|found| self.lanes.adopt(&found)) {
                    self.lose();
                }
                Ok(())
            }
            Some(CallResult::Lanes(Err(error))) => {
                self.fail(error);
                Ok(())
            }
            Some(CallResult::Letter(position, _, Ok(true))) => {
                self.letters.settled(position.name());
                self.lanes.settle(position.lane, position.name(), true);
                Ok(())
            }
            Some(CallResult::Letter(.., Ok(false))) => {
                self.lose();
                Ok(())
            }
            Some(CallResult::Letter(position, attempts, Err(error))) => {
                // It may be a letter after all, and then this source gets no further answer about
                // it.
                if error.kind() == ErrorKind::Unreachable {
                    self.letters.settled(position.name());
                }
                // It is handled again, and can commit then.
                self.lanes
                    .give_back(position.lane, position.name(), attempts);
                Ok(())
            }
            None => Err(SourceError::failed("the runtime is shutting down")),
        }
    }

    /// Makes a letter of a message whose handler returned `Ok` and whose writes are rolled back.
    fn keep_uncommitted(&mut self, position: &SqlPosition, attempts: u32) {
        const WHY: &str = "the handler returned `Ok`, but dropped its transaction without a commit";
        let sequence = position.sequence;
        tracing::error!(
            target: "keylane",
            key = %shown_key(position.key.as_ref()),
            source = %self.name(),
            position = %place(position),
            id = position.id.as_deref().map(String::from_utf8_lossy).map(display),
            attempts,
            error = WHY,
            "the message becomes a dead letter"
        );
        let dead = Dead {
            sequence,
            attempts,
            kind: LetterKind::Failed,
            error: WHY.to_owned(),
        };
        let claimed = self.lanes.claim_of(position.lane);
        let (Some(claimed), Some(session)) = (claimed, &self.session) else {
            return;
        };
        let claim = (session.worker, claimed, session.watch());
        let (inbox, position) = (self.inbox.clone(), position.clone());
        self.letters.write(inbox, claim, position, dead);
    }

    fn lose(&self) {
        if let Some(session) = &self.session {
            session.lose();
        }
    }

    /// Pauses after an error. Every error may pass: an operator may restore a missing right.
    fn fail(&mut self, error: SqlError) {
        fail(&self.failures, Part::Messages, &error);
        let (first, longest) = PAUSES;
        let pause = first.saturating_mul(1 << self.failed.min(10)).min(longest);
        self.failed += 1;
        self.retry_at = Some(Instant::now() + pause);
        self.lasting = Some(error).filter(|error| !error.is_retryable());
    }

    fn note_wanted(&mut self) {
        for (lane, sequence, attempt) in self.starts.take_wanted() {
            self.lanes.note_attempt(lane, sequence, attempt);
        }
    }

    fn poll_later(&mut self) {
        let longest = self.settings.poll;
        let is_told = self.session.as_ref().is_some_and(|session| session.is_told);
        let wait = match is_told {
            true => longest,
            false => self.poll.min(longest),
        };
        self.poll = (self.poll * 2).min(longest);
        self.poll_at = Instant::now() + wait;
    }

    fn delivery(&self, ready: Ready) -> Delivery<RawMessage, SqlPosition> {
        let name = ready.name();
        let Ready {
            claimed,
            nonce,
            message,
            attempts,
            noted,
        } = ready;
        if noted > attempts {
            self.starts.noted_before(name, noted);
        }
        let sequence = message.sequence;
        let mut raw = RawMessage::new(message.payload).key(message.key);
        let headers = message.headers.into_iter();
        raw.headers = headers
            .map(|header| (header.name, Some(header.value)))
            .collect();
        raw.attempt = attempts.saturating_add(1);
        raw.id = message.id.map(Bytes::from);
        raw.version = message.version;
        raw.enqueued_at = Some(message.accepted_at);
        raw.position = self.session.as_ref().map(|session| {
            let claim = Claim {
                worker: session.worker,
                claimed,
                message: name,
                opening: self.opening,
            };
            claim.to_bytes()
        });
        let position = SqlPosition {
            sequence,
            nonce,
            lane: claimed.lane,
            noted: match self.settings.exact_starts {
                true => noted,
                false => attempts + 1,
            },
            opening: self.opening,
            key: raw.key.clone(),
            id: raw.id.clone(),
        };
        Delivery::raw(raw, position)
            .attempts(attempts)
            .generation(Generation(self.opening))
    }
}

/// Lets a worker leave, behind its calls in progress: a turn that comes later could claim more.
fn leave(
    inbox: SqlInbox,
    worker: u64,
    from: Instant,
    mut calls: FuturesUnordered<Call>,
) -> AbortOnDropHandle<Result<(), SqlError>> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        tokio::time::sleep_until(from).await;
        while calls.next().await.is_some() {}
        inbox.limited(inbox.shared.backend.leave(worker)).await
    }))
}

/// Waits for one of the calls in progress. `None`: the runtime shuts down.
async fn said(calls: &mut FuturesUnordered<Call>, letters: &mut Letters) -> Option<CallResult> {
    tokio::select! {
        Some(said) = calls.next() => said.ok(),
        Some(said) = letters.next() => said.ok(),
        else => std::future::pending().await,
    }
}

impl fmt::Debug for SqlSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlSource").finish_non_exhaustive()
    }
}
