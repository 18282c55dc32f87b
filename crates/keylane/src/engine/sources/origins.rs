//! Where messages come from: a question to the drivers of their sources.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use keylane_rt::atomic::Ordering;
use keylane_rt::clock::{Alarm, Instant};
use keylane_rt::{lock, oneshot};

use super::{OriginsRequest, Sources};
use crate::lane::MessageOrigin;

impl Sources {
    /// Where these messages of one source come from, as far as its driver says so in time.
    pub(crate) async fn origins(
        &self,
        source: u32,
        slots: Vec<u32>,
        until: Instant,
    ) -> Option<Vec<Option<MessageOrigin>>> {
        let (done, mut answer) = oneshot::channel();
        self.ask_origins(source, OriginsRequest { slots, done })?;
        let mut late = Alarm::new(until);
        poll_fn(|cx| match Pin::new(&mut answer).poll(cx) {
            Poll::Pending => late.poll(cx).map(|()| None),
            ready => ready.map(Result::ok),
        })
        .await
    }

    /// `None`: its driver is gone.
    fn ask_origins(&self, source: u32, request: OriginsRequest) -> Option<()> {
        let mut outboxes = lock(&self.outboxes);
        let outbox = outboxes[source as usize].as_mut()?;
        outbox.origins.push(request);
        // Under the lock, which the driver takes before it reads this.
        self.asked.store(true, Ordering::Relaxed);
        let waker = outbox.waker.take();
        drop(outboxes);
        if let Some(waker) = waker {
            waker.wake();
        }
        Some(())
    }

    /// Takes the questions for origins that a driver has to answer.
    #[inline]
    pub(crate) fn take_origins(&self, source: u32) -> Vec<OriginsRequest> {
        match self.asked.load(Ordering::Relaxed) {
            true => self.take_asked(source),
            false => Vec::new(),
        }
    }

    #[cold]
    fn take_asked(&self, source: u32) -> Vec<OriginsRequest> {
        let mut outboxes = lock(&self.outboxes);
        let outbox = outboxes[source as usize].as_mut();
        let asked = outbox.map_or_else(Vec::new, |outbox| std::mem::take(&mut outbox.origins));
        let is_left = outboxes
            .iter()
            .flatten()
            .any(|outbox| !outbox.origins.is_empty());
        self.asked.store(is_left, Ordering::Relaxed);
        asked
    }
}
