//! Reads an inbox for a dispatcher.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use keylane::source::{
    Deliveries, Delivery, Features, Generation, Outcome, RawMessage, Received, Settlement, Source,
    SourceError, SourceLetter, StartGuard,
};
use keylane_inbox::LetterKind;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::SqlInbox;
use super::super::backend::Dead;
use super::super::claim::Claim;
use super::super::lane::LaneId;
use super::super::turn::{Answer, Found, Turn};
use super::super::uncommitted;
use super::guard::Starts;
use super::lanes::{Lanes, Limits, Ready};
use super::session::Session;
use super::settings::SourceSettings;
use crate::error::SqlError;

/// With so much to say, a second turn begins beside the first. With less, what there is to say waits
/// for the answer, and for more of it: many small turns would cost the database more.
const BULK: usize = 1_024;

/// How long a lane rests that could not be left because one who accepts has its key.
const REST: Duration = Duration::from_millis(100);

/// The first pause after a round trip that failed, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// The first wait before looking again where nothing is told.
const FIRST_POLL: Duration = Duration::from_millis(5);

/// The openings of all sources of this process.
static OPENINGS: AtomicU64 = AtomicU64::new(0);

/// What names a message to its inbox.
#[derive(Clone, Debug)]
pub struct Position {
    /// Its sequence in the inbox.
    pub sequence: u64,
    pub(super) lane: LaneId,
    /// The last attempt that needs no note.
    pub(super) noted: u32,
    /// The opening of the source that has handed it over: a settlement of an older one is stale.
    opening: u64,
}

impl PartialEq for Position {
    fn eq(&self, other: &Self) -> bool {
        (self.sequence, self.opening) == (other.sequence, other.opening)
    }
}

impl Eq for Position {}

impl Position {
    pub(super) fn in_hand(&self) -> uncommitted::InHand {
        (self.opening, self.sequence)
    }
}

/// An inbox in tables as the source of a dispatcher: see [`SqlInbox::source`].
pub struct SqlSource {
    inbox: SqlInbox,
    settings: SourceSettings,
    session: Option<Session>,
    opening: u64,
    lanes: Lanes,
    ready: VecDeque<Ready>,
    /// How many more messages there is room for, in `ready` as well.
    room: usize,
    recalled: Vec<Position>,
    /// Messages that are letters of this inbox already, and have not settled.
    kept: HashSet<u64>,
    calls: FuturesUnordered<Call>,
    /// How many of them make letters: these hold nothing up.
    letters: usize,
    /// It is to be seen what is claimed: an answer was lost, or some time has passed.
    is_uncertain: bool,
    /// When to see what is claimed in any case: a turn that was given up may be done much later.
    look_at: Instant,
    failures: u32,
    retry_at: Option<Instant>,
    wake: Arc<Notify>,
    starts: Arc<Starts>,
    poll: Duration,
    poll_at: Instant,
}

type Call = JoinHandle<Said>;

/// What a call to the database has come to.
enum Said {
    Turn(Box<Turn>, Result<Answer, SqlError>),
    /// `None`: the claims have ended.
    Lanes(Result<Option<Vec<Found>>, SqlError>),
    /// Whether a message is a letter now. False: the claims have ended. With how many attempts it had.
    Letter(Position, u32, Result<bool, SqlError>),
}

impl SqlInbox {
    /// The inbox as the source of a dispatcher. Any number of processes may consume it: each claims
    /// keys, and no two have the same one.
    ///
    /// Messages of a key are handed over in the order in which they were committed. A worker that
    /// dies, or is paused for longer than its claims last, loses its keys to the others; what it
    /// writes afterwards changes nothing, because its claims have other tokens. With
    /// [`OnExhausted::AtSource`](keylane::OnExhausted::AtSource) the inbox keeps the dead letters.
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

