//! Who leads, for those who only watch.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use keylane_leases::error::StoreError;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::career::Following;
use crate::elections::{CALL_LIMIT, Elections, key_of};
use crate::error::WatchEnded;
use crate::store::{Election, Stage};

/// The pause after a call that has failed.
const PAUSE: Duration = Duration::from_secs(1);

/// How often a watcher looks again if it is not woken.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Says who leads, as far as this process knows.
#[derive(Clone, Debug)]
pub struct LeaderWatch(watch::Receiver<Option<Following>>);

impl Elections {
    /// Follows an election without being a candidate, until the last clone of the watch is dropped.
    pub fn watch(&self, election: impl AsRef<str>) -> LeaderWatch {
        LeaderWatch::new(self, key_of(election.as_ref()))
    }
}

impl LeaderWatch {
    pub(crate) fn new(elections: &Elections, key: Bytes) -> Self {
        let (sender, receiver) = watch::channel(None);
        let follows = follow(elections.clone(), key, sender);
        elections.runtime().spawn(follows);
        Self::of(receiver)
    }

    pub(crate) fn of(mut receiver: watch::Receiver<Option<Following>>) -> Self {
        receiver.mark_changed();
        Self(receiver)
    }

    /// Returns the leader, if there is one.
    pub fn leader(&self) -> Option<Following> {
        self.0.borrow().clone()
    }

    /// Waits until there is another leader, or none, or it says that it is leaving. Returns the
    /// leader, if there is one. The first call returns at once.
    ///
    /// Changes that come close together may be seen as one.
    ///
    /// # Errors
    ///
    /// [`WatchEnded`] when there are no more changes: the office of this watch is over, or its
    /// runtime is gone.
    ///
    /// # Cancel safety
    ///
    /// No change is lost.
    pub async fn changed(&mut self) -> Result<Option<Following>, WatchEnded> {
        self.0.changed().await.map_err(|_| WatchEnded)?;
        Ok(self.0.borrow_and_update().clone())
    }
}

/// Returns the leader of an election. A leader whose lease is free was lost.
pub(crate) fn leader_of(seen: &Election) -> Option<Following> {
    let term = seen.term.as_ref()?;
    let holder = seen.holder.as_ref()?;
    let leads = holder.token == term.token && term.stage != Stage::Ended;
    leads.then(|| Following {
        leader: term.leader.clone(),
        token: term.token,
        is_leaving: term.stage == Stage::Leaving,
    })
}

/// Tells watchers who leads.
pub(crate) fn tell(sender: &watch::Sender<Option<Following>>, leader: Option<Following>) -> bool {
    sender.send_if_modified(|last| {
        let is_new = *last != leader;
        *last = leader;
        is_new
    })
}

async fn follow(elections: Elections, key: Bytes, sender: watch::Sender<Option<Following>>) {
    let store = elections.store();
    let mut failures = 0_u64;
    loop {
        let followed = async {
            let seen = within(store.look(&key)).await?;
            tell(&sender, leader_of(&seen));
            let ends = seen.holder.as_ref().map(|holder| holder.remaining);
            let again = ends.unwrap_or(LOOK_EVERY).clamp(PAUSE / 10, LOOK_EVERY);
            tokio::select! {
                changed = store.changed(&key, None, &seen) => changed,
                () = sleep(again) => Ok(()),
            }
        };
        let followed = tokio::select! {
            followed = followed => followed,
            () = sender.closed() => return,
        };
        let Err(error) = followed else {
            failures = 0;
            continue;
        };
        failures += 1;
        if failures.is_power_of_two() {
            tracing::warn!(%error, failures, "an election cannot be followed, will retry");
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            () = sender.closed() => return,
        }
    }
}

/// Calls the store, for a limited time.
pub(crate) async fn within<T>(
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match timeout(CALL_LIMIT, call).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::new(format!("no answer within {CALL_LIMIT:?}"))),
    }
}
