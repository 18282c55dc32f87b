//! The loop: what wakes the driver, and what it does then.

use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use keylane_rt::clock::{self, Alarm, Instant};
use keylane_rt::unwind::caught;
use keylane_rt::{self as rt, Arc};
use keylane_source::{Received, Source, SourceError};

use super::super::control::Command;
use super::super::held::GenerationState;
use super::call::{FAR, Trouble, later, panicked};
use super::state::{Driver, Phase};
use crate::engine::Revoked;

/// With less than this share of `held` free, what settles is read in batches of that share: the
/// source could hand over no more than what has settled, and each turn costs as much as several
/// messages.
const SHARE: usize = 16;

/// How long a smaller batch may take.
const BATCH_WITHIN: Duration = Duration::from_millis(1);

/// What woke the driver.
enum Wakeup<P> {
    Command(Command),
    /// Every `Intake` is gone, or the dispatcher has ended.
    Ended,
    News,
    Room,
    Time,
    Received(Result<Received<P>, SourceError>),
}

impl<K, M, O, E, S> Driver<K, M, O, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
    S: Source<Message = M>,
{
    pub(in super::super) async fn run(mut self) {
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
                Wakeup::Command(command) => self.obey(command),
                Wakeup::Ended => break,
                Wakeup::News => self.settle_news().await,
                Wakeup::Room => {}
                Wakeup::Time => self.follow_time().await,
                Wakeup::Received(received) => self.follow(received).await,
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
        for slot in self.inlet.aside.take_deferred() {
            if let Some(held) = self.held.get_mut(slot) {
                self.held_bytes -= std::mem::take(&mut held.bytes) as usize;
            }
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
    async fn next_turn(&mut self) -> Wakeup<S::Position> {
        let now = clock::now();
        // The source cannot say anything while another call of it runs.
        let busy = now.saturating_duration_since(self.busy_since);
        self.heard_at = later(self.heard_at, busy).min(now);
        // While we stop as well, without room: a generation may end.
        let receives = self.is_open() && !self.ended;
        let takes_in = self.phase == Phase::Running && !self.inlet.is_closed();
        let room = match takes_in && !self.paused {
            false => 0,
            // What is settled before it runs is not held.
            true => {
                let here = self.held.len().max(self.inlet.len());
                let here = here.saturating_sub(self.inlet.aside.deferred());
                self.most_held.saturating_sub(here)
            }
        };
        let room_bytes = self.settings.held_bytes.saturating_sub(self.held_bytes);
        let room = if room_bytes == 0 { 0 } else { room };
        let batch = if takes_in { self.most_held / SHARE } else { 1 };
        let batch_at = later(self.settled_at, BATCH_WITHIN);
        let is_in_batches =
            room < batch && now < batch_at && !self.paused && self.revocations.is_empty();
        let least = if is_in_batches { batch } else { 1 };
        let batch_at = is_in_batches.then_some(batch_at);
        let mut alarm = self.wake_at().into_iter().chain(batch_at).min().map(|at| {
            let alarm = self.alarm.get_or_insert_with(|| Alarm::new(at));
            alarm.reset(at);
            alarm
        });
        let until = later(self.heard_at, self.settings.stall_after / 2).into();
        self.deliveries.make_room(room, room_bytes, until);
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
                return Poll::Ready(Wakeup::Command(command));
            }
            let mut poll_source = |cx: &mut Context<'_>| {
                if !receives {
                    return Poll::Pending;
                }
                match caught(|| receive.as_mut().poll(cx)) {
                    Ok(Poll::Pending) => Poll::Pending,
                    Ok(Poll::Ready(received)) => Poll::Ready(Wakeup::Received(received)),
                    Err(text) => {
                        Poll::Ready(Wakeup::Received(Err(SourceError::failed(panicked(text)))))
                    }
                }
            };
            if source_first && let Poll::Ready(turn) = poll_source(cx) {
                return Poll::Ready(turn);
            }
            let mut poll_news = |least, cx: &mut Context<'_>| {
                let news = engine
                    .sources
                    .poll_news(source, least, settled, letters, cx);
                news.map(|()| Wakeup::News)
            };
            if let Poll::Ready(turn) = poll_news(least, cx) {
                return Poll::Ready(turn);
            }
            match caught(|| inlet.poll_room(cx)) {
                Ok(Poll::Pending) if !is_behind => {}
                Ok(_) => return Poll::Ready(Wakeup::Room),
                // As in `place`.
                Err(text) => {
                    let error = SourceError::failed(panicked(text));
                    return Poll::Ready(Wakeup::Received(Err(error)));
                }
            }
            if !source_first && let Poll::Ready(turn) = poll_source(cx) {
                return Poll::Ready(turn);
            }
            if alarm
                .as_mut()
                .is_some_and(|alarm| alarm.poll(cx).is_ready())
            {
                return Poll::Ready(Wakeup::Time);
            }
            if ended.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // What settled before the end is read.
            match poll_news(1, cx) {
                Poll::Pending => Poll::Ready(Wakeup::Ended),
                news => news,
            }
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
        if let Some(at) = self.parts.wake_at() {
            by(at);
        }
        first
    }

    /// Follows what the source has said.
    async fn follow(&mut self, received: Result<Received<S::Position>, SourceError>) {
        // A part that fails says nothing about the others: they may be silent for as long.
        if !matches!(received, Ok(Received::Messages) if self.deliveries.is_news_alone()) {
            self.heard_at = clock::now();
        }
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

    /// Does what is due by the clock.
    async fn follow_time(&mut self) {
        let now = clock::now();
        self.remind_of_parts(now);
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
                if held.standing == GenerationState::Live {
                    held.standing = GenerationState::Revoked;
                }
            }
            self.begin_revocation(None, false, Revoked::Unstarted);
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
}