    /// Like [`source`](Self::source), with other settings.
    pub fn source_with(&self, settings: SourceSettings) -> SqlSource {
        let wake = Arc::new(Notify::new());
        let limits = limits(&settings);
        SqlSource {
            inbox: self.clone(),
            session: None,
            opening: 0,
            lanes: Lanes::new(limits),
            ready: VecDeque::new(),
            room: 0,
            recalled: Vec::new(),
            kept: HashSet::new(),
            calls: FuturesUnordered::new(),
            letters: 0,
            is_uncertain: false,
            look_at: Instant::now() + settings.ttl,
            failures: 0,
            retry_at: None,
            starts: Arc::new(Starts::new(Arc::clone(&wake))),
            wake,
            poll: FIRST_POLL,
            poll_at: Instant::now(),
            settings,
        }
    }
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
    type Position = Position;

    fn name(&self) -> String {
        "inbox".to_owned()
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
        (self.retry_at, self.failures) = (None, 0);
        if self.session.as_ref().is_none_or(Session::is_lost) {
            // What it still answers is of claims that have ended.
            self.drop_calls();
        }
        while let Some(said) = self.calls.next().await {
            let _ = self.follow(said.ok());
            self.ready.clear();
            self.recalled.clear();
        }
        if self.session.as_ref().is_some_and(Session::is_lost) {
            self.session = None;
        }
        let backend = &self.inbox.shared.backend;
        match &self.session {
            Some(session) => {
                // What was done before must not be read again.
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
            None => self.join().await?,
        }
        self.is_uncertain = false;
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, Position>,
    ) -> Result<Received<Position>, SourceError> {
        let until = into.until();
        loop {
            let Some(session) = &self.session else {
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
                said = said(&mut self.calls) => self.follow(said)?,
                () = self.wake.notified() => self.lanes.look(),
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

    async fn settle(&mut self, settled: &[Settlement<Position>]) -> Result<(), SourceError> {
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
                        .give_back(position.lane, position.sequence, *attempts);
                }
                _ if let Some(attempt) = dropped_by => self.keep_uncommitted(position, attempt),
                _ => {
                    // Its letter is in its place, or waits again already.
                    let is_told = self.kept.remove(&position.sequence);
                    self.lanes.settle(position.lane, position.sequence, is_told);
                }
            }
        }
        // What is done need not wait for the next call of `receive`. It makes room, unless there is to
        // be none.
        if self.room > 0 {
            self.room += settled.len();
        }
        self.begin_call();
        Ok(())
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        loop {
            let Some(session) = self.session.as_ref().filter(|session| !session.is_lost()) else {
                return Err(SourceError::failed("the claims of this worker have ended"));
            };
            let mut lost = session.watch();
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
            // While this waits, nothing else hears that the claims have ended.
            tokio::select! {
                biased;
                _ = lost.wait_for(|is_lost| *is_lost) => {}
                said = said(&mut self.calls) => self.follow(said)?,
            }
        }
    }

    async fn dead_letter(&mut self, letter: SourceLetter<Position>) -> Result<(), SourceError> {
        let Position {
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
            return Err(SourceError::failed("its key is not claimed any more"));
        };
        let dead = Dead {
            sequence,
            attempts: letter.attempts,
            kind: letter.cause.into(),
            error: letter.why,
        };
        let (inbox, worker, mut lost) = (self.inbox.clone(), session.worker, session.watch());
        let kept = tokio::spawn(async move {
            let kept = inbox.shared.backend.dead_letter(worker, claimed, &dead);
            inbox.limited(kept).await
        });
        let kept = tokio::select! {
            biased;
            _ = lost.wait_for(|is_lost| *is_lost) => {
                return Err(SourceError::failed("its key is not claimed any more"));
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
                Err(SourceError::failed("its key is not claimed any more"))
            }
            Ok(Err(error)) => Err(SourceError::failed(error)),
            Err(error) => Err(SourceError::failed(error)),
        }
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<Position>>> {
        Some(Arc::clone(&self.starts) as Arc<dyn StartGuard<Position>>)
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        // Nothing more is claimed.
        self.room = 0;
        let confirmed = self.confirm().await;
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
        self.starts.forget_all_but(self.opening);
    }

    /// Turns, and looks at what is claimed, that are under way.
    fn turns(&self) -> usize {
        self.calls.len() - self.letters
    }

    fn drop_calls(&mut self) {
        self.calls.clear();
        self.letters = 0;
    }

    async fn join(&mut self) -> Result<(), SourceError> {
        let (name, ttl) = (&self.settings.name, self.settings.ttl);
        let session = Session::begin(&self.inbox, name, ttl, &self.wake).await;
        let session = session.map_err(SourceError::failed)?;
        self.starts.joined(self.opening, session.watch());
        self.session = Some(session);
        self.lanes = Lanes::new(limits(&self.settings));
        self.kept.clear();
        self.is_uncertain = false;
        Ok(())
    }

    /// The claims have ended: others may have them. The source goes on as another worker.
    fn begin_anew(&mut self) -> Result<Received<Position>, SourceError> {
        let lost = Generation(self.opening);
        self.session = None;
        // What it still answers is of claims that have ended.
        self.drop_calls();
        self.recalled.clear();
        self.lanes = Lanes::new(limits(&self.settings));
        self.ready.clear();
        Ok(Received::Lost(vec![lost]))
    }

    /// Says what there is to say and asks for more, unless calls are under way or one failed just now.
    fn begin_call(&mut self) {
        if self.retry_at.is_some() {
            return;
        }
        let Some(session) = self.session.as_ref().filter(|session| !session.is_lost()) else {
            return;
        };
        let (inbox, worker) = (self.inbox.clone(), session.worker);
        if self.is_uncertain || Instant::now() >= self.look_at {
            // Turns change what there is to see.
            if self.turns() > 0 {
                return;
            }
            self.is_uncertain = true;
            self.look_at = Instant::now() + self.settings.ttl;
            let ttl = self.settings.ttl;
            self.calls.push(tokio::spawn(async move {
                let backend = &inbox.shared.backend;
                let found = inbox.limited(async {
                    let found = backend.lanes_of(worker).await?;
                    // Alive now, it was then: what is missing was left by us, and not freed.
                    let is_alive = backend.renew(worker, ttl).await?;
                    Ok(is_alive.then_some(found))
                });
                Said::Lanes(found.await)
            }));
            return;
        }
        let most = if self.lanes.unsaid() < BULK { 1 } else { 2 };
        if self.turns() >= most {
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
            Said::Turn(Box::new(turn), answer)
        }));
    }

