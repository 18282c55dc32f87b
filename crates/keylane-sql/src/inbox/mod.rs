//! The inbox in tables.
//!
//! | table | a row |
//! | --- | --- |
//! | `messages` | a message that waits, by its sequence |
//! | `letters` | a dead letter as it was accepted, and the reason |
//! | `keys` | a key with messages that wait: producers lock it |
//! | `lanes` | the same key for consumers: which worker has it, and under which token |
//! | `workers` | a process that consumes, and the end of its claims |
//! | `known` | the id, or key and version, of a message that was accepted |
//! | `versions` | the last version of a key that was handled |
//! | `history` | the history of the database that the numbers in the other tables belong to |
//!
//! Producers and consumers lock different rows, so neither waits for the other: a long transaction
//! of the user's that accepts messages delays no done-mark.

mod again;

mod backend;

mod claim;
pub use claim::{Claim, Committed, SqlTransaction};

mod headers;

mod item;

mod lane;

mod mysql;

mod nonce;

mod postgres;

mod settings;
pub use settings::Settings;

mod source;
pub use source::{Position, SourceSettings, SqlSource};

mod store;

mod transaction;
pub use transaction::InTransaction;

mod turn;

mod uncommitted;

#[cfg(test)]
mod turn_tests;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use again::again;
use backend::Backend;
use item::Within;
use keylane_inbox::error::{AcceptError, StoreError};
use keylane_inbox::store::{Tail, check_limits};
use keylane_inbox::{Accepted, Inbox, NewMessage};
use tokio::sync::{Semaphore, watch};
use tokio_util::task::TaskTracker;

use crate::database::{Database, Pool};
use crate::error::{ErrorKind, OpenError, SqlError};
use crate::tables::Tables;

/// The longest time to enter another history of the database: that reads all lanes, keys and
/// messages, on a server that may have none of them in memory.
const ENTERING: Duration = Duration::from_secs(600);

/// A durable inbox in PostgreSQL, MySQL or MariaDB, shared by any number of processes.
///
/// It is an [`InboxStore`](keylane_inbox::InboxStore): [`inbox`](Self::inbox) returns the handle
/// that accepts messages and shows dead letters. An accepted message is committed. A handle is
/// cheap to clone, and all clones are the same inbox.
///
/// # Order
///
/// Messages of a key are handled in the order in which they were committed. Calls that accept
/// messages of one key at the same time wait for each other.
///
/// # Duplicates
///
/// A message with an id, or with a version, is stored once, even if several processes accept it:
/// see [`Settings::remember`].
///
/// # Examples
///
/// ```no_run
/// use keylane_sql::{Database, Settings, SqlInbox, Tables};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let database = Database::connect("postgres://worker:secret@db.internal/orders").await?;
/// database.migrate(&Tables::new()).await?;
/// let orders = SqlInbox::open(&database, &Tables::new(), Settings::new()).await?;
/// orders.inbox().accept("user-7", "the first order").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqlInbox {
    shared: Arc<Shared>,
}

struct Shared {
    backend: Box<dyn Backend>,
    database: Database,
    tables: Tables,
    /// The names that the servers give their history, for the end of transactions in MySQL.
    history: Option<mysql::History>,
    settings: Settings,
    /// Limits the transactions that handlers begin.
    begins: Arc<Semaphore>,
    tail: watch::Sender<Tail>,
    /// The letters that this handle has redriven and that were not yet asked for.
    redriven: Mutex<VecDeque<u64>>,
    is_closed: AtomicBool,
    /// Calls in progress.
    calls: TaskTracker,
}

impl SqlInbox {
    /// Opens the inbox in these tables, which must be [migrated](Database::migrate).
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the tables are older or newer than this program, or cannot be reached.
    pub async fn open(
        database: &Database,
        tables: &Tables,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        let limit = settings.call_limit;
        within(limit, database.check(tables)).await?;
        let mut history = None;
        let backend: Box<dyn Backend> = match &database.0 {
            Pool::Postgres(pool) => Box::new(postgres::Postgres::new(pool.clone(), tables)),
            Pool::MySql(pool) => {
                let history = history.insert(within(limit, mysql::History::of(pool)).await?);
                Box::new(mysql::MySql::new(pool.clone(), tables, history.clone()))
            }
        };
        match enter(&*backend, limit).await {
            // The inbox can be read. Nothing is accepted or claimed here, and a worker that joins
            // later enters first.
            Err(error) if error.kind() == ErrorKind::ReadOnly => {}
            entered => entered?,
        }
        let mut tail = Tail::default();
        tail.sequence = within(limit, backend.tail()).await?;
        Ok(Self {
            shared: Arc::new(Shared {
                backend,
                database: database.clone(),
                tables: tables.clone(),
                history,
                settings,
                begins: Arc::new(Semaphore::new(claim::begins(database))),
                tail: watch::Sender::new(tail),
                redriven: Mutex::default(),
                is_closed: AtomicBool::new(false),
                calls: TaskTracker::new(),
            }),
        })
    }

    /// Returns the handle that accepts messages and shows dead letters. What [`Inbox`] says about
    /// directories, and about one process at a time, does not apply to tables.
    pub fn inbox(&self) -> Inbox {
        Inbox::with_store(Arc::new(self.clone()))
    }

