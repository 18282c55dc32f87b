//! The elections of a store, as one process takes part in them.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use keylane_leases::error::OpenError;
use keylane_leases::{Leases, Settings};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::candidates::Candidates;
use crate::store::{ElectionStore, History};

/// How often the history of the store is looked at.
const HISTORY_EVERY: Duration = Duration::from_secs(1);

/// How long a call to the store may take.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(5);

/// The elections of a store. All candidates of a handle share one task that renews their terms, in
/// batches of 1,000.
///
/// A handle is cheap to clone. Terms outlive the last handle; [`close`](Self::close) ends them.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use keylane_leader::{Elections, MemoryElections};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let elections = Elections::open(Arc::new(MemoryElections::new()))?;
/// let billing = elections.watch("billing");
/// assert_eq!(billing.leader(), None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Elections {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn ElectionStore>,
    leases: Leases,
    /// As it was seen last.
    history: watch::Sender<Option<History>>,
    /// Whether they are closed.
    closed: watch::Sender<bool>,
    candidates: Candidates,
    runtime: Handle,
}

impl Elections {
    /// Opens the elections of this store. Candidates and watchers run in the runtime of the caller.
    ///
    /// # Errors
    ///
    /// [`OpenError`] outside a Tokio runtime, or in one without timers.
    pub fn open(store: Arc<dyn ElectionStore>) -> Result<Self, OpenError> {
        let leases = Leases::open_with(Arc::clone(&store) as _, Settings::new())?;
        let runtime = Handle::current();
        let shared = Arc::new(Shared {
            store,
            leases,
            history: watch::Sender::new(None),
            closed: watch::Sender::new(false),
            candidates: Candidates::default(),
            runtime: runtime.clone(),
        });
        runtime.spawn(look_at_history(Arc::downgrade(&shared)));
        Ok(Self { shared })
    }

    /// Ends all terms, and grants no more. Close the candidates before: they hand over then, while
    /// they still have their term. Candidates that are left hand over without it, and leave.
    ///
    /// # Cancel safety
    ///
    /// Terms end even if the future is dropped.
    pub async fn close(&self) {
        self.shared.closed.send_replace(true);
        self.shared.leases.close().await;
    }

    pub(crate) fn store(&self) -> &Arc<dyn ElectionStore> {
        &self.shared.store
    }

    pub(crate) fn leases(&self) -> &Leases {
        &self.shared.leases
    }

    pub(crate) fn candidates(&self) -> &Candidates {
        &self.shared.candidates
    }

    /// Returns whether the elections are closed, now and later.
    pub(crate) fn closed(&self) -> watch::Receiver<bool> {
        self.shared.closed.subscribe()
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    /// Returns the history of the store, as it was seen last.
    pub(crate) fn history(&self) -> watch::Receiver<Option<History>> {
        self.shared.history.subscribe()
    }

    pub(crate) fn saw(&self, history: History) {
        self.shared.saw(history);
    }
}

impl fmt::Debug for Elections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elections")
            .field("owner", self.shared.leases.owner())
            .finish_non_exhaustive()
    }
}

/// Returns the key of an election in the store.
pub(crate) fn key_of(election: &str) -> Bytes {
    Bytes::from(format!("leader/{election}"))
}

impl Shared {
    fn saw(&self, history: History) {
        self.history.send_if_modified(|last| {
            let is_new = last.as_ref() != Some(&history);
            *last = Some(history);
            is_new
        });
    }
}

/// Looks at the history of the store now and then, until nothing uses it any more.
async fn look_at_history(shared: Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        // A store that cannot be reached says nothing about its history.
        if let Ok(Ok(seen)) = timeout(CALL_LIMIT, shared.store.history()).await {
            shared.saw(seen);
        }
        drop(shared);
        sleep(HISTORY_EVERY).await;
    }
}
