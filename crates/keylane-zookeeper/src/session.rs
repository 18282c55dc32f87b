//! One session with the servers, and what it has made.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use keylane_leases::error::StoreError;
use tokio::sync::Notify;
use zookeeper_client::{Acls, Client, CreateMode, Error, Stat, StateWatcher};

use crate::book::{Book, Due};
use crate::elections::armed::AllArmed;
use crate::elections::known::Known;
use crate::error::{Failed, store, unconnected};
use crate::names::Paths;
use crate::server::ZooKeeper;

/// A session. A node belongs to it only if its `ephemeralOwner` is this one: a node of an earlier
/// session of this process is like one of another process.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// The servers as errors name them.
    pub(crate) hosts: Arc<str>,
    id: i64,
    pub(crate) paths: Arc<Paths>,
    acls: Acls<'static>,
    longest_ttl: Duration,
    timeout: Duration,
    /// The highest transaction that this process has seen, over all its sessions.
    highest: Arc<AtomicI64>,
    /// The server has put another session in its place.
    is_replaced: AtomicBool,
    next: AtomicU64,
    book: Mutex<Book>,
    armed: AllArmed,
    elections: Known,
    changed: Arc<Notify>,
}

impl Session {
    pub(crate) fn new(
        client: Client,
        settings: &ZooKeeper,
        paths: Arc<Paths>,
        highest: Arc<AtomicI64>,
    ) -> Self {
        let timeout = client.session_timeout();
        Self {
            id: client.session_id().0,
            hosts: settings.hosts().into(),
            acls: settings.acls(),
            longest_ttl: settings.longest_ttl_in(timeout),
            timeout,
            client,
            paths,
            highest,
            is_replaced: AtomicBool::new(false),
            next: AtomicU64::new(0),
            book: Mutex::new(Book::new()),
            armed: AllArmed::default(),
            elections: Known::default(),
            changed: Arc::new(Notify::new()),
        }
    }

    /// Returns whether calls may use it. Only the server knows whether it still lasts.
    pub(crate) fn is_alive(&self) -> bool {
        !self.is_replaced.load(Ordering::Relaxed) && !self.client.state().is_terminated()
    }

    /// Makes the next call open another session.
    pub(crate) fn give_up(&self) {
        self.is_replaced.store(true, Ordering::Relaxed);
    }

    pub(crate) fn watcher(&self) -> StateWatcher {
        self.client.state_watcher()
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns a number that nothing else in this session has.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the name of a grant with this number: no other one ever has it.
    pub(crate) fn guard(&self, number: u64) -> String {
        format!("{:016x}-{number}", self.id)
    }

    /// Returns the number of a grant of this session.
    pub(crate) fn number_of(&self, guard: &str) -> Option<u64> {
        let (session, number) = guard.split_once('-')?;
        (session == format!("{:016x}", self.id)).then(|| number.parse().ok())?
    }

    /// Returns whether a node belongs to this session.
    pub(crate) fn owns(&self, stat: &Stat) -> bool {
        stat.ephemeral_owner == self.id
    }

    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    pub(crate) fn acls(&self) -> Acls<'static> {
        self.acls
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        // Each change of the book is complete before the next one.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the watches of candidates that do not wait for them now.
    pub(crate) fn armed(&self) -> &AllArmed {
        &self.armed
    }

    /// Returns what is known of elections without a read.
    pub(crate) fn elections(&self) -> &Known {
        &self.elections
    }

    /// Forgets a candidate whose node is gone.
    pub(crate) fn forget_candidate(&self, path: &str) {
        self.book().forget_candidate(path);
        self.armed.forget(path);
    }

    /// Has the book looked at: something may be due earlier than before.
    pub(crate) fn book_changed(&self) {
        self.changed.notify_one();
    }

    /// Checks that a lease cannot outlast the session.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), StoreError> {
        if ttl <= self.longest_ttl {
            return Ok(());
        }
        Err(StoreError::new(format!(
            "a lease of {ttl:?} would outlast its session of {:?}: lease for at most {:?}, or raise \
             `ZooKeeper::session_timeout` and `maxSessionTimeout` of the servers",
            self.timeout, self.longest_ttl
        )))
    }

    /// Notes a transaction that the server has told of.
    pub(crate) fn saw(&self, transaction: i64) {
        self.highest.fetch_max(transaction, Ordering::Relaxed);
    }

