//! What can be seen of the workers from outside: the inbox, and the books.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use keylane_inbox::InboxStore;
use keylane_sql::SqlInbox;
use keylane_sql::sqlx::{self, PgPool};

use crate::Failure;
use crate::judge::{Booking, Books, Kind};
use crate::plan::Account;

/// More than ever wait here.
const MOST: usize = 1_000_000;

pub(crate) struct Watch {
    pub(crate) pool: PgPool,
    pub(crate) inbox: SqlInbox,
    /// Relaxed: a figure for those who look.
    accepted: AtomicU64,
}

/// The accounts of each worker for which something waits, and how far the books were then.
pub(crate) struct Holdings {
    pub(crate) accounts: HashMap<String, Vec<i32>>,
    place: i64,
}

impl Holdings {
    pub(crate) fn of(&self, worker: &str) -> &[i32] {
        self.accounts.get(worker).map_or(&[], Vec::as_slice)
    }
}

impl Watch {
    pub(crate) fn new(pool: PgPool, inbox: SqlInbox) -> Self {
        Self {
            pool,
            inbox,
            accepted: AtomicU64::new(0),
        }
    }

    pub(crate) fn accepted(&self, transfers: usize) {
        self.accepted.fetch_add(transfers as u64, Ordering::Relaxed);
    }

    /// How many messages wait: debits and credits.
    pub(crate) async fn waiting(&self) -> Result<u64, Failure> {
        Ok(self.inbox.stats().await?.waiting)
    }

    /// About how many transfers are booked, and how many messages wait.
    pub(crate) async fn booked(&self) -> Result<(u64, u64), Failure> {
        let accepted = self.accepted.load(Ordering::Relaxed);
        let waiting = self.waiting().await?;
        Ok((accepted.saturating_sub(waiting), waiting))
    }

    /// Whose an account is: that of the worker that has booked there last.
    pub(crate) async fn holdings(&self) -> Result<Holdings, Failure> {
        let last = "select distinct on (account) account, worker, place from bookings
            order by account, place desc";
        let last: Vec<(i32, String, i64)> = sqlx::query_as(last).fetch_all(&self.pool).await?;
        let place = last.iter().map(|last| last.2).max().unwrap_or(0);
        let busy = self.busy().await?;
        let mut accounts: HashMap<String, Vec<i32>> = HashMap::new();
        for (account, worker, _) in last {
            if busy.contains(&account.to_be_bytes()[..]) {
                accounts.entry(worker).or_default().push(account);
            }
        }
        Ok(Holdings { accounts, place })
    }

    /// In which of the accounts of a worker others have booked since; `None` while something waits in
    /// one in which they have not.
    pub(crate) async fn taken_over(
        &self,
        worker: &str,
        since: &Holdings,
    ) -> Result<Option<usize>, Failure> {
        let accounts = since.of(worker);
        let others = "select distinct account from bookings
            where place > $1 and account = any($2) and worker <> $3";
        let others: Vec<i32> = sqlx::query_scalar(others)
            .bind(since.place)
            .bind(accounts)
            .bind(worker)
            .fetch_all(&self.pool)
            .await?;
        if others.len() < accounts.len() {
            // It may have been told to commit the last of an account just before it was stopped.
            let busy = self.busy().await?;
            let is_taken = |account: &i32| {
                others.contains(account) || !busy.contains(&account.to_be_bytes()[..])
            };
            if !accounts.iter().all(is_taken) {
                return Ok(None);
            }
        }
        Ok(Some(others.len()))
    }

    /// The keys for which something waits.
    async fn busy(&self) -> Result<HashSet<Vec<u8>>, Failure> {
        let waiting = self.inbox.scan(0, MOST, usize::MAX).await?;
        Ok(waiting.iter().map(|message| message.key.to_vec()).collect())
    }

    pub(crate) async fn books(&self) -> Result<Books, Failure> {
        let accounts = "select opening, spent, received from accounts order by id";
        let accounts: Vec<(i64, i64, i64)> = sqlx::query_as(accounts).fetch_all(&self.pool).await?;
        let accounts = accounts
            .into_iter()
            .map(|(opening, spent, received)| Account {
                opening,
                spent,
                received,
            });
        let bookings = "select transfer, kind from bookings order by place";
        let bookings: Vec<(i32, String)> = sqlx::query_as(bookings).fetch_all(&self.pool).await?;
        let bookings = bookings.into_iter().map(|(transfer, kind)| Booking {
            transfer,
            kind: match kind.as_str() {
                "debit" => Kind::Debit,
                "credit" => Kind::Credit,
                _ => Kind::Refusal,
            },
        });
        let stats = self.inbox.stats().await?;
        Ok(Books {
            accounts: accounts.collect(),
            bookings: bookings.collect(),
            left: stats.waiting + stats.letters,
        })
    }
}
