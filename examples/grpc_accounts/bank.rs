//! The service: a bank whose handlers read, wait and write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use tonic::{Request, Response, Status};

use crate::lanes::HEADER;
use crate::wire::accounts_server::Accounts;
use crate::wire::{Cents, Nothing};

/// The account whose calls take a hundred times as long.
pub(crate) const SLOW: &str = "slow";

/// How long the bank thinks between reading and writing.
const THINKS: Duration = Duration::from_millis(2);

/// Most accounts; the bank opens no more.
const ACCOUNTS: usize = 10_000;

/// The bank. Clones are the same bank.
#[derive(Clone, Default)]
pub(crate) struct Bank {
    accounts: Arc<Mutex<HashMap<String, Account>>>,
}

#[derive(Clone, Copy, Default)]
struct Account {
    cents: u64,
    calls: usize,
    most_calls: usize,
}

impl Bank {
    /// Most calls for this account that were in the bank at once.
    pub(crate) fn most_calls(&self, account: &str) -> usize {
        self.lock()
            .get(account)
            .map_or(0, |account| account.most_calls)
    }

    /// Reads, waits and writes. Two that overlap would both write what they made of the same balance.
    async fn change<T>(
        &self,
        request: &Request<T>,
        change: impl FnOnce(u64) -> Result<u64, Status>,
    ) -> Result<Response<Cents>, Status> {
        let name = account(request)?;
        let visit = self.enter(name)?;
        let before = visit.with(|account| account.cents);
        sleep(if name == SLOW { THINKS * 100 } else { THINKS }).await;
        let cents = change(before)?;
        visit.with(|account| account.cents = cents);
        Ok(Response::new(Cents { cents }))
    }

    fn enter(&self, name: &str) -> Result<Visit<'_>, Status> {
        let mut accounts = self.lock();
        if accounts.len() >= ACCOUNTS && !accounts.contains_key(name) {
            return Err(Status::resource_exhausted(
                "the bank opens no more accounts",
            ));
        }
        let account = accounts.entry(name.to_owned()).or_default();
        account.calls += 1;
        account.most_calls = account.most_calls.max(account.calls);
        drop(accounts);
        Ok(Visit {
            bank: self,
            name: name.to_owned(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call in the bank, until it is dropped.
struct Visit<'a> {
    bank: &'a Bank,
    name: String,
}

impl Visit<'_> {
    fn with<T>(&self, see: impl FnOnce(&mut Account) -> T) -> T {
        let mut accounts = self.bank.lock();
        see(accounts.entry(self.name.clone()).or_default())
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.with(|account| account.calls -= 1);
    }
}

/// The account that the lane was chosen by. There is no other way to name one.
fn account<T>(request: &Request<T>) -> Result<&str, Status> {
    let account = request.metadata().get(HEADER);
    let account = account.and_then(|account| account.to_str().ok());
    match account {
        Some(account) if !account.is_empty() => Ok(account),
        _ => Err(Status::invalid_argument(
            "name the account in the metadata x-account, in visible ASCII",
        )),
    }
}

#[tonic::async_trait]
impl Accounts for Bank {
    async fn deposit(&self, request: Request<Cents>) -> Result<Response<Cents>, Status> {
        let amount = request.get_ref().cents;
        self.change(&request, |cents| {
            let full = || Status::out_of_range("no account holds as much");
            cents.checked_add(amount).ok_or_else(full)
        })
        .await
    }

    async fn withdraw(&self, request: Request<Cents>) -> Result<Response<Cents>, Status> {
        let amount = request.get_ref().cents;
        self.change(&request, |cents| {
            let short = || Status::failed_precondition(format!("there are only {cents} cents"));
            cents.checked_sub(amount).ok_or_else(short)
        })
        .await
    }

    async fn balance(&self, request: Request<Nothing>) -> Result<Response<Cents>, Status> {
        self.change(&request, Ok).await
    }
}
