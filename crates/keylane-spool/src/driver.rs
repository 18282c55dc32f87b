//! The task that delivers.

use std::future::pending;
use std::sync::Arc;
use std::time::SystemTime;

use futures::stream::{FuturesUnordered, StreamExt};
use keylane_disk::random;
use keylane_rt::shown_key;
use tokio::time::{Instant, sleep_until};

use super::core::{Change, Landed, Landing, Moment};
use super::flight::{Target, fly};
use super::shared::Shared;

/// Runs until delivery has stopped for good.
pub(super) async fn drive(driver: Driver, target: Target) {
    let shared = &driver.0;
    let mut flights = FuturesUnordered::new();
    loop {
        let step = shared.with(|core| core.step(Instant::now()));
        if step.is_over {
            return;
        }
        for flight in step.flights {
            flights.push(fly(target.clone(), flight));
        }
        let alarm = async {
            match step.wake_at {
                Some(time) => sleep_until(time).await,
                None => pending().await,
            }
        };
        tokio::select! {
            Some((id, landing)) = flights.next(), if !flights.is_empty() => {
                land(shared, id, landing);
            }
            () = shared.driver.notified() => {}
            () = alarm => {}
        }
    }
}

fn land(shared: &Shared, id: u64, landing: Landing) {
    let error = match &landing {
        Landing::Failed { error, .. } => Arc::clone(error),
        Landing::Written => Arc::from(""),
    };
    let at = Moment {
        now: Instant::now(),
        wall: SystemTime::now(),
        dice: random::dice(),
    };
    let landed = shared.with(|core| core.land(id, landing, at));
    let Landed {
        place,
        change,
        refused,
        halts,
    } = landed;
    for (id, key) in refused {
        let key = shown_key(Some(key));
        match halts {
            true => tracing::error!(
                target: "keylane_spool",
                spool = %shared.name,
                %id, %key, %error,
                "the sink refused a message: its key halts; resume or skip it"
            ),
            false => tracing::warn!(
                target: "keylane_spool",
                spool = %shared.name,
                %id, %key, %error,
                "the sink refused a message: it becomes a dead letter"
            ),
        }
    }
    match change {
        Change::None => {}
        Change::Failing => {
            tracing::warn!(
                target: "keylane_spool",
                spool = %shared.name,
                destination = place, %error,
                "the spool cannot deliver, will retry"
            );
        }
        Change::StillFailing => {
            tracing::debug!(
                target: "keylane_spool",
                spool = %shared.name,
                destination = place, %error,
                "the spool still cannot deliver, will retry"
            );
        }
        Change::Recovered => {
            tracing::info!(
                target: "keylane_spool",
                spool = %shared.name,
                destination = place,
                "the spool delivers again"
            );
        }
    }
}

/// The right to drive a spool. When the task ends, for any reason, delivery stops for good, and no
/// caller may wait for it.
pub(super) struct Driver(Arc<Shared>);

impl Driver {
    /// Creates the driver. Call it before the task is spawned: a runtime may drop a task that it
    /// has never polled.
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.with(|core| core.stop());
    }
}
