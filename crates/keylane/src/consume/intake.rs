//! The handle of a consumed source.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use keylane_rt::Arc;
use keylane_rt::clock::Instant;

use super::control::{Command, Control};
use super::report::{IntakeReport, IntakeStats};
use crate::health::{Health, HealthLimits};

/// How long [`Intake::stop`] waits for what is here, unless it is set.
const PATIENCE: Duration = Duration::from_secs(30);

/// A handle to a source that a dispatcher consumes.
///
/// Dropping it stops the intake as [`stop`](Self::stop) does, without a report.
///
/// Subscribers of [`Dispatcher::events`](crate::Dispatcher::events) learn what happens to the
/// source, as [`Event::Source`](crate::watching::Event::Source).
#[derive(Debug)]
#[must_use = "the intake stops when it is dropped"]
pub struct Intake {
    control: Arc<Control>,
    now: Now,
}

/// The clock of the dispatcher's runtime.
#[derive(Clone)]
pub(super) struct Now(pub(super) Arc<dyn Fn() -> Instant + Send + Sync>);

impl std::fmt::Debug for Now {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Now")
    }
}

impl Intake {
    pub(super) fn new(control: Arc<Control>, now: Now) -> Self {
        Self { control, now }
    }

    /// Returns counters and gauges, as of a moment ago.
    pub fn stats(&self) -> IntakeStats {
        self.control.stats()
    }

    /// Returns a view of the counters that does not keep the intake going: for a page or a metric
    /// that outlives it.
    pub fn watch(&self) -> IntakeWatch {
        IntakeWatch {
            control: Arc::clone(&self.control),
            now: self.now.clone(),
        }
    }

    /// Returns whether the source is open and consumed, and why not.
    /// [`Health::of`](crate::watching::Health::of) combines it with the health of the dispatcher.
    ///
    /// A source that an operator has [paused](Self::pause) is ready. One that has failed a moment
    /// ago is too: [`HealthLimits`] says for how long.
    pub fn health(&self) -> Health {
        self.health_within(&HealthLimits::new())
    }

    /// Like [`health`](Self::health), with limits.
    pub fn health_within(&self, limits: &HealthLimits) -> Health {
        self.control.health(limits, (self.now.0)())
    }

    /// Pauses the intake: it takes no more messages. The messages that are here go on and settle.
    pub fn pause(&self) {
        self.send(Command::Pause);
    }

    /// Resumes the intake: it takes messages again.
    pub fn resume(&self) {
        self.send(Command::Resume);
    }

    /// Stops the intake: it takes no more messages, waits until those that are here have settled
    /// and their acks are confirmed, and returns a report that adds up.
    ///
    /// After 30 seconds, or [`Stop::within`], messages that have not started are handed back to the
    /// source; messages in flight may go on for
    /// [`revoke_within`](crate::consume::IntakeSettings::revoke_within). So a lane that is halted or paused
    /// does not delay the stop for ever.
    ///
    /// The dispatcher goes on: it may have other sources, and senders.
    pub fn stop(&self) -> Stop {
        Stop {
            control: Arc::clone(&self.control),
            now: self.now.clone(),
            within: PATIENCE,
        }
    }

    /// Waits until the intake has ended by itself, at the end of its source or of the dispatcher.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does nothing.
    pub async fn ended(&self) -> IntakeReport {
        self.control.ended().await
    }

    fn send(&self, command: Command) {
        // If the driver is gone, the intake has ended.
        let _ = self.control.commands.send(command);
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        if !self.control.is_stopping() {
            tracing::warn!(
                target: "keylane",
                source = %self.control.source,
                "an intake is dropped, and stops: keep it while its source is consumed, and call \
                 `stop` to wait for its end"
            );
        }
        let at = (self.now.0)().checked_add(PATIENCE);
        self.send(Command::Stop(at));
    }
}

/// The counters of an intake, without the right to stop it: see [`Intake::watch`].
///
/// Clones watch the same intake. Dropping them has no effect on it.
#[derive(Clone, Debug)]
pub struct IntakeWatch {
    pub(super) control: Arc<Control>,
    now: Now,
}

impl IntakeWatch {
    /// Returns counters and gauges, as of a moment ago; after the intake has ended, the last ones.
    pub fn stats(&self) -> IntakeStats {
        self.control.stats()
    }

    /// Returns whether the source is open and consumed, and why not: see [`Intake::health`].
    pub fn health(&self) -> Health {
        self.health_within(&HealthLimits::new())
    }

    /// Like [`health`](Self::health), with limits.
    pub fn health_within(&self, limits: &HealthLimits) -> Health {
        self.control.health(limits, (self.now.0)())
    }
}

/// A stop that starts when it is awaited: see [`Intake::stop`].
///
/// # Cancel safety
///
/// If the future is dropped before it is ready, the stop goes on; await another one for the report.
#[must_use = "the stop starts when it is awaited"]
#[derive(Debug)]
pub struct Stop {
    control: Arc<Control>,
    now: Now,
    within: Duration,
}

impl Stop {
    /// Sets how long to wait before messages that have not started are handed back.
    /// `Duration::ZERO` hands them back at once; `Duration::MAX` waits for ever.
    pub fn within(mut self, limit: Duration) -> Self {
        self.within = limit;
        self
    }
}

impl IntoFuture for Stop {
    type Output = IntakeReport;
    type IntoFuture = Pin<Box<dyn Future<Output = IntakeReport> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let at = (self.now.0)().checked_add(self.within);
            let _ = self.control.commands.send(Command::Stop(at));
            self.control.ended().await
        })
    }
}
