//! Connections that are made again after they have broken.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use etcd_client::Client;
use keylane_connector::lock;
use tokio::runtime::{Handle, Id};
use tokio::task::JoinHandle;

use crate::error::EtcdError;
use crate::server::Etcd;

/// Connections for callers that come and go. It connects when it is first needed, and again after
/// a connection has broken.
///
/// A connection does not work outside its runtime when that has ended, or stands still. So each
/// runtime has its own, and waits for no other one.
pub(crate) struct Link {
    etcd: Etcd,
    places: Mutex<Vec<Place>>,
}

/// A runtime, and its connection.
struct Place {
    runtime: Id,
    /// A task that lasts as long as the runtime.
    task: JoinHandle<()>,
    slot: Arc<Slot>,
}

type Slot = tokio::sync::Mutex<Option<Connection>>;

impl Drop for Place {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    pub(crate) fn new(etcd: Etcd) -> Self {
        Self {
            etcd,
            places: Mutex::default(),
        }
    }

    /// Returns connections of its own to the same servers.
    pub(crate) fn again(&self) -> Self {
        Self::new(self.etcd.clone())
    }

    /// Returns the connection of this runtime, or a new one. Callers at the same time share it.
    pub(crate) async fn connection(&self) -> Result<Connection, EtcdError> {
        let slot = self.slot();
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| connection.works()) {
            return Ok(connection.clone());
        }
        *slot = None;
        let connection = Connection {
            client: self.etcd.connect().await?,
            place: self.etcd.place(),
            is_broken: Arc::default(),
        };
        *slot = Some(connection.clone());
        Ok(connection)
    }

    fn slot(&self) -> Arc<Slot> {
        let runtime = Handle::current().id();
        let mut places = lock(&self.places);
        places.retain(|place| !place.task.is_finished());
        if let Some(place) = places.iter().find(|place| place.runtime == runtime) {
            return Arc::clone(&place.slot);
        }
        let slot = Arc::default();
        places.push(Place {
            runtime,
            task: tokio::spawn(std::future::pending()),
            slot: Arc::clone(&slot),
        });
        slot
    }
}

/// A connection to the servers.
#[derive(Clone)]
pub(crate) struct Connection {
    client: Client,
    /// The hosts and ports of the servers.
    place: Arc<str>,
    is_broken: Arc<AtomicBool>,
}

impl Connection {
    /// Returns the client. Its calls go through [`ask`](Self::ask).
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    fn named(&self, error: etcd_client::Error) -> EtcdError {
        EtcdError::from(error).at(&self.place)
    }

    fn works(&self) -> bool {
        !self.is_broken.load(Ordering::Relaxed)
    }

    /// Waits for the answer to a call. If there is none, because the connection has broken or the
    /// caller does not wait any longer, the next caller gets a new connection: this one may be
    /// silent for good.
    pub(crate) async fn ask<T>(
        &self,
        call: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, EtcdError> {
        let unanswered = Unanswered(&self.is_broken);
        let answer = call.await.map_err(|error| self.named(error));
        match &answer {
            Err(error) if error.breaks_connection() => drop(unanswered),
            _ => std::mem::forget(unanswered),
        }
        answer
    }
}

impl Connection {
    /// Waits for something that may take as long as it will, and that a caller drops when it likes.
    pub(crate) async fn listen<T>(
        &self,
        call: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, EtcdError> {
        let answer = call.await.map_err(|error| self.named(error));
        if answer.as_ref().is_err_and(EtcdError::breaks_connection) {
            self.is_broken.store(true, Ordering::Relaxed);
        }
        answer
    }
}

/// A call without an answer. It breaks its connection when it is dropped.
struct Unanswered<'a>(&'a AtomicBool);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
