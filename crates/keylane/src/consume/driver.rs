//! The task that owns a source.
//!
//! # How it ends
//!
//! 1. It is asked to stop, the source comes to its end, or the dispatcher closes: nothing more is
//!    received.
//! 2. What is here settles. If the dispatcher is closed, what is not in a lane yet goes back at
//!    once.
//! 3. At the deadline of the stop, what has not started goes back; later, attempts in flight are
//!    dropped.
//! 4. Nothing is held any more: the acks are confirmed, and the source is closed.
//! 5. The report stands.

use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;

use super::control::{Command, Control};
use super::guard::PositionGuard;
use super::held::{Held, Standing};
use super::inlet::Inlet;
use super::report::{IntakeState, IntakeStats};
use super::revocation::{Due, Revocation};
use super::settings::{Guarantee, IntakeSettings};
use super::slots::Slots;
use crate::clock::{self, Alarm, Instant};
use crate::dispatcher::Dispatcher;
use crate::engine::{
    GuardedStarts, LetterRequest, Registration, Revoked, SlotGuard, SourceSlot, after,
};
use crate::error::ConsumeError;
use crate::observe::trace::cut;
use crate::rt::{self, Arc, mpsc};
use crate::source::{
    Deliveries, Delivery, Features, Generation, Outcome, Received, Settlement, Source, SourceError,
    SourceLetter,
};
use crate::types::Of;
use crate::unwind::{caught, dropped};
use crate::watching::SourceEvent;

/// The first pause before a source that failed is opened again.
const PAUSE: Duration = Duration::from_millis(100);

/// What is wrong with a message that cannot be placed.
const UNPLACEABLE: &str = "a message has no key, or is larger than the capacity";

/// How long a message stays that cannot be placed, before it goes back.
const UNPLACEABLE_WAIT: Duration = Duration::from_secs(1);

/// How often a call of [`Source::open`] is interrupted to see whether the dispatcher is closed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Most characters kept of an error.
const LONGEST_WHY: usize = 256;

/// Longer than any wait whose end matters.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// While it exists, the engine looks at jobs before they start.
type Guarded<K, M, O, E> = GuardedStarts<Of<K, M, O, E>>;

pub(super) struct Driver<K, M, O, E, S: Source<Message = M>> {
    source: S,
    name: String,
    settings: IntakeSettings,
    inlet: Inlet<K, M, O, E>,
    /// By the slot that the engine knows.
    held: Slots<Held<S::Position>>,
    registration: Registration,
    guard: Option<Arc<PositionGuard<S::Position>>>,
    /// For a source that counts attempts: all starts are told.
    _counts: Option<Guarded<K, M, O, E>>,
    revocations: Vec<Revocation<Guarded<K, M, O, E>>>,
    /// One has begun, and what of it is in no lane yet was not given back.
    has_unplaced: bool,
    phase: Phase,
    paused: bool,
    /// When the source last said something. Later by the time in which it was not asked.
    heard_at: Instant,
    /// Since when it is not asked.
    busy_since: Instant,
    /// When leases are extended, and acks are confirmed.
    extend_at: Instant,
    confirm_at: Instant,
    /// How often the source has failed since it last was well: it confirmed something, or was idle.
    failures: u32,
    features: Features,
    /// Messages that cannot be placed, and when they go back. Not at once: a source with nack would
    /// hand them over again at full speed.
    unplaceable: Vec<(Instant, u32)>,
    /// The source has come to its end.
    ended: bool,
    /// Acks told and not confirmed.
    unconfirmed: u64,
    /// Whether anything was told that is not confirmed: dead letters too.
    is_unconfirmed: bool,
    /// How many messages waited beside full lanes in the last turn, and were deferred.
    seen_aside: (usize, usize),
    control: Arc<Control>,
    commands: mpsc::UnboundedReceiver<Command>,
    deliveries: Deliveries<M, S::Position>,
    settled: Vec<(u32, Outcome)>,
    letters: Vec<LetterRequest>,
    told: Vec<Settlement<S::Position>>,
    /// Whether messages could be placed, and the dispatcher is to look at others first.
    is_behind: bool,
    /// Whether the source is asked first in the next turn, so that neither side waits for ever.
    source_first: bool,
    alarm: Option<Alarm>,
}

/// How far the driver is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The source is opened at this time.
    Opening(Instant),
    Running,
    /// The source is open, or was never. Nothing more comes in.
    Stopping {
        /// When what has not started goes back.
        hand_back_at: Option<Instant>,
        handed_back: bool,
        is_open: bool,
    },
}

/// What woke the driver.
enum Turn<P> {
    Command(Command),
    /// Every `Intake` is gone, or the dispatcher has ended.
    Ended,
    News,
    Room,
    Time,
    Received(Result<Received<P>, SourceError>),
}

/// What became of a call of [`Source::open`].
enum Opened {
    Returned(Result<(), SourceError>),
    Late,
    /// It was dropped: the intake is to stop.
    Stop(Option<Instant>),
}

/// Why a source is opened again.
enum Trouble {
    Failed(SourceError),
    /// A call has not returned in this time.
    Late(Duration),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Late(_) => f.write_str("a call of the source did not return in time"),
        }
    }
}

