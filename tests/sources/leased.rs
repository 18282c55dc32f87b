//! Messages of a source in lanes that are leased.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use keylane::lease::{LaneLease, LaneLeaseError, LaneLeases};
use keylane::watching::LaneState;
use keylane_testkit::scenario::settle;
use keylane_testkit::{Act, Gate, Script};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::support::{Orders, Rig, adds_up, orders, plain, scripted, until};

/// One lease for all keys: while another holds it, nothing starts.
struct Only(Arc<Semaphore>);

struct Held(
    #[expect(dead_code, reason = "it is given back when it is dropped")] OwnedSemaphorePermit,
);

#[keylane::async_trait]
impl LaneLeases<Bytes> for Only {
    async fn acquire(&self, _: &Bytes) -> Result<Box<dyn LaneLease>, LaneLeaseError> {
        let permit = Arc::clone(&self.0).acquire_owned().await;
        Ok(Box::new(Held(permit.expect("it is never closed"))))
    }

    fn losses(&self) -> u64 {
        0
    }

    fn linger(&self) -> Duration {
        Duration::ZERO
    }
}

impl LaneLease for Held {
    fn token(&self) -> u64 {
        1
    }

    fn held_until(&self) -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(3_600))
    }

    fn poll_lost(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

fn leased(rig: &Rig, leases: &Arc<Semaphore>, act: Act) -> Orders {
    orders()
        .leased_by(Only(Arc::clone(leases)))
        .spawn(scripted(Script::new(&rig.history).otherwise(act)))
        .unwrap()
}

fn waits(orders: &Orders, key: &'static str) -> bool {
    let view = orders.inspect(&Bytes::from_static(key.as_bytes()));
    view.is_some_and(|view| view.state == LaneState::Leasing)
}

/// What waits for its lease when its generation ends goes back, and was not started.
#[tokio::test(start_paused = true)]
async fn what_waits_for_its_lease_is_given_back() {
    for is_lost in [false, true] {
        let rig = Rig::new(plain());
        let leases = Arc::new(Semaphore::new(1));
        let elsewhere = Arc::clone(&leases).acquire_owned().await.unwrap();
        let orders = leased(&rig, &leases, Act::ok());
        let intake = rig.consume(&orders);
        rig.publish([1, 1, 1]);
        until(|| waits(&orders, "1")).await;
        match is_lost {
            false => rig.revoke(),
            true => rig.lose(),
        }
        until(|| intake.stats().given_back == 3).await;
        assert_eq!(rig.history.started(), []);
        // They come again, and wait again.
        until(|| intake.stats().held == 3).await;
        until(|| waits(&orders, "1")).await;
        drop(elsewhere);
        rig.handled(3).await;
        assert_eq!(rig.history.handled(), [1, 2, 3]);
        rig.finish(&orders, intake).await;
    }
}

/// Nothing starts beside an attempt of a generation that has ended, though the lease is ours all along.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_outlives_its_generation_keeps_its_lane() {
    let rig = Rig::new(plain());
    let leases = Arc::new(Semaphore::new(1));
    let gate = Gate::new();
    let orders = leased(&rig, &leases, Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish([1, 1]);
    gate.arrivals(1).await;
    rig.revoke();
    until(|| intake.stats().given_back == 1).await;
    settle().await;
    assert_eq!(rig.history.started(), [1]);
    gate.open();
    rig.handled(2).await;
    assert_eq!(rig.history.handled(), [1, 2]);
    rig.finish(&orders, intake).await;
}

/// A stop gives back what waits for a lease that does not come.
#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_lease() {
    let rig = Rig::new(plain().counts_attempts());
    let leases = Arc::new(Semaphore::new(0));
    let orders = leased(&rig, &leases, Act::ok());
    let intake = rig.consume(&orders);
    rig.publish([1, 1, 2]);
    until(|| waits(&orders, "1") && waits(&orders, "2")).await;
    let report = intake.stop().within(Duration::from_secs(1)).await;
    adds_up(&report);
    assert_eq!((report.received, report.given_back), (3, 3));
    assert_eq!(rig.server.counts().starts, 0);
    assert_eq!(rig.ready(), 3);
}
