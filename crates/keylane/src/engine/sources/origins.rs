//! Questions to the drivers of sources, and the way of their answers.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use keylane_rt::atomic::Ordering;
use keylane_rt::clock::{Alarm, Instant};
use keylane_rt::{lock, oneshot};

use super::Sources;
use super::asked::{Asked, Front, OriginsRequest};
use crate::lane::MessageOrigin;

impl Sources {
    /// Where these messages of one source come from, as far as its driver says so in time.
    pub(crate) async fn origins(
        &self,
        source: u32,
        slots: Vec<u32>,
        until: Instant,
    ) -> Option<Vec<Option<MessageOrigin>>> {
        let (done, answer) = oneshot::channel();
        self.ask(source, |asked| {
            asked.origins.push(OriginsRequest { slots, done });
        })?;
        in_time(answer, until).await
    }

    /// The first message of each generation of one source that has not settled, if its driver says
    /// so in time.
    pub(crate) async fn fronts(&self, source: u32, until: Instant) -> Option<Vec<Front>> {
        let (done, answer) = oneshot::channel();
        self.ask(source, |asked| {
            // The driver may be in a call for long, and those that asked are gone.
            asked.fronts.retain(|done| !done.is_closed());
            asked.fronts.push(done);
        })?;
        in_time(answer, until).await
    }

    /// `None`: its driver is gone.
    fn ask(&self, source: u32, question: impl FnOnce(&mut Asked)) -> Option<()> {
        let mut outboxes = lock(&self.outboxes);
        let outbox = outboxes[source as usize].as_mut()?;
        question(&mut outbox.asked);
        // Under the lock, which the driver takes before it reads this.
        self.asked.store(true, Ordering::Relaxed);
        let waker = outbox.waker.take();
        drop(outboxes);
        if let Some(waker) = waker {
            waker.wake();
        }
        Some(())
    }

    /// Takes the questions that a driver has to answer.
    #[inline]
    pub(crate) fn take_asked(&self, source: u32) -> Asked {
        match self.asked.load(Ordering::Relaxed) {
            true => self.take_some_asked(source),
            false => Asked::default(),
        }
    }

    #[cold]
    fn take_some_asked(&self, source: u32) -> Asked {
        let mut outboxes = lock(&self.outboxes);
        let outbox = outboxes[source as usize].as_mut();
        let asked = outbox.map_or_else(Asked::default, |outbox| std::mem::take(&mut outbox.asked));
        let is_left = outboxes
            .iter()
            .flatten()
            .any(|outbox| !outbox.asked.is_empty());
        self.asked.store(is_left, Ordering::Relaxed);
        asked
    }
}

/// The answer, if it comes in time.
async fn in_time<A>(mut answer: oneshot::Receiver<A>, until: Instant) -> Option<A> {
    let mut late = Alarm::new(until);
    poll_fn(|cx| match Pin::new(&mut answer).poll(cx) {
        Poll::Pending => late.poll(cx).map(|()| None),
        ready => ready.map(Result::ok),
    })
    .await
}