    /// Stores messages in a transaction of your own: they are accepted when it commits, and not at
    /// all otherwise. They commit together with your other writes: a transactional outbox, or
    /// inbox.
    ///
    /// The keys of the messages are locked until the transaction ends. To keep two transactions
    /// from waiting for each other, accept all messages of one transaction in one call. A process
    /// that is paused in the middle keeps its locks, and calls that accept messages of the same
    /// keys wait: let the database end such transactions (`idle_in_transaction_session_timeout`, or
    /// `wait_timeout`).
    ///
    /// # Errors
    ///
    /// [`AcceptError`] gives the messages back. After any error other than a limit, roll the
    /// transaction back.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, roll the transaction back.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn sell(
    /// #     pool: keylane_sql::sqlx::PgPool,
    /// #     orders: keylane_sql::SqlInbox,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use keylane_inbox::NewMessage;
    /// use keylane_sql::sqlx;
    ///
    /// let mut transaction = pool.begin().await?;
    /// sqlx::query("update stock set left_over = left_over - 1 where article = 4711")
    ///     .execute(&mut *transaction)
    ///     .await?;
    /// orders.accept_in(&mut *transaction, vec![NewMessage::new("user-7", "one of 4711")]).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn accept_in<T: InTransaction>(
        &self,
        transaction: &mut T,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Accepted>, AcceptError<Vec<NewMessage>>> {
        if let Err(error) = check_limits(&messages) {
            return Err(AcceptError::Limit(error, messages));
        }
        let (items, within) = item::prepare(&messages);
        if items.items.is_empty() {
            return Ok(Vec::new());
        }
        match transaction.accept(&self.shared.tables, items).await {
            Ok(accepted) => Ok(in_place(&accepted, &within)),
            Err(error) => Err(AcceptError::Store(refused(error), messages)),
        }
    }

    /// Removes ids and versions that are older than [`Settings::remember`], 1,000 in a statement.
    /// Each statement may take as long as a [call](Settings::call_limit). Returns how many it
    /// removed. A source of this inbox calls this every minute.
    ///
    /// # Errors
    ///
    /// [`SqlError`] if the database cannot do it now.
    pub async fn remove_old(&self) -> Result<u64, SqlError> {
        let mut removed = 0;
        loop {
            let some = self
                .shared
                .backend
                .forget(self.shared.settings.remember, 1_000);
            let some = self.limited(some).await?;
            removed += some;
            if some == 0 {
                return Ok(removed);
            }
        }
    }

    /// Runs a call in a task, so that it finishes even if the caller stops waiting, and repeats it
    /// after a conflict with another call.
    async fn call<T, F>(
        &self,
        call: impl Fn(Arc<Shared>) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SqlError>> + Send,
    {
        let token = self.shared.calls.token();
        if self.shared.is_closed.load(Ordering::SeqCst) {
            return Err(StoreError::Closed);
        }
        let inbox = self.clone();
        let called = tokio::spawn(async move {
            let _token = token;
            let inbox = &inbox;
            again(move || inbox.limited(call(Arc::clone(&inbox.shared)))).await
        });
        match called.await {
            Ok(called) => called.map_err(refused),
            // The runtime shuts down.
            Err(_) => Err(StoreError::Server {
                reason: "the call has not come to its end".to_owned(),
                is_unconfirmed: true,
            }),
        }
    }

    /// Calls the database; returns an error once that takes too long.
    async fn limited<T>(
        &self,
        call: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, SqlError> {
        within(self.shared.settings.call_limit, call).await
    }

    /// Enters the current history of the database.
    async fn enter(&self) -> Result<(), SqlError> {
        enter(&*self.shared.backend, self.shared.settings.call_limit).await
    }

    fn note_stored(&self, accepted: &[Accepted]) {
        let last = accepted.iter().filter(|accepted| !accepted.is_duplicate());
        let Some(last) = last.map(|accepted| accepted.sequence()).max() else {
            return;
        };
        self.shared.tail.send_if_modified(|tail| {
            let is_higher = last > tail.sequence;
            tail.sequence = tail.sequence.max(last);
            is_higher
        });
    }

    fn redriven(&self) -> std::sync::MutexGuard<'_, VecDeque<u64>> {
        let redriven = self.shared.redriven.lock();
        redriven.unwrap_or_else(PoisonError::into_inner)
    }
}

async fn enter(backend: &dyn Backend, call_limit: Duration) -> Result<(), SqlError> {
    match within(call_limit, backend.is_entered()).await? {
        true => Ok(()),
        false => within(ENTERING, backend.enter()).await,
    }
}

/// Returns the result of a call, or an error once it takes too long.
async fn within<T, E: From<SqlError>>(
    limit: Duration,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let limited = tokio::time::timeout(limit, call);
    (limited.await).unwrap_or_else(|_| Err(SqlError::timed_out().into()))
}

/// Returns the answers for a call, from those for the messages that are not repeated within it.
fn in_place(accepted: &[Accepted], within: &[Within]) -> Vec<Accepted> {
    let mut answers: Vec<Accepted> = Vec::with_capacity(within.len());
    for place in within {
        answers.push(match *place {
            Within::New(at) => accepted[at],
            Within::RepeatOf(first) => Accepted::Duplicate(answers[first].sequence()),
        });
    }
    answers
}

/// Returns the error that a caller of the inbox gets.
fn refused(error: SqlError) -> StoreError {
    StoreError::Server {
        is_unconfirmed: error.kind() == ErrorKind::Unreachable,
        reason: error.to_string(),
    }
}

impl fmt::Debug for SqlInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqlInbox")
            .field(&self.shared.backend)
            .finish()
    }
}