impl<K, M, O, E, S> Driver<K, M, O, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
    S: Source<Message = M>,
{
    pub(super) fn new(
        dispatcher: Dispatcher<K, M, O, E>,
        (source, features): (S, Features),
        settings: IntakeSettings,
        control: Arc<Control>,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Result<Self, ConsumeError> {
        let engine = &dispatcher.engine;
        let guard = source.start_guard();
        let guard = guard.map(|guard| Arc::new(PositionGuard::new(guard)));
        let counts = guard.is_some().then(|| engine.guard_starts());
        let slots = guard.clone().map(|guard| guard as Arc<dyn SlotGuard>);
        let registration = engine.sources.register(slots);
        let registration = registration.ok_or(ConsumeError::Closed)?;
        let now = engine.now();
        // What is settled before it runs has no slot.
        let defers = match features.has_random_access() {
            true if settings.guarantee != Guarantee::AtMostOnce => settings.deferred,
            _ => 0,
        };
        Ok(Self {
            name: source.name(),
            inlet: Inlet::new(dispatcher, registration.source, defers),
            settings,
            held: Slots::new(),
            registration,
            guard,
            _counts: counts,
            revocations: Vec::new(),
            has_unplaced: false,
            phase: Phase::Opening(now),
            failures: 0,
            features,
            unplaceable: Vec::new(),
            ended: false,
            paused: false,
            heard_at: now,
            busy_since: now,
            extend_at: now,
            confirm_at: now,
            unconfirmed: 0,
            is_unconfirmed: false,
            seen_aside: (0, 0),
            control,
            commands,
            deliveries: Deliveries::new(0, now.into()),
            settled: Vec::new(),
            letters: Vec::new(),
            told: Vec::new(),
            is_behind: false,
            source_first: false,
            alarm: None,
            source,
        })
    }

    pub(super) async fn run(mut self) {
        loop {
            self.open_if_due().await;
            self.take_in().await;
            if self.has_unplaced {
                self.give_back_unplaced().await;
            }
            self.read_deferred().await;
            self.place();
            self.publish_aside();
            self.refuse_if_closed().await;
            if self.is_over() {
                break;
            }
            if self.is_behind {
                rt::yield_now().await;
            }
            let turn = self.next_turn().await;
            self.busy_since = clock::now();
            match turn {
                Turn::Command(command) => self.obey(command),
                Turn::Ended => break,
                Turn::News => self.settle_news().await,
                Turn::Room => {}
                Turn::Time => self.follow_time().await,
                Turn::Received(received) => self.follow(received).await,
            }
            rt::consume_budget().await;
        }
        self.finish().await;
    }

    /// Places what there is room for. If the key's own code panics, it is not known what was
    /// placed, and all of it comes anew.
    fn place(&mut self) {
        match caught(|| self.inlet.place()) {
            Ok(is_behind) => self.is_behind = is_behind,
            Err(text) => self.restart(Trouble::Failed(SourceError::failed(panicked(text)))),
        }
    }

    /// Whether nothing is left to do.
    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. })
            && self.held.len() == 0
            && self.inlet.len() == 0
            && self.deliveries.is_empty()
            && self.revocations.is_empty()
    }

    /// Waits for the next thing to do.
    async fn next_turn(&mut self) -> Turn<S::Position> {
        let now = clock::now();
        // The source cannot say anything while another call of it runs.
        let busy = now.saturating_duration_since(self.busy_since);
        self.heard_at = later(self.heard_at, busy).min(now);
        // While we stop as well, without room: a generation may end.
        let receives = self.is_open() && !self.ended;
        let mut alarm = self.wake_at().map(|at| {
            let alarm = self.alarm.get_or_insert_with(|| Alarm::new(at));
            alarm.reset(at);
            alarm
        });
        let takes_in = self.phase == Phase::Running && !self.inlet.is_closed();
        let room = match takes_in && !self.paused {
            false => 0,
            // What is settled before it runs is not held.
            true => {
                let here = self.held.len().max(self.inlet.len());
                let here = here.saturating_sub(self.inlet.aside.deferred());
                self.settings.held.saturating_sub(here)
            }
        };
        self.deliveries.room = room;
        self.deliveries.until = later(self.heard_at, self.settings.stall_after / 2).into();
        self.source_first = !self.source_first;
        let (source_first, is_behind) = (self.source_first, self.is_behind);

        let mut receive = pin!(self.source.receive(&mut self.deliveries));
        let (settled, letters) = (&mut self.settled, &mut self.letters);
        let (inlet, commands) = (&mut self.inlet, &mut self.commands);
        let source = self.registration.source;
        let engine = Arc::clone(&inlet.dispatcher.engine);
        let mut ended = pin!(engine.shutdown.ended());
        poll_fn(|cx| {
            if let Poll::Ready(Some(command)) = commands.poll_recv(cx) {
                return Poll::Ready(Turn::Command(command));
            }
            let mut poll_source = |cx: &mut Context<'_>| {
                if !receives {
                    return Poll::Pending;
                }
                match caught(|| receive.as_mut().poll(cx)) {
                    Ok(Poll::Pending) => Poll::Pending,
                    Ok(Poll::Ready(received)) => Poll::Ready(Turn::Received(received)),
                    Err(text) => {
                        Poll::Ready(Turn::Received(Err(SourceError::failed(panicked(text)))))
                    }
                }
            };
            if source_first && let Poll::Ready(turn) = poll_source(cx) {
                return Poll::Ready(turn);
            }
            if engine
                .sources
                .poll_news(source, settled, letters, cx)
                .is_ready()
            {
                return Poll::Ready(Turn::News);
            }
            match caught(|| inlet.poll_room(cx)) {
                Ok(Poll::Pending) if !is_behind => {}
                Ok(_) => return Poll::Ready(Turn::Room),
                // As in `place`.
                Err(text) => {
                    let error = SourceError::failed(panicked(text));
                    return Poll::Ready(Turn::Received(Err(error)));
                }
            }
            if !source_first && let Poll::Ready(turn) = poll_source(cx) {
                return Poll::Ready(turn);
            }
            if alarm
                .as_mut()
                .is_some_and(|alarm| alarm.poll(cx).is_ready())
            {
                return Poll::Ready(Turn::Time);
            }
            // After the news: what settled before the end is read.
            ended.as_mut().poll(cx).map(|()| Turn::Ended)
        })
        .await
    }

    /// When something is due by the clock.
    fn wake_at(&self) -> Option<Instant> {
        let mut first: Option<Instant> = None;
        let mut by = |time: Instant| first = Some(first.map_or(time, |first| first.min(time)));
        match self.phase {
            Phase::Opening(open_at) => by(open_at),
            Phase::Running => {
                if self.settings.stall_after < FAR {
                    by(later(self.heard_at, self.settings.stall_after));
                }
            }
            Phase::Stopping {
                hand_back_at,
                handed_back,
                ..
            } => {
                if let (Some(hand_back_at), false) = (hand_back_at, handed_back) {
                    by(hand_back_at);
                }
            }
        }
        if self.lease().is_some() && self.held.len() > 0 && self.is_open() {
            by(self.extend_at);
        }
        if self.is_unconfirmed && self.is_open() {
            by(self.confirm_at);
        }
        for revocation in &self.revocations {
            by(revocation.wake_at());
        }
        if let Some((at, _)) = self.unplaceable.first() {
            by(*at);
        }
        first
    }

    fn lease(&self) -> Option<Duration> {
        self.features.lease_of()
    }

    fn is_open(&self) -> bool {
        match self.phase {
            Phase::Opening(..) => false,
            Phase::Running => true,
            Phase::Stopping { is_open, .. } => is_open,
        }
    }

    /// Opens the source if it is time.
    async fn open_if_due(&mut self) {
        let Phase::Opening(at) = self.phase else {
            return;
        };
        if self.inlet.is_closed() {
            return self.stop_at(Some(clock::now()));
        }
        if at > clock::now() {
            return;
        }
        let opened = {
            let mut alarm = alarm_after(self.settings.stall_after);
            let mut look = Alarm::new(later(clock::now(), LOOK_EVERY));
            let mut open = pin!(AssertUnwindSafe(self.source.open()).catch_unwind());
            let (commands, paused) = (&mut self.commands, &mut self.paused);
            let dispatcher = self.inlet.dispatcher.clone();
            poll_fn(|cx| {
                // A stop does not wait for a source that does not answer.
                while let Poll::Ready(Some(command)) = commands.poll_recv(cx) {
                    match command {
                        Command::Pause => *paused = true,
                        Command::Resume => *paused = false,
                        Command::Stop(at) => return Poll::Ready(Opened::Stop(at)),
                    }
                }
                match open.as_mut().poll(cx) {
                    Poll::Ready(Ok(opened)) => return Poll::Ready(Opened::Returned(opened)),
                    Poll::Ready(Err(_)) => {
                        let error = SourceError::failed("`open` panicked");
                        return Poll::Ready(Opened::Returned(Err(error)));
                    }
                    Poll::Pending => {}
                }
                // Neither does a dispatcher that is closed.
                while look.poll(cx).is_ready() {
                    if dispatcher.is_closed() {
                        return Poll::Ready(Opened::Stop(Some(clock::now())));
                    }
                    look.reset(later(clock::now(), LOOK_EVERY));
                }
                match &mut alarm {
                    Some(alarm) => alarm.poll(cx).map(|()| Opened::Late),
                    None => Poll::Pending,
                }
            })
            .await
        };
        let now = clock::now();
        self.heard_at = now;
        match opened {
            Opened::Returned(Ok(())) => {
                self.phase = Phase::Running;
                self.publish_state();
                self.notify(SourceEvent::Opened);
            }
            Opened::Returned(Err(error)) => {
                self.report_failure(&error.to_string());
                self.open_later();
            }
            Opened::Late => {
                let lasted = self.settings.stall_after;
                self.notify(SourceEvent::Stalled { lasted });
                self.report_failure("`open` did not return in time");
                self.open_later();
            }
            Opened::Stop(at) => self.stop_at(at),
        }
    }

    /// Has the source opened after a pause that grows with each failure in a row.
    fn open_later(&mut self) {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let pause = PAUSE
            .saturating_mul(factor)
            .min(self.settings.longest_pause);
        self.failures = self.failures.saturating_add(1);
        self.phase = Phase::Opening(later(clock::now(), pause));
    }

    fn report_failure(&self, why: &str) {
        tracing::error!(target: "keylane", source = %self.name, %why, "a source has failed");
        let why = cut(why.to_owned(), LONGEST_WHY);
        self.control
            .publish(|stats| stats.last_error = Some(why.clone()));
        self.notify(SourceEvent::Failed { why });
    }

    /// Takes what the source has handed over.
    async fn take_in(&mut self) {
        if self.deliveries.is_empty() {
            return;
        }
        self.heard_at = clock::now();
        let dead_lettered = std::mem::take(&mut self.deliveries.dead_lettered);
        let mut deliveries = std::mem::take(&mut self.deliveries.deliveries);
        let received = deliveries.len() as u64 + dead_lettered;
        if let Phase::Stopping { .. } = self.phase {
            // It had no room. Nothing more goes into the lanes.
            let mut back = Vec::new();
            for delivery in deliveries.drain(..) {
                back.extend(self.hold(&delivery));
                dropped(delivery);
            }
            self.publish(|stats| {
                stats.received += received;
                stats.dead_lettered += dead_lettered;
            });
            Box::pin(self.give_back(back)).await;
        } else if self.settings.guarantee == Guarantee::AtMostOnce {
            self.publish(|stats| {
                stats.received += dead_lettered;
                stats.dead_lettered += dead_lettered;
            });
            self.take_in_settled(&mut deliveries).await;
        } else {
            let before = self.unplaceable.len();
            let goes_back_at = later(self.heard_at, UNPLACEABLE_WAIT);
            for delivery in deliveries.drain(..) {
                let Some(slot) = self.hold(&delivery) else {
                    continue;
                };
                let pushed = caught(|| self.inlet.push(delivery.message, Some(slot)));
                if !matches!(pushed, Ok(Ok(()))) {
                    dropped(pushed);
                    self.unplaceable.push((goes_back_at, slot));
                }
            }
            // Together with what is held: the two are always seen to agree.
            self.publish(|stats| {
                stats.received += received;
                stats.dead_lettered += dead_lettered;
            });
            if self.unplaceable.len() > before {
                self.report_failure(UNPLACEABLE);
            }
        }
        // The same memory for the next ones.
        if self.deliveries.deliveries.capacity() == 0 {
            self.deliveries.deliveries = deliveries;
        }
    }

    fn hold(&mut self, delivery: &Delivery<M, S::Position>) -> Option<u32> {
        let position = &delivery.position;
        let held = Held::new(position.clone(), delivery.generation);
        let slot = self.held.insert(held)?;
        if let Some(guard) = &self.guard {
            guard.set(slot, position.clone());
        }
        if delivery.attempts > 0 {
            let at = self.at(slot);
            self.sources().set_slot(at, delivery.attempts);
            if let Some(held) = self.held.get_mut(slot) {
                held.marked = true;
            }
        }
        Some(slot)
    }

    /// Settles messages before they are run.
    async fn take_in_settled(&mut self, deliveries: &mut Vec<Delivery<M, S::Position>>) {
        let told: Vec<_> = deliveries
            .iter()
            .map(|delivery| Settlement::new(delivery.position.clone(), Outcome::Done))
            .collect();
        let count = told.len() as u64;
        if let Err(error) = self.tell_and_confirm(&told).await {
            // It comes again, so it must not run now.
            self.publish(|stats| {
                stats.received += count;
                stats.given_back += count;
            });
            deliveries.clear();
            return self.restart(error);
        }
        self.publish(|stats| {
            stats.received += count;
            stats.acked += count;
        });
        for delivery in deliveries.drain(..) {
            let pushed = caught(|| self.inlet.push(delivery.message, None));
            if !matches!(pushed, Ok(Ok(()))) {
                dropped(pushed);
                self.report_failure(UNPLACEABLE);
            }
        }
    }

    async fn tell_and_confirm(&mut self, told: &[Settlement<S::Position>]) -> Result<(), Trouble> {
        let limit = self.settings.stall_after;
        call(limit, self.source.settle(told)).await?;
        call(limit, self.source.confirm()).await
    }

    /// Follows what the source has said.
    async fn follow(&mut self, received: Result<Received<S::Position>, SourceError>) {
        self.heard_at = clock::now();
        match received {
            Ok(Received::Messages) if self.deliveries.is_empty() => rt::yield_now().await,
            Ok(Received::Messages) => {}
            Ok(Received::Idle) => self.failures = 0,
            Ok(Received::Revoked(generations)) => self.revoke(generations, true).await,
            Ok(Received::Lost(generations)) => self.revoke(generations, false).await,
            Ok(Received::Recalled(positions)) => self.recall(&positions).await,
            Ok(Received::End) => {
                self.ended = true;
                self.take_in().await;
                self.stop_at(None);
            }
            Err(error) => {
                // What was pushed before the failure is of a generation that is over.
                self.restart(Trouble::Failed(error));
            }
        }
    }

    /// Reads what has settled, and tells the source.
    async fn settle_news(&mut self) {
        let mut settled = std::mem::take(&mut self.settled);
        self.settle(settled.drain(..)).await;
        if self.settled.capacity() == 0 {
            self.settled = settled;
        }
        for letter in std::mem::take(&mut self.letters) {
            self.keep_letter(letter).await;
        }
    }

    /// Reads deferred messages again that are about to go in.
    async fn read_deferred(&mut self) {
        while let Some((hash, slots)) = self.inlet.next_to_read() {
            let held = &self.held;
            let live = slots.into_iter().filter_map(|slot| {
                let held = held.get(slot)?;
                let is_live = held.standing != Standing::Over;
                is_live.then(|| (slot, held.position.clone()))
            });
            let (slots, positions): (Vec<_>, Vec<_>) = live.unzip();
            if positions.is_empty() || !self.is_open() {
                continue;
            }
            let limit = self.settings.stall_after;
            let until = later(clock::now(), limit).into();
            let mut into = Deliveries::new(positions.len(), until);
            let read = call(limit, self.source.reread(&positions, &mut into));
            if let Err(error) = read.await {
                return self.restart(error);
            }
            let mut read = into.take().into_iter().peekable();
            let (mut found, mut missing) = (Vec::new(), Vec::new());
            for (slot, position) in slots.into_iter().zip(&positions) {
                match read.next_if(|delivery| delivery.position == *position) {
                    Some(delivery) => found.push((slot, delivery.message)),
                    None => missing.push(slot),
                }
            }
            dropped(read);
            let all: Vec<u32> = found.iter().map(|(slot, _)| *slot).collect();
            // If a function of the user panics that did not do so before, none of them is right.
            let others = caught(|| self.inlet.take_read(hash, found)).unwrap_or(all);
            missing.extend(others);
            if !missing.is_empty() {
                self.report_failure("messages that wait were not there when they were read again");
                let missing = self
                    .inlet
                    .extract(|slot| slot.is_some_and(|slot| missing.contains(&slot)));
                self.give_back(missing).await;
            }
        }
    }

    /// Hands messages back that are in no lane.
    async fn give_back(&mut self, slots: Vec<u32>) {
        let guard = self.guard.clone();
        let settled = slots.into_iter().map(|slot| {
            let (attempts, _) = self.sources().before_start(self.at(slot));
            let returned = Outcome::Returned { attempts };
            if let Some(guard) = &guard {
                guard.settles(slot, returned);
            }
            (slot, returned)
        });
        let settled: Vec<_> = settled.collect();
        self.settle(settled.into_iter()).await;
    }

    async fn settle(&mut self, settled: impl Iterator<Item = (u32, Outcome)>) {
        let ends = matches!(self.phase, Phase::Stopping { .. });
        let is_open = self.is_open();
        let mut counts = Counts::default();
        let mut told = std::mem::take(&mut self.told);
        let mut unplaced = Ok(());
        for (slot, mut outcome) in settled {
            let Some(held) = self.held.remove(slot) else {
                debug_assert!(false, "a message settles once");
                continue;
            };
            if held.marked {
                let at = self.at(slot);
                let before = self.sources().set_slot(at, 0);
                outcome = after(before, outcome);
            }
            unplaced = unplaced.and(caught(|| self.inlet.settled(slot)));
            let is_over = held.standing == Standing::Over || !is_open;
            counts.count(outcome, is_over, ends || held.standing != Standing::Live);
            if !is_over {
                told.push(Settlement::new(held.position, outcome));
            }
        }
        if !self.is_unconfirmed && !told.is_empty() {
            self.is_unconfirmed = true;
            self.confirm_at = later(clock::now(), self.settings.confirm_every);
        }
        self.unconfirmed += counts.acked;
        self.publish(|stats| counts.add_to(stats));
        let mut failed = None;
        if !told.is_empty() {
            let limit = self.settings.stall_after;
            failed = call(limit, self.source.settle(&told)).await.err();
        }
        told.clear();
        self.told = told;
        // As in `place`.
        let panic = unplaced.err().map(panicked);
        let panic = panic.map(|text| Trouble::Failed(SourceError::failed(text)));
        match failed.or(panic) {
            Some(error) => self.restart(error),
            None => self.release_finished().await,
        }
    }

    /// Has the source keep a dead letter.
    async fn keep_letter(&mut self, letter: LetterRequest) {
        let LetterRequest {
            slot,
            attempts,
            cause,
            why,
            done,
        } = letter;
        let live = self
            .held
            .get(slot)
            .filter(|held| held.standing != Standing::Over && self.is_open());
        let kept = match live {
            None => Err("the generation of the message is over".to_owned()),
            Some(held) => {
                let letter = SourceLetter::new(held.position.clone(), attempts, cause, why);
                let limit = self.settings.stall_after;
                let kept = call(limit, self.source.dead_letter(letter)).await;
                let why = kept.as_ref().err().map(Trouble::to_string);
                if let Err(late @ Trouble::Late(_)) = kept {
                    self.restart(late);
                }
                why.map_or(Ok(()), Err)
            }
        };
        // If the attempt is gone, so is its generation.
        let _ = done.send(kept);
    }

    /// Takes messages of these generations back.
    async fn revoke(&mut self, generations: Vec<Generation>, is_told: bool) {
        // What has just been handed over is theirs as well.
        self.take_in().await;
        let standing = match is_told {
            true => Standing::Revoked,
            false => Standing::Over,
        };
        for (_, held) in self.held.iter_mut() {
            let is_later = held.standing == Standing::Live || standing == Standing::Over;
            if generations.contains(&held.generation) && is_later {
                held.standing = standing;
            }
        }
        if !is_told {
            // What is lost while it is being revoked is not waited for any more.
            for revocation in &mut self.revocations {
                let theirs = revocation.generations.iter().flatten();
                let are_lost = theirs
                    .into_iter()
                    .all(|theirs| generations.contains(theirs));
                revocation.is_told &= !are_lost;
            }
        }
        self.begin_revocation(Some(generations), is_told);
        self.give_back_unplaced().await;
        self.release_finished().await;
    }

    /// The source has failed: every generation of it is over, and it is opened again.
    fn restart(&mut self, trouble: Trouble) {
        if let Trouble::Late(lasted) = trouble {
            self.notify(SourceEvent::Stalled { lasted });
        }
        self.report_failure(&trouble.to_string());
        let handed_over = self.deliveries.len() as u64;
        dropped(self.deliveries.take());
        let unconfirmed = std::mem::take(&mut self.unconfirmed);
        self.is_unconfirmed = false;
        self.publish(|stats| {
            stats.received += handed_over;
            stats.given_back += handed_over + unconfirmed;
            stats.acked -= unconfirmed;
            stats.restarts += 1;
        });
        for (_, held) in self.held.iter_mut() {
            held.standing = Standing::Over;
        }
        for revocation in &mut self.revocations {
            revocation.is_told = false;
        }
        self.begin_revocation(None, false);
        if let Phase::Stopping { is_open, .. } = &mut self.phase {
            *is_open = false;
        } else {
            self.open_later();
            self.publish_state();
        }
    }

    fn begin_revocation(&mut self, generations: Option<Vec<Generation>>, is_told: bool) {
        let engine = &self.inlet.dispatcher.engine;
        let guard = engine.guard_starts();
        let within = self.settings.revoke_within;
        let revocation = Revocation::new(generations, is_told, clock::now(), within, guard);
        let slots = revocation.slots(&self.held);
        self.notify(SourceEvent::Revoked {
            messages: slots.len(),
        });
        self.take_back(&slots, Revoked::Unstarted);
        self.revocations.push(revocation);
        self.has_unplaced = true;
    }

    /// Marks messages as taken back, and looks for those that have not started.
    fn take_back(&mut self, slots: &[u32], how: Revoked) {
        for slot in slots {
            if let Some(held) = self.held.get_mut(*slot) {
                held.marked = true;
            }
        }
        let source = self.registration.source;
        self.sources().revoke(source, slots, how);
        self.inlet.dispatcher.engine.sweep_revoked(source);
    }

    /// Gives back what is taken back and in no lane yet.
    async fn give_back_unplaced(&mut self) {
        self.has_unplaced = false;
        let held = &self.held;
        let ends = matches!(self.phase, Phase::Stopping { handed_back, .. } if handed_back);
        let is_revoked = |slot: Option<u32>| match slot {
            Some(slot) => held
                .get(slot)
                .is_some_and(|held| held.standing != Standing::Live),
            // It was settled before it could run, and is dropped.
            None => ends,
        };
        let mut slots = self.inlet.extract(is_revoked);
        let unplaceable = self
            .unplaceable
            .extract_if(.., |(_, slot)| is_revoked(Some(*slot)));
        slots.extend(unplaceable.map(|(_, slot)| slot));
        if !slots.is_empty() {
            Box::pin(self.give_back(slots)).await;
        }
    }

    /// The source wants these back, if they have not started.
    async fn recall(&mut self, positions: &[S::Position]) {
        self.take_in().await;
        let recalled = |held: &Held<S::Position>| {
            held.standing == Standing::Live && positions.contains(&held.position)
        };
        let slots: Vec<u32> = self
            .held
            .iter()
            .filter(|(_, held)| recalled(held))
            .map(|(slot, _)| slot)
            .collect();
        let unplaced = self
            .inlet
            .extract(|slot| slot.is_some_and(|slot| slots.contains(&slot)));
        let _guard = self.inlet.dispatcher.engine.guard_starts();
        self.take_back(&slots, Revoked::Unstarted);
        if !unplaced.is_empty() {
            self.give_back(unplaced).await;
        }
    }

    /// Lets the source go on with the revocations of which nothing is left.
    async fn release_finished(&mut self) {
        let mut at = 0;
        while at < self.revocations.len() {
            if !self.revocations[at].slots(&self.held).is_empty() {
                at += 1;
                continue;
            }
            let revocation = self.revocations.remove(at);
            let Some(generations) = revocation.generations.filter(|_| revocation.is_told) else {
                continue;
            };
            let limit = self.settings.stall_after;
            let released = async {
                call(limit, self.source.confirm()).await?;
                call(limit, self.source.release(&generations)).await
            };
            match released.await {
                Ok(()) => self.confirmed(),
                Err(error) => self.restart(error),
            }
        }
    }

    /// Does what is due by the clock.
    async fn follow_time(&mut self) {
        let now = clock::now();
        self.follow_revocations(now).await;
        let stall_after = self.settings.stall_after;
        if self.phase == Phase::Running
            && stall_after < FAR
            && now >= later(self.heard_at, stall_after)
        {
            let lasted = now.saturating_duration_since(self.heard_at);
            return self.restart(Trouble::Late(lasted));
        }
        if let Phase::Stopping {
            hand_back_at: Some(at),
            handed_back: false,
            is_open,
        } = self.phase
            && now >= at
        {
            self.phase = Phase::Stopping {
                hand_back_at: None,
                handed_back: true,
                is_open,
            };
            for (_, held) in self.held.iter_mut() {
                if held.standing == Standing::Live {
                    held.standing = Standing::Revoked;
                }
            }
            self.begin_revocation(None, false);
            self.give_back_unplaced().await;
        }
        let due = self.unplaceable.iter().take_while(|(at, _)| *at <= now);
        let due: Vec<u32> = due.map(|(_, slot)| *slot).collect();
        if !due.is_empty() {
            self.unplaceable.drain(..due.len());
            self.give_back(due).await;
        }
        let failed = self.serve_source(now).await;
        if let Err(error) = failed {
            self.restart(error);
        }
    }

    /// Extends leases, confirms acks.
    async fn serve_source(&mut self, now: Instant) -> Result<(), Trouble> {
        let limit = self.settings.stall_after;
        if let Some(lease) = self.lease()
            && self.is_open()
            && now >= self.extend_at
        {
            self.extend_at = later(now, lease / 3);
            // Also what is revoked, as long as it is here.
            let ours = self.held.iter();
            let ours = ours.filter(|(_, held)| held.standing != Standing::Over);
            let ours: Vec<_> = ours.map(|(_, held)| held.position.clone()).collect();
            if !ours.is_empty() {
                call(limit, self.source.extend(&ours)).await?;
            }
        }
        if self.is_unconfirmed && self.is_open() && now >= self.confirm_at {
            call(limit, self.source.confirm()).await?;
            self.confirmed();
        }
        Ok(())
    }

    /// Everything that was told is confirmed.
    fn confirmed(&mut self) {
        self.unconfirmed = 0;
        self.is_unconfirmed = false;
        self.failures = 0;
    }

    async fn follow_revocations(&mut self, now: Instant) {
        let mut at = 0;
        while at < self.revocations.len() {
            let due = self.revocations[at].due(now);
            let slots = match due {
                Due::Nothing => Vec::new(),
                _ => self.revocations[at].slots(&self.held),
            };
            match due {
                Due::Nothing => {}
                Due::Sweep => self.take_back(&slots, Revoked::Unstarted),
                Due::Drop => self.take_back(&slots, Revoked::InFlight),
                Due::GiveUp => {
                    // Handlers that block their threads. Their outcomes come, and are not told.
                    let messages = slots.len();
                    for slot in slots {
                        if let Some(held) = self.held.get_mut(slot) {
                            held.standing = Standing::Over;
                        }
                    }
                    self.notify(SourceEvent::Overdue { messages });
                    self.release_overdue(at).await;
                }
            }
            at += 1;
        }
        self.release_finished().await;
    }

    /// Lets the source go on although attempts of this revocation have not ended.
    ///
    /// The revocation itself stays until they have ended: what of it has not started must not start
    /// now.
    async fn release_overdue(&mut self, at: usize) {
        let revocation = &mut self.revocations[at];
        let is_told = std::mem::take(&mut revocation.is_told);
        if let Some(generations) = revocation.generations.clone().filter(|_| is_told) {
            let limit = self.settings.stall_after;
            if let Err(error) = call(limit, self.source.release(&generations)).await {
                self.restart(error);
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Pause => {
                self.paused = true;
                self.publish_state();
            }
            Command::Resume => {
                self.paused = false;
                self.publish_state();
            }
            Command::Stop(at) => self.stop_at(at),
        }
    }

    /// Takes nothing more in, and hands back at this time what has not started.
    fn stop_at(&mut self, at: Option<Instant>) {
        let is_open = self.is_open();
        match &mut self.phase {
            Phase::Stopping { hand_back_at, .. } => {
                // The earliest counts.
                *hand_back_at =
                    hand_back_at.map_or(at, |before| Some(at.map_or(before, |at| at.min(before))));
            }
            phase => {
                *phase = Phase::Stopping {
                    hand_back_at: at,
                    handed_back: false,
                    is_open,
                };
                self.publish_state();
            }
        }
    }

    fn publish_state(&self) {
        let state = match self.phase {
            Phase::Stopping { .. } => IntakeState::Stopping,
            Phase::Opening(..) => IntakeState::Opening,
            Phase::Running if self.paused => IntakeState::Paused,
            Phase::Running => IntakeState::Running,
        };
        self.publish(|stats| stats.state = state);
    }

    /// The dispatcher takes no more messages: what is in no lane goes back.
    async fn refuse_if_closed(&mut self) {
        if !self.inlet.is_closed() {
            return;
        }
        if self.phase == Phase::Running {
            self.stop_at(None);
        }
        let mut slots = self.inlet.extract(|_| true);
        slots.extend(self.unplaceable.drain(..).map(|(_, slot)| slot));
        if !slots.is_empty() {
            self.give_back(slots).await;
        }
    }

    /// Nothing is left, or the dispatcher has ended: confirms what was told, and closes the source.
    async fn finish(&mut self) {
        // What was lost with a panic, and what a closed dispatcher never took.
        let left: Vec<u32> = self.held.iter().map(|(slot, _)| slot).collect();
        self.phase = Phase::Stopping {
            hand_back_at: None,
            handed_back: true,
            is_open: self.is_open(),
        };
        self.give_back(left).await;
        let limit = self.settings.stall_after;
        let mut confirmed = self.is_open();
        if confirmed {
            if let Err(error) = call(limit, self.source.confirm()).await {
                self.report_failure(&error.to_string());
                confirmed = false;
            }
            if let Err(error) = call(limit, self.source.close()).await {
                self.report_failure(&error.to_string());
            }
        }
        self.notify(SourceEvent::Ended);
        self.control.end(confirmed, self.unconfirmed);
    }

    fn at(&self, slot: u32) -> SourceSlot {
        let source = self.registration.source;
        SourceSlot { source, slot }
    }

    fn sources(&self) -> &crate::engine::Sources {
        &self.inlet.dispatcher.engine.sources
    }

    fn publish(&self, change: impl FnOnce(&mut IntakeStats)) {
        let aside = &self.inlet.aside;
        self.control.publish(|stats| {
            change(stats);
            stats.held = self.held.len();
            (stats.aside, stats.deferred) = (aside.len(), aside.deferred());
        });
    }

    /// Publishes how many messages wait beside full lanes, if that has changed.
    fn publish_aside(&mut self) {
        let aside = &self.inlet.aside;
        let aside = (aside.len(), aside.deferred());
        if std::mem::replace(&mut self.seen_aside, aside) != aside {
            self.publish(|_| {});
        }
    }

    fn notify(&self, what: SourceEvent) {
        self.inlet.dispatcher.engine.notify_source(&self.name, what);
    }
}