    fn follow(&mut self, said: Option<Said>) -> Result<(), SourceError> {
        if let Some(Said::Letter(..)) = said {
            self.letters -= 1;
        }
        match said {
            Some(Said::Turn(turn, Ok(answer))) => {
                self.failures = 0;
                for (_, sequence, attempt) in &turn.attempts {
                    self.starts.note(*sequence, *attempt);
                }
                let applied = self.lanes.apply(&turn, answer);
                if applied.is_lost {
                    self.lose();
                    return Ok(());
                }
                if !applied.ready.is_empty() {
                    self.poll = FIRST_POLL;
                }
                self.ready.extend(applied.ready);
                for (lane, sequence) in applied.recalled {
                    let mut ready = self.ready.iter();
                    match ready.position(|ready| ready.message.sequence == sequence) {
                        // It is not handed over yet.
                        Some(at) => {
                            self.ready.remove(at);
                            self.lanes.give_back(lane, sequence, 0);
                        }
                        None => self.recalled.push(Position {
                            sequence,
                            lane,
                            noted: 0,
                            opening: self.opening,
                        }),
                    }
                }
                Ok(())
            }
            Some(Said::Turn(turn, Err(error))) => {
                self.lanes.take_back(*turn);
                // It may have been done.
                self.is_uncertain = true;
                self.fail(error)
            }
            Some(Said::Lanes(Ok(found))) => {
                self.is_uncertain = false;
                if !found.is_some_and(|found| self.lanes.adopt(&found)) {
                    self.lose();
                }
                Ok(())
            }
            Some(Said::Lanes(Err(error))) => self.fail(error),
            Some(Said::Letter(position, _, Ok(true))) => {
                self.lanes.settle(position.lane, position.sequence, true);
                Ok(())
            }
            Some(Said::Letter(.., Ok(false))) => {
                self.lose();
                Ok(())
            }
            Some(Said::Letter(position, attempts, Err(error))) => {
                // It will never be one. It is handled again, and has another chance to commit.
                self.lanes
                    .give_back(position.lane, position.sequence, attempts);
                self.fail(error)
            }
            None => Err(SourceError::failed("the runtime ends")),
        }
    }

