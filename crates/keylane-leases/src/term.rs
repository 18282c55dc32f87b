//! What the holder of a lease is told about it.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::error::LeaseLost;

/// How long a lease lasts, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// The store has not granted it yet.
    Asked,
    Until(Instant),
    Lost(LeaseLost),
}

/// The side that knows. It is dropped when the key is free in this process.
#[derive(Debug)]
pub(crate) struct TermSender(watch::Sender<Term>);

/// The other side of a term.
#[derive(Clone, Debug)]
pub(crate) struct TermWatch(watch::Receiver<Term>);

impl TermSender {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Term::Asked))
    }

    pub(crate) fn tell(&self, term: Term) {
        self.0.send_replace(term);
    }

    pub(crate) fn watch(&self) -> TermWatch {
        TermWatch(self.0.subscribe())
    }
}

impl TermWatch {
    /// Whether the lease is held now. By the clock, and not by what was reported: the report may be
    /// late where the runtime is busy.
    pub(crate) fn check(&self) -> Result<(), LeaseLost> {
        match *self.0.borrow() {
            Term::Until(at) if at > Instant::now() => Ok(()),
            Term::Lost(why) => Err(why),
            Term::Until(_) | Term::Asked => Err(LeaseLost::RanOut),
        }
    }

    /// Until when it is held, if it is not lost.
    pub(crate) fn held_until(&self) -> Option<Instant> {
        match *self.0.borrow() {
            Term::Until(at) => Some(at),
            Term::Lost(_) | Term::Asked => None,
        }
    }

    /// Waits until the lease is lost, as reported or by the clock, whichever comes first: the task
    /// that reports may be in the queue of a worker that is blocked.
    pub(crate) async fn lost(&self) -> LeaseLost {
        let mut watch = self.0.clone();
        loop {
            let term = *watch.borrow_and_update();
            let until = match term {
                Term::Lost(why) => return why,
                Term::Asked => Instant::now(),
                Term::Until(at) => at,
            };
            tokio::select! {
                changed = watch.changed() => {
                    if changed.is_err() && !matches!(*watch.borrow(), Term::Lost(_)) {
                        return LeaseLost::Closed;
                    }
                }
                () = sleep_until(until) => return LeaseLost::RanOut,
            }
        }
    }

    /// Waits until the key is free in this process.
    pub(crate) async fn freed(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}
