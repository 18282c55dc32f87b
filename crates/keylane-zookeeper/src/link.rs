//! The session of a store, and another one when it is lost.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use keylane_leases::Owner;
use keylane_leases::error::StoreError;
use tokio::time::timeout;
use zookeeper_client::{Client, CreateMode, Error};

use crate::error::{store, told, unconnected};
use crate::names::Paths;
use crate::server::ZooKeeper;
use crate::session::{Session, sweep};
use crate::worker::Worker;

/// How long it may take to open a session: an election of the servers takes some seconds.
const OPENING: Duration = Duration::from_secs(15);

/// The pause after no server has answered.
const PAUSE: Duration = Duration::from_millis(200);

/// The sessions of a store, one after the other.
pub(crate) struct Link {
    settings: ZooKeeper,
    paths: Arc<Paths>,
    highest: Arc<AtomicI64>,
    state: Mutex<State>,
}

struct State {
    /// Dropped after the session.
    current: Current,
    worker: Option<Worker>,
}

type Opening = Shared<BoxFuture<'static, Result<Arc<Session>, StoreError>>>;

enum Current {
    None,
    Opening(Opening),
    Open(Arc<Session>),
}

impl Link {
    pub(crate) fn new(settings: ZooKeeper, root: String) -> Self {
        Self {
            settings,
            paths: Arc::new(Paths::new(root)),
            highest: Arc::new(AtomicI64::new(i64::MIN)),
            state: Mutex::new(State {
                current: Current::None,
                worker: None,
            }),
        }
    }

    /// Returns the longest time to live in a session as it is asked for. The servers may grant a
    /// shorter session.
    pub(crate) fn longest_ttl(&self) -> Duration {
        self.settings.longest_ttl()
    }

    /// Returns the session. Opens one if there is none, or if the last one is lost; several calls
    /// at a time open one. If this is dropped, the session is opened all the same.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, StoreError> {
        let opening = {
            let mut state = self.lock();
            match &state.current {
                Current::Open(session) if session.is_alive() => return Ok(Arc::clone(session)),
                Current::Opening(opening) => opening.clone(),
                _ => self.open(&mut state)?,
            }
        };
        let opened = opening.clone().await;
        let mut state = self.lock();
        if let Current::Opening(current) = &state.current
            && current.ptr_eq(&opening)
        {
            state.current = match &opened {
                Ok(session) => Current::Open(Arc::clone(session)),
                Err(_) => Current::None,
            };
            if let (Some(worker), Ok(session)) = (&mut state.worker, &opened) {
                worker.serves(session.watcher());
            }
        }
        opened
    }

    fn open(&self, state: &mut State) -> Result<Opening, StoreError> {
        let worker = match state.worker.take() {
            Some(worker) => worker,
            None => Worker::start().map_err(|error| {
                StoreError::new(format!("cannot start a thread: {error}: raise its limit"))
            })?,
        };
        let settings = self.settings.clone();
        let (paths, highest) = (Arc::clone(&self.paths), Arc::clone(&self.highest));
        let opened = worker.spawn(open(settings, paths, highest));
        state.worker = Some(worker);
        let opening = async move {
            let ended = || StoreError::new("the thread of the session has ended");
            opened.await.unwrap_or_else(|_| Err(ended()))
        };
        let opening = opening.boxed().shared();
        state.current = Current::Opening(opening.clone());
        Ok(opening)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of the state is complete before the next one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("settings", &self.settings)
            .field("root", &self.paths.root())
            .finish_non_exhaustive()
    }
}

async fn open(
    settings: ZooKeeper,
    paths: Arc<Paths>,
    highest: Arc<AtomicI64>,
) -> Result<Arc<Session>, StoreError> {
    let client = connect(&settings).await?;
    let before = highest.load(Ordering::Relaxed);
    let session = Arc::new(Session::new(client, &settings, paths, highest));
    let prepared = timeout(OPENING, prepare(&session, before)).await;
    let why = || format!("a session was not ready within {OPENING:?}");
    let silent = || unconnected(settings.hosts(), &why());
    prepared.map_err(|_| silent())??;
    tracing::debug!(
        session = format_args!("{:#x}", session.id()), timeout = ?session.timeout(),
        "a session with ZooKeeper is open"
    );
    tokio::spawn(sweep(Arc::downgrade(&session)));
    Ok(session)
}

/// Asks all servers, again and again. The client itself would wait twice as long each time.
async fn connect(settings: &ZooKeeper) -> Result<Client, StoreError> {
    let mut why = format!("no server has answered within {OPENING:?}");
    let connects = async {
        loop {
            match settings.connector().connect(settings.hosts()).await {
                Ok(client) => return Ok(client),
                Err(error @ Error::AuthFailed) => return Err(told(&error)),
                Err(error) => why = told(&error),
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let connected = timeout(OPENING, connects).await;
    let connected = connected.unwrap_or(Err(why));
    connected.map_err(|why| unconnected(settings.hosts(), &why))
}

/// Makes what the nodes of a session are below, and the first one.
async fn prepare(session: &Session, highest_before: i64) -> Result<(), StoreError> {
    let options = CreateMode::Persistent.with_acls(session.acls());
    for folder in session.paths.folders() {
        let made = session.client.mkdir(&folder, &options).await;
        made.map_err(|error| store(&session.hosts, &error))?;
    }
    make_history(session).await?;
    let first = session.first_beat().await?;
    if first.czxid < highest_before {
        tracing::error!(
            seen = highest_before,
            now = first.czxid,
            root = session.paths.root(),
            "ZooKeeper has lost what it had confirmed: restored from a backup? Tokens may repeat: \
             look at what writers have stored since"
        );
        renew_history(session).await?;
    }
    Ok(())
}

async fn make_history(session: &Session) -> Result<(), StoreError> {
    let (path, name) = (session.paths.history(), new_history());
    let options = CreateMode::Persistent.with_acls(session.acls());
    let made = session
        .client
        .create(&path, name.as_bytes(), &options)
        .await;
    match made {
        Ok(_) | Err(Error::NodeExists) => Ok(()),
        Err(error) => Err(store(&session.hosts, &error)),
    }
}

async fn renew_history(session: &Session) -> Result<(), StoreError> {
    let (path, name) = (session.paths.history(), new_history());
    let written = session.client.set_data(&path, name.as_bytes(), None).await;
    written
        .map(drop)
        .map_err(|error| store(&session.hosts, &error))
}

/// Returns a name that no other history has.
fn new_history() -> String {
    Owner::random().to_string()
}