    /// Asks the server whether this session lasts. The answer is one of a majority: the leader
    /// writes a transaction in this session.
    ///
    /// The request is sent when this is called, before it is polled. Requests that are sent later
    /// are answered later, and by a server that has that transaction.
    pub(crate) fn beat(
        &self,
    ) -> Result<impl Future<Output = Result<Stat, StoreError>> + Send + '_, StoreError> {
        let path = self.paths.beat(self.id);
        let mut writer = self.client.new_multi_writer();
        let options = CreateMode::Ephemeral.with_acls(self.acls);
        let added = writer
            .add_delete(&path, None)
            .and_then(|()| writer.add_create(&path, b"", &options));
        added.map_err(|error| store(&self.hosts, &error))?;
        let beaten = writer.commit();
        let seen = self.client.check_stat(&path);
        Ok(async move {
            match beaten.await.map_err(Failed::from) {
                Ok(_) => self.is_mine(seen.await.map_err(|error| store(&self.hosts, &error))?),
                Err(Failed::Unknown(error)) => Err(store(&self.hosts, &error)),
                // An operator has removed the node.
                Err(Failed::Missing | Failed::Exists) => self.first_beat().await,
            }
        })
    }

    /// Makes the node that [`beat`](Self::beat) makes anew.
    pub(crate) async fn first_beat(&self) -> Result<Stat, StoreError> {
        let path = self.paths.beat(self.id);
        let options = CreateMode::Ephemeral.with_acls(self.acls);
        let made = self.client.create(&path, b"", &options);
        let seen = self.client.check_stat(&path);
        match made.await {
            Ok(_) | Err(Error::NodeExists) => {}
            Err(error) => return Err(store(&self.hosts, &error)),
        }
        self.is_mine(seen.await.map_err(|error| store(&self.hosts, &error))?)
    }

    fn is_mine(&self, seen: Option<Stat>) -> Result<Stat, StoreError> {
        match seen {
            Some(stat) if self.owns(&stat) => {
                self.saw(stat.czxid);
                Ok(stat)
            }
            _ => Err(self.replaced()),
        }
    }

    /// Returns the error when what this session has made belongs to another one: some servers that
    /// speak this protocol put a new session in the place of a lost one, and do not say so.
    pub(crate) fn replaced(&self) -> StoreError {
        self.give_up();
        unconnected(
            &self.hosts,
            "the server has replaced the session by another one: its leases are lost, and the next \
             call makes a new session",
        )
    }

    /// Removes the nodes of a grant, and nothing of any other one. The request is sent when this is
    /// called.
    pub(crate) fn remove_grant(
        &self,
        number: u64,
        key: &[u8],
    ) -> impl Future<Output = Result<(), StoreError>> + Send + '_ {
        let (grant, lease) = (self.paths.grant(&self.guard(number)), self.paths.lease(key));
        let mut writer = self.client.new_multi_writer();
        let added = writer
            .add_delete(&grant, None)
            .and_then(|()| writer.add_delete(&lease, None));
        let removed = writer.commit();
        async move {
            added.map_err(|error| store(&self.hosts, &error))?;
            match removed.await.map_err(Failed::from) {
                Ok(_) => {}
                Err(Failed::Unknown(error)) => return Err(store(&self.hosts, &error)),
                // It is gone; or an operator has removed the node of its lease alone.
                Err(Failed::Missing | Failed::Exists) => self.remove(&grant).await?,
            }
            self.book().forget(number);
            Ok(())
        }
    }

    /// Removes a node, if it is there. The request is sent when this is called.
    pub(crate) fn remove(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let removed = self.client.delete(path, None);
        let hosts = Arc::clone(&self.hosts);
        async move {
            match removed.await {
                Ok(()) | Err(Error::NoNode) => Ok(()),
                Err(error) => Err(store(&hosts, &error)),
            }
        }
    }

    /// Removes what is due, all at once.
    async fn remove_due(&self) {
        let due = self.book().due(Instant::now());
        let removed = due.into_iter().map(|due| async move {
            match due {
                Due::Grant(number, key) => self.remove_grant(number, &key).await,
                Due::Candidate(path) => {
                    self.remove(&path).await?;
                    self.forget_candidate(&path);
                    Ok(())
                }
            }
        });
        for removed in futures::future::join_all(removed).await {
            if let Err(error) = removed {
                tracing::debug!(%error, "a node was not removed, will retry");
            }
        }
    }
}

/// Removes what has run out, until the session is over. A lease that is not renewed must not
/// last as long as the session: its request may have been dropped before the answer came.
pub(crate) async fn sweep(session: Weak<Session>) {
    loop {
        let Some(alive) = session.upgrade().filter(|session| session.is_alive()) else {
            return;
        };
        alive.remove_due().await;
        let changed = Arc::clone(&alive.changed);
        let next = alive.book().first();
        drop(alive);
        let wait = next.map(|next| next.saturating_duration_since(Instant::now()));
        tokio::select! {
            () = changed.notified() => {}
            () = tokio::time::sleep(wait.unwrap_or(IDLE)) => {}
        }
    }
}

/// How often an idle session is looked at, to see whether it is over.
const IDLE: Duration = Duration::from_secs(1);
