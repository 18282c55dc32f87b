//! A task of one's own: polled by hand, and told apart whether it was woken.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::Stream;

/// What scripted panics throw. It is thrown without the panic hook, so nothing is printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scripted(pub(crate) usize);

pub(crate) fn throw(n: usize) -> ! {
    resume_unwind(Box::new(Scripted(n)))
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Clone)]
pub(crate) struct Task(Arc<Woken>);

impl Task {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// Whether it was woken since this was asked last.
    pub(crate) fn was_woken(&self) -> bool {
        self.0.0.swap(0, Ordering::SeqCst) > 0
    }

    pub(crate) fn next<S: Stream + Unpin>(&self, stream: &mut S) -> Poll<Option<S::Item>> {
        let waker = Waker::from(Arc::clone(&self.0));
        Pin::new(stream).poll_next(&mut Context::from_waker(&waker))
    }

    pub(crate) fn poll<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(&self.0));
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }

    /// As `next`, also as often as the task wakes itself.
    pub(crate) fn settle<S: Stream + Unpin>(&self, stream: &mut S) -> Poll<Option<S::Item>> {
        loop {
            self.was_woken();
            let polled = self.next(stream);
            if polled.is_ready() || !self.was_woken() {
                return polled;
            }
        }
    }

    /// All answers that can be had now.
    pub(crate) fn all<S: Stream + Unpin>(&self, stream: &mut S) -> Vec<S::Item> {
        std::iter::from_fn(|| match self.settle(stream) {
            Poll::Ready(answer) => answer,
            Poll::Pending => None,
        })
        .collect()
    }
}

/// Runs something that may throw what is scripted. Anything else goes on.
pub(crate) fn catch<R>(run: impl FnOnce() -> R) -> Result<R, Scripted> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|thrown| match thrown.downcast::<Scripted>() {
        Ok(scripted) => *scripted,
        Err(other) => resume_unwind(other),
    })
}

/// Runs a future that wakes its task whenever it can go on.
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    let task = Task::new();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = task.poll(&mut future) {
            return output;
        }
        assert!(task.was_woken(), "it would not be polled again");
    }
}
