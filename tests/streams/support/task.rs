//! A task of one's own: polled by hand, and told apart whether it was woken.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use keylane_testkit::scenario::Wakes;

/// What scripted panics throw. It is thrown without the panic hook, so nothing is printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scripted(pub(crate) usize);

pub(crate) fn throw(n: usize) -> ! {
    resume_unwind(Box::new(Scripted(n)))
}

#[derive(Clone)]
pub(crate) struct Task(Arc<Wakes>);

impl Task {
    pub(crate) fn new() -> Self {
        Self(Wakes::new())
    }

    /// Whether it was woken since this was asked last.
    pub(crate) fn was_woken(&self) -> bool {
        self.0.take() > 0
    }

    pub(crate) fn next<S: Stream + Unpin>(&self, stream: &mut S) -> Poll<Option<S::Item>> {
        Pin::new(stream).poll_next(&mut Context::from_waker(&self.0.waker()))
    }

    pub(crate) fn poll<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        self.0.poll(future)
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
