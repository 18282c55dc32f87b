//! The calls of the inner source.

use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::BuildHasher;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use keylane_rt::clock::{self, Alarm, Instant};
use keylane_rt::unwind::dropped;

use super::decoder::Decoder;
use super::delivery::{News, accepted};
use super::guard::RawGuard;
use super::inner::Called;
use super::letter::RawLetterSink;
use super::position::DecodedPosition;
use super::table::Table;
use crate::BoxError;
use crate::{
    Decoded, Deliveries, Delivery, Describer, Features, Generation, RawMessage, Received,
    Settlement, Source, SourceError, SourceLetter, StartGuard,
};

/// What ends a wait.
enum Waited<P> {
    Received(Result<Received<P>, SourceError>),
    Letter(News),
    /// Leases are to be extended, or the wait is over.
    Time,
}

impl<S, M, F> Decoder<S, S::Position, M, F>
where
    S: Source<Message = RawMessage>,
{
    /// Waits for the call of the inner source that is under way.
    async fn finish_call(&mut self) -> Result<(), SourceError> {
        match self.inner.finished().await {
            None => Ok(()),
            Some(Called::Told(told)) => told,
            Some(Called::Letter(key, answer)) => {
                self.answered(key, answer);
                Ok(())
            }
            Some(Called::Pending(key)) => {
                self.offer_later(key);
                Ok(())
            }
        }
    }

    /// Calls the inner source if there is something to say to it. Whether a call has begun.
    fn begin_call(&mut self, now: Instant) -> bool {
        if !self.told.is_empty() {
            let told = std::mem::take(&mut self.told);
            self.inner
                .begin(|mut source| async move { Called::Told(source.settle(&told).await) });
            return true;
        }
        if self.extend_at().is_some_and(|at| at <= now) {
            self.extended_at = now;
            let held: Vec<_> = self.waiting().cloned().collect();
            self.inner
                .begin(|mut source| async move { Called::Told(source.extend(&held).await) });
            return true;
        }
        while let Some(key) = self.for_inner.pop_front() {
            if let Some(letter) = self.table.delivering(key) {
                let letter = letter.of_source();
                self.inner.begin(move |mut source| async move {
                    let mut is_pending = false;
                    let kept = accepted(async {
                        let kept = source.dead_letter(letter).await;
                        is_pending = kept.as_ref().is_err_and(SourceError::is_pending);
                        kept.map_err(BoxError::from)
                    })
                    .await;
                    match is_pending {
                        true => Called::Pending(key),
                        false => Called::Letter(key, kept),
                    }
                });
                return true;
            }
        }
        false
    }

    /// Waits for the inner source, for letters, or for the time to extend leases.
    async fn wait(
        &mut self,
        (room, room_bytes): (usize, usize),
        until: tokio::time::Instant,
    ) -> Waited<S::Position> {
        let extend_at = self.extend_at();
        // Without the inner source, this is what keeps the time.
        let until_at = self.ended.then(|| until.into_std());
        let wake_at = extend_at.into_iter().chain(until_at).min();
        let mut alarm = wake_at.map(Alarm::new);
        let room = room.saturating_sub(self.count_waiting());
        self.received.make_room(room, room_bytes, until);
        let letters = &mut self.letters;
        let (inner, received) = (&mut self.inner, &mut self.received);
        let receive = (!self.ended).then(|| inner.source().receive(received));
        let mut receive = pin!(receive);
        poll_fn(|cx| {
            if let Poll::Ready(news) = letters.poll(cx) {
                return Poll::Ready(Waited::Letter(news));
            }
            if let Some(receive) = receive.as_mut().as_pin_mut()
                && let Poll::Ready(received) = receive.poll(cx)
            {
                return Poll::Ready(Waited::Received(received));
            }
            match &mut alarm {
                Some(alarm) => alarm.poll(cx).map(|()| Waited::Time),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Ends what is under way, and tells the inner source what is not told yet.
    async fn tell(&mut self) -> Result<&mut S, SourceError> {
        self.finish_call().await?;
        let told = std::mem::take(&mut self.told);
        if !told.is_empty() {
            self.inner.source().settle(&told).await?;
        }
        Ok(self.inner.source())
    }
}

impl<S: Source<Message = RawMessage>, M, F> Decoded<S, M, F> {
    /// Sets the destination of messages that cannot be decoded.
    #[must_use]
    pub fn letters(mut self, sink: impl RawLetterSink + 'static) -> Self {
        self.decoder.letters.give_to(Arc::new(sink));
        self
    }
}

impl<S, M, F> Source for Decoded<S, M, F>
where
    S: Source<Message = RawMessage>,
    F: Fn(&RawMessage) -> Result<M, BoxError> + Send + 'static,
    M: Send + Sync + 'static,
{
    type Message = M;
    type Position = DecodedPosition<S::Position>;

    fn name(&self) -> String {
        self.decoder.name.clone()
    }

    fn describer(&self) -> Describer<Self::Position> {
        let inner = self.decoder.describer.clone();
        inner.inside(DecodedPosition::inner)
    }

    fn features(&self) -> Features {
        self.decoder.features
    }

    fn validate(&self) -> Result<(), SourceError> {
        if !self.decoder.letters.has_sink() && !self.decoder.features.keeps_dead_letters() {
            return Err(SourceError::failed(
                "the source keeps no dead letters, so messages that cannot be decoded need a \
                 sink: add `.letters(sink)` to `.decode(..)`",
            ));
        }
        self.decoder.inner.look(S::validate).unwrap_or(Ok(()))
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        let decoder = &mut self.decoder;
        // All generations are over, and what was received in them comes again.
        decoder.inner.interrupt();
        decoder.letters.clear();
        dropped(std::mem::replace(&mut decoder.table, Table::new()));
        dropped((
            decoder.received.take(),
            std::mem::take(&mut decoder.arrivals),
        ));
        decoder.for_inner.clear();
        decoder.told.clear();
        decoder.extended_at = clock::now();
        decoder.ended = false;
        decoder.inner.source().open().await
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<M, Self::Position>,
    ) -> Result<Received<Self::Position>, SourceError> {
        let decoder = &mut self.decoder;
        loop {
            decoder.finish_call().await?;
            decoder.hand_over(into).await;
            if !into.is_empty() {
                return Ok(Received::Messages);
            }
            let now = clock::now();
            if decoder.begin_call(now) {
                continue;
            }
            if decoder.ended && decoder.count_waiting() == 0 {
                return Ok(Received::End);
            }
            // From here on no await may come before what was received is noted.
            let received = match decoder
                .wait((into.room(), into.room_bytes()), into.until())
                .await
            {
                Waited::Letter(News::Answered(key, answer)) => {
                    decoder.answered(key, answer);
                    continue;
                }
                Waited::Letter(News::Due(key)) => {
                    decoder.for_inner.push_back(key);
                    continue;
                }
                Waited::Time if decoder.ended && clock::now() >= into.until().into_std() => {
                    return Ok(Received::Idle);
                }
                Waited::Time => continue,
                Waited::Received(received) => received?,
            };
            match received {
                Received::Messages => {
                    decoder.hand_over(into).await;
                    return Ok(Received::Messages);
                }
                Received::Idle => return Ok(Received::Idle),
                Received::Revoked(generations) => {
                    decoder.revoke(&generations, true);
                    return Ok(Received::Revoked(generations));
                }
                Received::Lost(generations) => {
                    decoder.revoke(&generations, false);
                    return Ok(Received::Lost(generations));
                }
                Received::Recalled(positions) => {
                    return Ok(Received::Recalled(decoder.recall(positions)));
                }
                Received::End => decoder.ended = true,
            }
        }
    }

    async fn settle(&mut self, settled: &[Settlement<Self::Position>]) -> Result<(), SourceError> {
        self.decoder.finish_call().await?;
        for Settlement { position, outcome } in settled {
            if let Some(key) = position.key {
                self.decoder.table.settled(key, position.generation);
            }
            let position = position.inner.clone();
            self.decoder.told.push(Settlement::new(position, *outcome));
        }
        self.decoder.tell().await?;
        Ok(())
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.decoder.tell().await?.confirm().await
    }

    async fn release(&mut self, generations: &[Generation]) -> Result<(), SourceError> {
        self.decoder.tell().await?;
        // Attempts that did not end in time.
        self.decoder.table.forget(generations);
        self.decoder.inner.source().release(generations).await
    }

    async fn extend(&mut self, held: &[Self::Position]) -> Result<(), SourceError> {
        self.decoder.finish_call().await?;
        self.decoder.arrivals.extend(self.decoder.received.take());
        let held = held.iter().map(|position| &position.inner);
        let held: Vec<_> = held.chain(self.decoder.waiting()).cloned().collect();
        self.decoder.extended_at = clock::now();
        self.decoder.inner.source().extend(&held).await
    }

    async fn reread(
        &mut self,
        positions: &[Self::Position],
        into: &mut Deliveries<M, Self::Position>,
    ) -> Result<(), SourceError> {
        let decoder = &mut self.decoder;
        decoder.finish_call().await?;
        let inner: Vec<_> = positions.iter().map(|at| at.inner.clone()).collect();
        let mut raw = Deliveries::new(into.room(), into.until());
        decoder.inner.source().reread(&inner, &mut raw).await?;
        for delivery in raw.take() {
            // Opened again, the source hands it over once more, and it gets its place then.
            let decoded = decoder.decoded(&delivery.message);
            let message = decoded.map_err(SourceError::failed)?;
            let key = delivery.message.key.as_ref();
            let position = DecodedPosition {
                key: key.map(|key| decoder.hasher.hash_one(key)),
                inner: delivery.position,
                generation: delivery.generation,
            };
            let decoded = Delivery::new(message, position);
            let decoded = decoded.generation(delivery.generation);
            let decoded = decoded.attempts(delivery.attempts);
            into.push(decoded.bytes(delivery.bytes as usize));
        }
        Ok(())
    }

    async fn dead_letter(
        &mut self,
        letter: SourceLetter<Self::Position>,
    ) -> Result<(), SourceError> {
        self.decoder.finish_call().await?;
        let SourceLetter {
            position,
            attempts,
            cause,
            why,
        } = letter;
        let letter = SourceLetter::new(position.inner, attempts, cause, why);
        self.decoder.inner.source().dead_letter(letter).await
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<Self::Position>>> {
        let guard = self.decoder.inner.look(S::start_guard)??;
        Some(Arc::new(RawGuard(guard)))
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        let decoder = &mut self.decoder;
        decoder.letters.clear();
        decoder.finish_call().await?;
        let back = decoder.extract(|_, _, _| true);
        let any = !back.is_empty();
        decoder.told.extend(back);
        let mut given_back = decoder.tell().await.map(drop);
        if any && given_back.is_ok() {
            given_back = decoder.inner.source().confirm().await;
        }
        let closed = decoder.inner.source().close().await;
        given_back.and(closed)
    }
}

impl<S: Source<Message = RawMessage>, M, F> fmt::Debug for Decoded<S, M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decoder = &self.decoder;
        f.debug_struct("Decoded")
            .field("source", &decoder.name)
            .field(
                "waiting",
                &(decoder.arrivals.len() + decoder.table.blocked()),
            )
            .field("keys", &decoder.table.keys())
            .finish_non_exhaustive()
    }
}
