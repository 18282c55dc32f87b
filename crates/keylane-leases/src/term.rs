//! What the holder of a lease is told about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
pub(crate) struct TermSender {
    term: watch::Sender<Term>,
    end: Arc<End>,
}

/// The other side of a term.
#[derive(Clone, Debug)]
pub(crate) struct TermWatch {
    term: watch::Receiver<Term>,
    end: Arc<End>,
}

/// When a lease ends, for those who ask before everything they do.
#[derive(Debug)]
struct End {
    origin: Instant,
    /// Nanoseconds since the origin; 0 if it is not held. Written before the term, with which it
    /// agrees.
    nanos: AtomicU64,
}

impl End {
    fn set(&self, term: Term) {
        let nanos = match term {
            Term::Until(at) => self.nanos(at),
            Term::Asked | Term::Lost(_) => 0,
        };
        self.nanos.store(nanos, Ordering::Release);
    }

    fn nanos(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.origin);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl TermSender {
    pub(crate) fn new() -> Self {
        let end = End {
            origin: Instant::now(),
            nanos: AtomicU64::new(0),
        };
        Self {
            term: watch::Sender::new(Term::Asked),
            end: Arc::new(end),
        }
    }

    pub(crate) fn tell(&self, term: Term) {
        self.end.set(term);
        self.term.send_replace(term);
    }

    pub(crate) fn watch(&self) -> TermWatch {
        TermWatch {
            term: self.term.subscribe(),
            end: Arc::clone(&self.end),
        }
    }
}

impl TermWatch {
    /// Whether the lease is held now. By the clock, and not by what was reported: the report may be
    /// late where the runtime is busy.
    pub(crate) fn check(&self) -> Result<(), LeaseLost> {
        match *self.term.borrow() {
            Term::Until(at) if at > Instant::now() => Ok(()),
            Term::Lost(why) => Err(why),
            Term::Until(_) | Term::Asked => Err(LeaseLost::RanOut),
        }
    }

    /// Whether it is held at this time: [`check`](Self::check) without its locks.
    #[inline]
    pub(crate) fn is_held(&self, now: Instant) -> bool {
        self.end.nanos(now) < self.end.nanos.load(Ordering::Acquire)
    }

    /// Waits until the lease is lost, as reported or by the clock, whichever comes first: the task
    /// that reports may be in the queue of a worker that is blocked.
    pub(crate) async fn lost(&self) -> LeaseLost {
        let mut watch = self.term.clone();
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
        while self.term.changed().await.is_ok() {}
    }
}
