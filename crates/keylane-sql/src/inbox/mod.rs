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

// # How it works
//
//     accept ──► keys (locked until the commit) ──► messages, and lanes if there is none
//                                                     │
//     SqlSource: Lanes (pure) ─ RoundTrip ─► claim lanes, read their messages, remove what is done
//                Session (a task) ─────────► workers: until when all claims of this process last
//
// A lease for each key, as in `keylane-leases`, would be renewed by a write for each key. Keys of
// the inbox are never held without their worker, so the worker has the lease.
//
// # Accepting
//
// **Why is a late commit not passed?**
// The row of the key is locked before its sequences are drawn. They grow in the order of the
// commits (`postgres/accept.rs`).
//
// **Why two rows for a key?**
// Transactions that accept lock `keys` for as long as they last. Transactions that consume lock
// `lanes`. Neither waits for the other.
//
// **When does a lane go?**
// When nothing waits in it. Its key is locked, if that is possible at once, and is still at the
// point at which nothing was found (`unchanged` in `postgres/turn.rs`).
//
// **When does a lane come?**
// With its key: a transaction that makes the row of the key makes the row of the lane, so no index
// has to find it (`woken` in `postgres/accept.rs`).
//
// # Claiming and reading
//
// **Why do places of rows (`ctid`) travel?**
// They find a lane that is left, and its key, without a look into an index. A place is a hint: the
// row there must have the lane and the token, or the lane stays and is found elsewhere the next
// time (`Place` in `turn.rs`).
//
// **Where is the only message of a key?**
// Where it was stored. The lane knows the place from the accept that made both. It is looked at if
// that is the only accept so far (`only_message` in `postgres/turn.rs`).
//
// **Which lanes does a claim look at?**
// Those that are free since the last one of the claim before, and that no other transaction has
// changed. Otherwise it would pass the remains of all earlier claims, and the lanes that other
// workers are about to have. One claim of eight, and each after one that found too few, looks at
// all (`free` in `postgres/turn.rs`, `FROM_THE_FIRST`).
//
// **How is the limit of bytes kept?**
// Each message has an equal share of it. A larger message is left out, and the next 64 turns add up
// the bytes, which costs more (`RoundTrip::sums`).
//
// **May one deep key keep others from being claimed?**
// No: a quarter of the room is for lanes that wait (`Lanes::turn`).
//
// **May a claim read a message that is done already?**
// No. The row of a lane is changed where it was locked, and only if the snapshot that its messages
// are read from sees the row there (`claimed` in `postgres/turn.rs`).
//
// # Workers and tokens
//
// **Who has a lane?**
// A worker, under a token that only grows. All of its claims end together, in one row of `workers`,
// so a renewal is one row however many keys there are (`source/session.rs`).
//
// **Why is a stale write harmless?**
// Each done-mark, note and letter compares worker and token in its own statement, and holds the
// lane until it commits (`ours` in `postgres/turn.rs`).
//
// **May two round trips meet?**
// Two are under way where there is much to say, and the second may be done first. So a lane is
// asked for or left in one of them only. It is left once all answers about it have come
// (`Lanes::{begin, end}`).
//
// **What if an answer is lost?**
// The same is said again, which changes nothing. The source asks for the lanes that it has claimed
// (`Lanes::{take_back, adopt}`).
//
// **What if claims are not what they were taken for?**
// None of them counts any more. Attempts in flight are dropped. The worker leaves once no round
// trip of it is under way, and joins under another number. Its keys do not wait until its claims
// run out (`SqlSource::{end_session, leave}`).
//
// **Which message has killed a worker?**
// That is not known at first, because no row says which one was running. The lane knows of the
// death, and its next messages are handed over one at a time, each noted before it starts
// (`Lanes::bring`, `source/guard.rs`). A note before *every* start would be a round trip for every
// message of a key, one after the other. `exact_starts` pays it. Otherwise a first attempt is free,
// and a death is made up for afterwards.
//
// # Histories
//
// **What if numbers come a second time?**
// The row of a worker says in which history of the database it has joined, and each statement
// compares that with the server's own history. In another one nothing is done, and the source
// begins anew. Besides that, a random number names a message as well as its sequence, and a random
// number alone names a worker (`MessageRef`, `WorkerState` in `turn.rs`,
// `{postgres,mysql}/history.rs`).
//
// **What does another history need?**
// Sequences above all that are there, and a lane for each message. The first process that opens or
// joins makes them, and notes the history (`postgres/history.rs`, `mysql/history.rs`).
//
// **What if several enter another history at a time?**
// They wait for the one that has locked its row, and find it done. It locks lanes before keys, and
// the counter of tokens last, as turns do. If another transaction is in the way, it is made again
// (`mysql/history.rs`, `../again.rs`).
//
// # Faults
//
// **What if a handler drops its transaction and returns `Ok`?**
// Its message becomes a letter. The drop leaves a mark, which a later attempt, a commit or a
// rollback takes away (`uncommitted.rs`, `SqlSource::keep_uncommitted`).
//
// **What if the listener hears nothing?**
// Every five seconds of silence it asks for a sign of life, and connects anew without one. It has a
// connection of its own: one that is given up may be in the way of its pool for a quarter of an
// hour (`postgres/listen.rs`).
//
// **What if a session can only read?**
// The error that says so closes it and the idle ones of the pool, which are alive and would be lent
// again. Handlers begin by asking, in the same text (`Lent::close_idle`,
// `{postgres,mysql}/commit.rs`).
//
// **What if a right or a table is gone?**
// The failing part stands in the stats and is tried again, and the claims go on. The source is
// opened again only if this happens in `confirm`: the driver hears of no part while it waits there
// (`source/failures.rs`, `SqlSource::fail`).
//
// **What if letters are redriven?**
// The owner sees `redriven` change when it next reads the lane or would leave it, and within `poll`
// at the latest where it waits for versions. The messages that have not started come back
// (`Lanes::apply`).
//
// # What it costs
//
// With one message for each key the rows cost most: three of them are locked, changed and deleted,
// where a queue without order has one. These helped: look-ups by place, an index less, one row of
// the answer for each message, and claims that pass nothing. Beware of the planner: it plans the
// first five turns of a connection with their values. Where it believes a condition of `free` to be
// rare, it reads and sorts all lanes, for 50 ms each.