    /// Its handler has returned `Ok`, and what that wrote is rolled back: it becomes a letter.
    fn keep_uncommitted(&mut self, position: &Position, attempts: u32) {
        const WHY: &str =
            "its handler returned Ok, but had dropped its transaction without a commit";
        let sequence = position.sequence;
        tracing::error!(target: "keylane", sequence, "a message becomes a dead letter: {WHY}");
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
        let (worker, mut lost) = (session.worker, session.watch());
        let (inbox, position) = (self.inbox.clone(), position.clone());
        self.letters += 1;
        self.calls.push(tokio::spawn(async move {
            // As long as it is held, its lane is not left, and `confirm` waits for it.
            let mut pause = PAUSES.0;
            let kept = loop {
                let kept = inbox.shared.backend.dead_letter(worker, claimed, &dead);
                let kept = inbox.limited(kept).await;
                if !kept.as_ref().is_err_and(SqlError::is_retryable) {
                    break kept;
                }
                tokio::select! {
                    _ = lost.wait_for(|is_lost| *is_lost) => break Ok(false),
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSES.1),
                }
            };
            Said::Letter(position, attempts, kept)
        }));
    }

    fn lose(&self) {
        if let Some(session) = &self.session {
            session.lose();
        }
    }

    /// Pauses after an error that may pass.
    fn fail(&mut self, error: SqlError) -> Result<(), SourceError> {
        if !error.is_retryable() {
            return Err(SourceError::failed(error));
        }
        tracing::warn!(target: "keylane", %error, "the inbox is asked again");
        let (first, longest) = PAUSES;
        let pause = first
            .saturating_mul(1 << self.failures.min(10))
            .min(longest);
        self.failures += 1;
        self.retry_at = Some(Instant::now() + pause);
        Ok(())
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

    fn delivery(&self, ready: Ready) -> Delivery<RawMessage, Position> {
        let Ready {
            claimed,
            message,
            attempts,
            noted,
        } = ready;
        let sequence = message.sequence;
        let mut raw = RawMessage::new(message.payload).key(message.key);
        let headers = message.headers.into_iter();
        raw.headers = headers.map(|header| (header.name, header.value)).collect();
        raw.attempt = attempts.saturating_add(1);
        raw.id = message.id.map(Bytes::from);
        raw.version = message.version;
        raw.enqueued_at = Some(message.accepted_at);
        raw.position = self.session.as_ref().map(|session| {
            let claim = Claim {
                worker: session.worker,
                claimed,
                sequence,
                opening: self.opening,
            };
            claim.to_bytes()
        });
        let position = Position {
            sequence,
            lane: claimed.lane,
            noted: match self.settings.exact_starts {
                true => noted,
                false => attempts + 1,
            },
            opening: self.opening,
        };
        Delivery::new(raw, position)
            .attempts(attempts)
            .generation(Generation(self.opening))
    }
}

/// Waits for one of the calls that are under way. `None`: the runtime ends.
async fn said(calls: &mut FuturesUnordered<Call>) -> Option<Said> {
    match calls.next().await {
        Some(said) => said.ok(),
        None => std::future::pending().await,
    }
}

impl fmt::Debug for SqlSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlSource").finish_non_exhaustive()
    }
}