impl<K, M, O, E, S: Source<Message = M>> Drop for Driver<K, M, O, E, S> {
    fn drop(&mut self) {
        // The runtime stops, or this task has panicked.
        self.control.end(false, self.unconfirmed);
    }
}

/// What settled in one go.
#[derive(Default)]
struct Counts {
    acked: u64,
    dead_lettered: u64,
    nacked: u64,
    given_back: u64,
    stale: u64,
}

impl Counts {
    /// Counts an outcome. `is_over`: its generation is, and the source is not told. `ends`: the
    /// generation ends, or the intake.
    #[inline]
    fn count(&mut self, outcome: Outcome, is_over: bool, ends: bool) {
        match outcome {
            _ if is_over => {
                self.given_back += 1;
                self.stale += u64::from(outcome.is_ack());
            }
            Outcome::Done | Outcome::Discarded => self.acked += 1,
            Outcome::DeadLettered => self.dead_lettered += 1,
            Outcome::Returned { .. } if ends => self.given_back += 1,
            Outcome::Returned { .. } => self.nacked += 1,
        }
    }

    fn add_to(&self, stats: &mut IntakeStats) {
        stats.acked += self.acked;
        stats.dead_lettered += self.dead_lettered;
        stats.nacked += self.nacked;
        stats.given_back += self.given_back;
        stats.stale += self.stale;
    }
}

