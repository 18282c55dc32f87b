//! The handle of a source that is consumed.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use keylane_rt::Arc;
use keylane_rt::clock::Instant;

use super::control::{Command, Control};
use super::report::{IntakeReport, IntakeStats};

/// How long [`Intake::stop`] waits for what is here, unless it is set.
const PATIENCE: Duration = Duration::from_secs(30);

/// A source that is consumed: what an application holds.
///
/// Dropping it stops the intake as [`stop`](Self::stop) does, without a report.
///
/// What happens to the source is told to the subscribers of
/// [`Dispatcher::events`](crate::Dispatcher::events), as
/// [`Event::Source`](crate::watching::Event::Source).
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

    /// Counters and gauges, of a moment ago.
    pub fn stats(&self) -> IntakeStats {
        self.control.stats()
    }

    /// Takes nothing more in. What is here goes on, and is settled.
    pub fn pause(&self) {
        self.send(Command::Pause);
    }

    /// Takes messages in again.
    pub fn resume(&self) {
        self.send(Command::Resume);
    }

    /// Takes nothing more in, waits until what is here has settled and its acks are confirmed, and
    /// returns a report that adds up.
    ///
    /// After 30 seconds, or [`Stop::within`], what has not started is handed back to the source;
    /// what is in flight may go on for
    /// [`revoke_within`](crate::IntakeSettings::revoke_within). So a lane that is halted or paused
    /// does not hold it up for ever.
    ///
    /// The dispatcher goes on: it may have other sources, and senders.
    pub fn stop(&self) -> Stop {
        Stop {
            control: Arc::clone(&self.control),
            now: self.now.clone(),
            within: PATIENCE,
        }
    }

    /// Waits until the intake has ended by itself: its source has come to an end, or the dispatcher
    /// has.
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
        let at = (self.now.0)().checked_add(PATIENCE);
        self.send(Command::Stop(at));
    }
}

/// A stop that starts when it is awaited: see [`Intake::stop`].
///
/// # Cancel safety
///
/// Dropped before it is ready, the stop goes on; await another one for the report.
#[must_use = "the stop starts when it is awaited"]
#[derive(Debug)]
pub struct Stop {
    control: Arc<Control>,
    now: Now,
    within: Duration,
}

impl Stop {
    /// How long to wait before what has not started is handed back. `Duration::ZERO`: at once.
    /// `Duration::MAX`: for ever.
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
