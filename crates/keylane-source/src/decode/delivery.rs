//! Letters on their way.

use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{AbortHandle, Abortable, Aborted, BoxFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use keylane_rt::clock::{self, Alarm};
use keylane_rt::unwind::caught;
use keylane_rt::{Semaphore, cut, shown_key};

use super::letter::{RawLetter, RawLetterSink};
use crate::BoxError;
use crate::{Generation, LetterCause, SourceLetter};

/// The pause after the first refusal of a letter, and the longest one.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Most letters that are offered to the sink at the same time.
const AT_ONCE: usize = 64;

/// Most characters kept of an error.
pub(super) const LONGEST_WHY: usize = 256;

/// A message that cannot be decoded, and what is needed to settle it.
#[derive(Debug)]
pub(super) struct Undecodable<P> {
    pub(super) position: P,
    pub(super) generation: Generation,
    pub(super) attempts: u32,
    pub(super) why: String,
    /// Where it is, for the log.
    pub(super) place: String,
    /// The producer's id, for the log.
    pub(super) id: Option<Box<str>>,
    letter: Arc<RawLetter>,
    refusals: u32,
    /// Its delivery, which ends with it.
    delivery: Option<OnDrop>,
}

#[derive(Debug)]
struct OnDrop(AbortHandle);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<P: Clone> Undecodable<P> {
    pub(super) fn new(
        position: P,
        generation: Generation,
        attempts: u32,
        letter: RawLetter,
    ) -> Self {
        Self {
            position,
            generation,
            attempts,
            why: text_of(&letter.error),
            place: String::new(),
            id: None,
            letter: Arc::new(letter),
            refusals: 0,
            delivery: None,
        }
    }

    /// Says where it is, and the producer's id.
    pub(super) fn named(mut self, place: String, id: Option<Box<str>>) -> Self {
        self.place = place;
        self.id = id;
        self
    }

    /// Its key, for the log. Only the dispatcher knows whether it may be shown itself.
    pub(super) fn shown_key(&self) -> impl Display {
        shown_key(self.letter.raw.key.as_ref())
    }

    /// The letter as a source keeps it.
    pub(super) fn of_source(&self) -> SourceLetter<P> {
        SourceLetter::new(
            self.position.clone(),
            self.attempts,
            LetterCause::Undecodable,
            self.why.clone(),
        )
    }

    /// Counts a refusal, or an answer that is not there yet, and returns how many there were.
    pub(super) fn refused(&mut self) -> u32 {
        self.refusals = self.refusals.saturating_add(1);
        self.refusals
    }

    /// How long to wait before it is offered.
    fn pause(&self) -> Duration {
        let Some(doubled) = self.refusals.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = 1_u32.checked_shl(doubled).unwrap_or(u32::MAX);
        PAUSE.saturating_mul(factor).min(LONGEST_PAUSE)
    }
}

/// What has become of the letter of a key.
#[derive(Debug)]
pub(super) enum News {
    /// Whether the sink has accepted it.
    Answered(u64, Result<(), String>),
    /// It is to be given to its source now.
    Due(u64),
}

/// All letters that are offered to the sink, or wait until they are offered again.
///
/// They belong to no call of the source: one that is dropped interrupts none of them.
pub(super) struct LettersInDelivery {
    sink: Option<Arc<dyn RawLetterSink>>,
    places: Arc<Semaphore>,
    under_way: FuturesUnordered<Abortable<BoxFuture<'static, News>>>,
}

impl LettersInDelivery {
    pub(super) fn new() -> Self {
        Self {
            sink: None,
            places: Arc::new(Semaphore::new(AT_ONCE)),
            under_way: FuturesUnordered::new(),
        }
    }

    pub(super) fn give_to(&mut self, sink: Arc<dyn RawLetterSink>) {
        self.sink = Some(sink);
    }

    pub(super) fn has_sink(&self) -> bool {
        self.sink.is_some()
    }

    /// Offers the letter of a key, after the pause that its refusals ask for.
    pub(super) fn begin<P: Clone>(&mut self, key: u64, letter: &mut Undecodable<P>) {
        let pause = pause(letter.pause());
        let delivery = match &self.sink {
            Some(sink) => {
                let (sink, places) = (Arc::clone(sink), Arc::clone(&self.places));
                let letter = Arc::clone(&letter.letter);
                let delivery = async move {
                    pause.await;
                    // It is never closed.
                    let _place = places.acquire().await;
                    let answer = accepted(async { sink.accept(&letter).await }).await;
                    News::Answered(key, answer)
                };
                delivery.boxed()
            }
            None => pause.map(move |()| News::Due(key)).boxed(),
        };
        let (handle, registration) = AbortHandle::new_pair();
        letter.delivery = Some(OnDrop(handle));
        self.under_way.push(Abortable::new(delivery, registration));
    }

    /// Waits for news of a letter, for ever if there are none.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<News> {
        loop {
            match self.under_way.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(news))) => return Poll::Ready(news),
                Poll::Ready(Some(Err(Aborted))) => {}
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Drops all of them.
    pub(super) fn clear(&mut self) {
        self.under_way = FuturesUnordered::new();
    }
}

/// Waits this long from now.
fn pause(pause: Duration) -> impl Future<Output = ()> + Send {
    let at = (!pause.is_zero()).then(|| clock::now() + pause);
    async move {
        if let Some(at) = at {
            let mut alarm = Alarm::new(at);
            poll_fn(|cx| alarm.poll(cx)).await;
        }
    }
}

/// The answer of a place for letters. A panic is a refusal.
pub(super) async fn accepted(
    answer: impl Future<Output = Result<(), BoxError>>,
) -> Result<(), String> {
    let mut answer = pin!(answer);
    poll_fn(|cx| match caught(|| Pin::as_mut(&mut answer).poll(cx)) {
        Ok(answer) => answer.map(|answer| answer.map_err(|error| text_of(&error))),
        Err(text) => Poll::Ready(Err(cut(format!("it panicked: {text}"), LONGEST_WHY))),
    })
    .await
}

/// What an error of the user's says.
pub(super) fn text_of(error: &impl Display) -> String {
    match caught(|| error.to_string()) {
        Ok(text) => cut(text, LONGEST_WHY),
        Err(_) => "an error whose `Display` panics".to_owned(),
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;
    use crate::RawMessage;

    #[test]
    fn each_pause_is_twice_as_long_as_the_one_before_up_to_the_longest() {
        let letter = RawLetter::new(RawMessage::new("no"), "no number", "test");
        let mut letter = Undecodable::new(1, Generation(0), 0, letter);
        assert_eq!(letter.pause(), Duration::ZERO);
        let pauses = (0..10).map(|_| {
            letter.refused();
            letter.pause().as_millis()
        });
        let expected = [
            100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000,
        ];
        assert!(pauses.eq(expected));
        letter.refusals = u32::MAX;
        assert_eq!(
            (letter.refused(), letter.pause()),
            (u32::MAX, LONGEST_PAUSE)
        );
    }
}
