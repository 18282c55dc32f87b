//! A connection's view of the faults.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::direction::Direction;
use super::faults::{Faults, Permit};

/// The connection is over, and must be closed with a reset.
#[derive(Debug)]
pub(super) struct Reset;

/// The result of an attempt to pass bytes.
#[derive(Debug)]
pub(super) enum Step {
    Passed(usize),
    /// No byte passes before this time, or before the faults change.
    Wait(Option<Instant>),
    /// The socket takes no bytes at the moment.
    Blocked,
    /// The socket will never take bytes again.
    Gone,
}

/// Ties a connection to the faults of its proxy, and counts it as open until it is dropped.
#[derive(Debug)]
pub(super) struct Link {
    faults: Arc<watch::Sender<Faults>>,
    resets: u64,
    forgets: u64,
}

impl Link {
    /// Admits a connection. Returns `None` if it is refused.
    pub(super) fn admit(faults: &Arc<watch::Sender<Faults>>) -> Option<Self> {
        let mut admitted = None;
        change(faults, |faults| {
            admitted = faults.admit().map(|resets| (resets, faults.forgets));
        });
        admitted.map(|(resets, forgets)| Self {
            faults: Arc::clone(faults),
            resets,
            forgets,
        })
    }

    pub(super) fn watch(&self) -> watch::Receiver<Faults> {
        self.faults.subscribe()
    }

    pub(super) fn is_reset(&self, faults: &Faults) -> bool {
        faults.resets != self.resets
    }

    /// Whether no byte passes in this direction, for now or ever.
    pub(super) fn is_cut(&self, faults: &Faults, direction: Direction) -> bool {
        faults.is_cut(direction) || faults.forgets != self.forgets
    }

    /// Writes the part of `bytes` that may pass. The faults are locked meanwhile: no byte passes
    /// after a call of the test that forbids it has returned, and all connections count together.
    pub(super) fn pass(
        &self,
        direction: Direction,
        read_at: Instant,
        bytes: &[u8],
        write: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> Result<Step, Reset> {
        let mut outcome = Err(Reset);
        change(&self.faults, |faults| {
            if self.is_reset(faults) {
                return;
            }
            if self.is_cut(faults, direction) {
                outcome = Ok(Step::Wait(None));
                return;
            }
            let now = Instant::now();
            let way = faults.way(direction);
            outcome = match way.permit(now, read_at, bytes.len()) {
                Permit::Wait(until) => Ok(Step::Wait(until)),
                Permit::Reset => Err(Reset),
                Permit::Pass(0) => Ok(Step::Passed(0)),
                Permit::Pass(len) => match write(&bytes[..len]) {
                    Ok(len) if way.passed(now, len) => Err(Reset),
                    Ok(len) => Ok(Step::Passed(len)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Step::Blocked),
                    Err(_) => Ok(Step::Gone),
                },
            };
        });
        outcome
    }

    /// Waits until this direction is not cut.
    pub(super) async fn heals(&self, direction: Direction) -> Result<(), Reset> {
        let mut watch = self.watch();
        let healed =
            watch.wait_for(|faults| self.is_reset(faults) || !self.is_cut(faults, direction));
        let faults = healed.await.expect("the link holds a sender");
        if self.is_reset(&faults) {
            return Err(Reset);
        }
        Ok(())
    }

    /// Waits until the connection is reset.
    pub(super) async fn reset(&self) -> Reset {
        let mut watch = self.watch();
        let reset = watch.wait_for(|faults| self.is_reset(faults)).await;
        reset.expect("the link holds a sender");
        Reset
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        change(&self.faults, |faults| faults.open -= 1);
    }
}

/// Changes counters, for which no connection waits.
fn change(faults: &watch::Sender<Faults>, change: impl FnOnce(&mut Faults)) {
    faults.send_if_modified(|faults| {
        change(faults);
        false
    });
}
