//! The state of a lease, as its holder sees it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::error::LeaseLost;

/// How long a lease is known to be held, or why it is lost.
#[derive(Debug)]
struct Validity {
    stage: Stage,
    /// Until when it is held, if it is. Most renewals change only this, and wake no task.
    until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The store has not granted it yet.
    Asked,
    Held,
    Lost(LeaseLost),
}

/// The writing side of a validity. It is dropped when the key is free in this process.
#[derive(Debug)]
pub(crate) struct ValiditySender(watch::Sender<Validity>);

/// The reading side of a validity.
#[derive(Clone, Debug)]
pub(crate) struct ValidityWatch(watch::Receiver<Validity>);

impl ValiditySender {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Validity {
            stage: Stage::Asked,
            until: Time::new(),
        }))
    }

    /// Records a grant or a renewal. One that is lost stays so.
    pub(crate) fn hold(&self, until: Instant) {
        let validity = self.0.borrow();
        validity.until.set(until);
        let is_new = validity.stage == Stage::Asked;
        drop(validity);
        if is_new {
            self.0.send_modify(|validity| validity.stage = Stage::Held);
        }
    }

    pub(crate) fn lose(&self, why: LeaseLost) {
        self.0
            .send_modify(|validity| validity.stage = Stage::Lost(why));
    }

    pub(crate) fn watch(&self) -> ValidityWatch {
        ValidityWatch(self.0.subscribe())
    }
}

impl ValidityWatch {
    /// Checks that the lease is held now. The clock decides, and not the report, which may be late
    /// in a busy runtime.
    pub(crate) fn check(&self) -> Result<(), LeaseLost> {
        let validity = self.0.borrow();
        match validity.stage {
            Stage::Held if validity.until.get() > Instant::now() => Ok(()),
            Stage::Lost(why) => Err(why),
            Stage::Held | Stage::Asked => Err(LeaseLost::RanOut),
        }
    }

    /// Returns until when it is held, if it is not lost.
    pub(crate) fn held_until(&self) -> Option<Instant> {
        let validity = self.0.borrow();
        (validity.stage == Stage::Held).then(|| validity.until.get())
    }

    /// Waits until the lease is lost, by the report or by the clock, whichever comes first: the
    /// task that reports may be in the queue of a blocked worker.
    pub(crate) async fn lost(&self) -> LeaseLost {
        let mut watch = self.0.clone();
        loop {
            watch.mark_unchanged();
            let until = match (self.check(), self.held_until()) {
                (Err(why), _) => return why,
                (Ok(()), until) => until.unwrap_or_else(Instant::now),
            };
            tokio::select! {
                changed = watch.changed() => {
                    if changed.is_err() && !matches!(watch.borrow().stage, Stage::Lost(_)) {
                        return LeaseLost::Closed;
                    }
                }
                // It may have been renewed since.
                () = sleep_until(until) => {}
            }
        }
    }

    /// Waits until the key is free in this process.
    pub(crate) async fn freed(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

/// An instant that changes while others read it: in nanoseconds from a fixed moment on.
#[derive(Debug)]
struct Time(AtomicI64);

/// A fixed moment.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Time {
    fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    fn set(&self, at: Instant) {
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let from = match at.checked_duration_since(*EPOCH) {
            Some(after) => nanos(after),
            // The clock of a runtime may be paused, and be behind that of another one.
            None => -nanos(EPOCH.saturating_duration_since(at)),
        };
        self.0.store(from, Ordering::Release);
    }

    fn get(&self) -> Instant {
        let from = self.0.load(Ordering::Acquire);
        let distance = Duration::from_nanos(from.unsigned_abs());
        match from < 0 {
            true => *EPOCH - distance,
            false => *EPOCH + distance,
        }
    }
}