/// Calls the source. A panic counts as a failure, and so does a call that takes too long.
async fn call<R>(
    limit: Duration,
    call: impl Future<Output = Result<R, SourceError>>,
) -> Result<R, Trouble> {
    let mut alarm = alarm_after(limit);
    let mut call = pin!(AssertUnwindSafe(call).catch_unwind());
    poll_fn(|cx| match call.as_mut().poll(cx) {
        Poll::Ready(Ok(answer)) => Poll::Ready(answer.map_err(Trouble::Failed)),
        Poll::Ready(Err(_)) => {
            let error = SourceError::failed("a call of it panicked");
            Poll::Ready(Err(Trouble::Failed(error)))
        }
        Poll::Pending => {
            let Some(alarm) = &mut alarm else {
                return Poll::Pending;
            };
            let late = alarm.poll(cx);
            late.map(|()| Err(Trouble::Late(limit)))
        }
    })
    .await
}

/// An alarm for the end of a call, unless it may take for ever.
fn alarm_after(limit: Duration) -> Option<Alarm> {
    (limit < FAR).then(|| Alarm::new(later(clock::now(), limit)))
}

fn panicked(text: String) -> String {
    format!("it panicked: {text}")
}

/// A time that is later, and exists.
fn later(from: Instant, by: Duration) -> Instant {
    from.checked_add(by.min(FAR)).unwrap_or(from)
}
