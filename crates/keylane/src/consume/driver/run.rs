//! The loop: what wakes the driver, and what it does then.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use keylane_rt as rt;
use keylane_rt::clock::{self, Alarm, Instant};
use keylane_source::{Received, Source, SourceError};

use super::core::Trouble;
use super::task::Driver;
use super::wait::{Wakeup, poll_room, poll_source};
use crate::types::{Error, Key, Message, Output};

impl<K: Key, M: Message, O: Output, E: Error, S: Source<Message = M>> Driver<K, M, O, E, S> {
    pub(in super::super) async fn run(mut self) {
        loop {
            self.open_if_due().await;
            self.take_in().await;
            self.read_deferred().await;
            self.place().await;
            if self.machine.is_over() {
                break;
            }
            if self.machine.is_behind {
                rt::yield_now().await;
            }
            let wakeup = self.wait().await;
            let now = clock::now();
            self.machine.core.woke(now);
            match wakeup {
                Wakeup::Command(command) => self.machine.core.command(command),
                Wakeup::Ended => break,
                Wakeup::News => self.read_news(now).await,
                Wakeup::Room => {}
                Wakeup::Time => self.machine.core.timer(now),
                Wakeup::Received(received) => self.follow(received, now).await,
            }
            self.carry_out().await;
            rt::consume_budget().await;
        }
        self.machine.core.finish(clock::now());
        self.carry_out().await;
        self.machine.end();
    }

    /// Opens the source if it is time. A closed dispatcher takes nothing.
    async fn open_if_due(&mut self) {
        let core = &mut self.machine.core;
        match self.machine.inlet.is_closed() {
            true => core.closed(clock::now()),
            false if core.phase().is_open() => return,
            false => core.open_if_due(clock::now()),
        }
        self.carry_out().await;
    }

    /// Places what there is room for. What a closed dispatcher does not take goes back.
    async fn place(&mut self) {
        self.machine.place();
        self.machine.publish_aside();
        if self.machine.inlet.is_closed() {
            self.machine.core.closed(clock::now());
        }
        self.carry_out().await;
    }

    /// Waits for the next thing to do.
    async fn wait(&mut self) -> Wakeup<S::Position> {
        let turn = self.machine.waits(clock::now());
        let mut alarm = turn.wake_at.map(|at| {
            let alarm = self.alarm.get_or_insert_with(|| Alarm::new(at));
            alarm.reset(at);
            alarm
        });
        self.source_first = !self.source_first;
        let source_first = self.source_first;
        let news = &mut self.news;
        let (machine, commands) = (&mut self.machine, &mut self.commands);
        let (inlet, port, is_behind) = (&mut machine.inlet, &machine.port, machine.is_behind);
        let deliveries = &mut machine.deliveries;
        deliveries.make_room(turn.room, turn.room_bytes, turn.idle_at.into());
        let mut receive = pin!(self.source.receive(deliveries));
        let mut ended = pin!(port.ended());
        poll_fn(|cx| {
            if let Poll::Ready(Some(command)) = commands.poll_recv(cx) {
                return Poll::Ready(Wakeup::Command(command));
            }
            if source_first && turn.receives {
                let received = poll_source(receive.as_mut(), cx);
                if received.is_ready() {
                    return received;
                }
            }
            let mut poll_news = |least, cx: &mut _| port.poll_news(least, news, cx);
            if poll_news(turn.least, cx).is_ready() {
                return Poll::Ready(Wakeup::News);
            }
            let room = poll_room(is_behind, || inlet.poll_room(cx));
            if room.is_ready() {
                return room;
            }
            if !source_first && turn.receives {
                let received = poll_source(receive.as_mut(), cx);
                if received.is_ready() {
                    return received;
                }
            }
            let alarm = alarm.as_mut();
            if alarm.is_some_and(|alarm| alarm.poll(cx).is_ready()) {
                return Poll::Ready(Wakeup::Time);
            }
            if ended.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // What settled before the end is read.
            Poll::Ready(match poll_news(1, cx) {
                Poll::Pending => Wakeup::Ended,
                Poll::Ready(()) => Wakeup::News,
            })
        })
        .await
    }

    /// Reads what has settled, and letters.
    async fn read_news(&mut self, now: Instant) {
        // First: a message that has settled has no position any more.
        let asked = self.machine.port.take_asked();
        self.tell_origins(asked.origins);
        self.write_lines();
        self.machine.settle(&mut self.news.settled, now);
        // Last: a message that has settled holds nothing back.
        self.tell_fronts(asked.fronts);
        self.carry_out().await;
        for letter in std::mem::take(&mut self.news.letters) {
            self.keep_letter(letter).await;
        }
    }

    /// Follows what the source has said.
    async fn follow(&mut self, received: Result<Received<S::Position>, SourceError>, now: Instant) {
        // A part that fails says nothing about the others: they may be silent for as long.
        if !matches!(received, Ok(Received::Messages) if self.machine.deliveries.is_news_alone()) {
            self.machine.core.heard(now);
        }
        if matches!(received, Ok(Received::Messages)) && self.machine.deliveries.is_empty() {
            rt::yield_now().await;
        }
        // What was pushed before a failure is of a generation that is over. What was handed over
        // before anything else is of what it is about.
        if received.is_ok() {
            self.take_in().await;
        }
        let (core, now) = (&mut self.machine.core, clock::now());
        match received {
            Ok(Received::Messages) => {}
            Ok(Received::Idle) => core.idle(),
            Ok(Received::Revoked(generations)) => core.revoked(generations, now),
            Ok(Received::Lost(generations)) => core.lost(generations, now),
            Ok(Received::Recalled(positions)) => core.recalled(&positions, now),
            Ok(Received::End) => core.ended(),
            Err(error) => core.failed(&Trouble::Failed(error), now),
        }
    }
}