mod backend;

mod backlog;
pub use backlog::published_metrics;

mod claim;
pub use claim::Claim;

mod commit;
pub use commit::{Committed, SqlTransaction};

mod headers;

mod record;

mod lane;

mod mysql;

mod nonce;

mod postgres;

mod config;
pub use config::Settings;

mod source;
pub use source::{SourceSettings, SqlPosition, SqlSource};

mod store;

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

use backend::Backend;
use keylane_inbox::error::{AcceptError, StoreError};
use keylane_inbox::store::{Tail, check_limits};
use keylane_inbox::{Accepted, Inbox, NewMessage};
use record::{Items, Within};
use tokio::sync::{Semaphore, watch};
use tokio_util::task::TaskTracker;

use crate::again::again;
use crate::database::{Database, Pool};
use crate::error::{ErrorKind, OpenError, SqlError};
use crate::history::History;
use crate::tables::Tables;
use crate::transaction::{Either, InTransaction};

/// The longest time to enter another history of the database: that reads all lanes, keys and
/// messages, on a server that may have none of them in memory.
const ENTERING: Duration = Duration::from_secs(600);

/// The connections that are reserved for the source: see the README.
const OF_SOURCE: u32 = 5;

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
    name: Arc<str>,
}

struct Shared {
    backend: Box<dyn Backend>,
    database: Database,
    tables: Tables,
    /// The names that the servers give their history, for the end of transactions in MySQL.
    history: Option<History>,
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
        within(database, limit, database.check(tables)).await?;
        let mut history = None;
        let backend: Box<dyn Backend> = match &database.0 {
            Pool::Postgres(pool) => Box::new(postgres::Postgres::new(pool.clone(), tables)),
            Pool::MySql(pool) => {
                let history = history.insert(within(database, limit, History::of(pool)).await?);
                Box::new(mysql::MySql::new(pool.clone(), tables, history.clone()))
            }
        };
        match enter(&*backend, database, limit).await {
            // The inbox can be read. Nothing is accepted or claimed here, and a worker that joins
            // later enters first.
            Err(error) if error.kind() == ErrorKind::ReadOnly => {}
            entered => entered?,
        }
        let mut tail = Tail::default();
        tail.sequence = within(database, limit, backend.tail()).await?;
        Ok(Self {
            shared: Arc::new(Shared {
                backend,
                database: database.clone(),
                tables: tables.clone(),
                history,
                settings,
                begins: Arc::new(Semaphore::new(begins(database))),
                tail: watch::Sender::new(tail),
                redriven: Mutex::default(),
                is_closed: AtomicBool::new(false),
                calls: TaskTracker::new(),
            }),
            name: tables.named("messages").into(),
        })
    }

    /// Gives this handle another name in events, logs and metrics, for two inboxes whose tables
    /// have the same names in two databases. Without it an inbox has the name of its table of
    /// messages: `keylane_messages`, with the schema in front if [`Tables::schema`] sets one. Its
    /// sources are called `inbox` and this name.
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
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
        let (items, within) = record::prepare(&messages);
        if items.items.is_empty() {
            return Ok(Vec::new());
        }
        match accept_in(transaction.either(), &self.shared.tables, &items).await {
            Ok(accepted) => Ok(in_place(&accepted, &within)),
            Err(error) => {
                let error = error.at(|| self.shared.database.named());
                Err(AcceptError::Store(refused(error), messages))
            }
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
                reason: "the runtime shut down before the call finished".to_owned(),
                is_unconfirmed: true,
            }),
        }
    }

    /// Calls the database; returns an error once that takes too long.
    async fn limited<T>(
        &self,
        call: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, SqlError> {
        let database = &self.shared.database;
        let called = within(database, self.shared.settings.call_limit, call).await;
        called.map_err(|error| error.at(|| database.named()))
    }

    /// Enters the current history of the database.
    async fn enter(&self) -> Result<(), SqlError> {
        let shared = &*self.shared;
        enter(
            &*shared.backend,
            &shared.database,
            shared.settings.call_limit,
        )
        .await
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

/// Returns how many transactions of handlers may be open at a time.
fn begins(database: &Database) -> usize {
    database.most().saturating_sub(OF_SOURCE).max(1) as usize
}

async fn enter(
    backend: &dyn Backend,
    database: &Database,
    call_limit: Duration,
) -> Result<(), SqlError> {
    match within(database, call_limit, backend.is_entered()).await? {
        true => Ok(()),
        false => within(database, ENTERING, backend.enter()).await,
    }
}

/// Returns the result of a call, or an error once it takes too long.
async fn within<T, E: From<SqlError>>(
    database: &Database,
    limit: Duration,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let limited = tokio::time::timeout(limit, call);
    let timed_out = || SqlError::timed_out().at(|| database.named());
    (limited.await).unwrap_or_else(|_| Err(timed_out().into()))
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

async fn accept_in(
    transaction: Either<'_>,
    tables: &Tables,
    items: &Items<'_>,
) -> Result<Vec<Accepted>, SqlError> {
    Ok(match transaction {
        Either::Postgres(of) => postgres::accept_on(of, tables, items).await?,
        Either::MySql(of) => mysql::accept_on(of, tables, items, mysql::Bounds::Callers).await?,
    })
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
