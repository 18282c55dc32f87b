//! Books in nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylane_leader::Term;
use keylane_zookeeper::{FenceError, Refusal, ZooKeeper, ZooKeeperLeases};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::Failure;
use crate::judge::Entry;
use crate::words::{Bill, Written};

/// The tick of the server.
pub(crate) const TICK: Duration = Duration::from_millis(200);

/// A term must be shorter than three quarters of a session, less half a tick.
const SESSION: Duration = Duration::from_secs(2);

/// The server allows sessions of 20 ticks at most.
const LONGEST_SESSION: Duration = Duration::from_secs(4);

/// Elections and leases.
const ROOT: &str = "/watchman";

/// A node for each account. It is written once for each period, so its version is the last period.
const ACCOUNTS: &str = "/accounts";

/// A node for each bill. Each has a name of its own: what is billed twice is to be seen.
const BILLS: &str = "/bills";

pub(crate) struct Nodes {
    address: String,
    pub(super) leases: Arc<ZooKeeperLeases>,
    /// Of bills that this process has written.
    number: AtomicU64,
}

async fn connect(address: &str) -> Result<Client, Failure> {
    let connector = Client::connector().with_session_timeout(LONGEST_SESSION);
    Ok(connector.connect(address).await?)
}

pub(super) async fn create(address: &str, accounts: u32) -> Result<(), Failure> {
    let client = connect(address).await?;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for folder in [ACCOUNTS, BILLS] {
        client.create(folder, b"", &options).await?;
    }
    for id in 0..accounts {
        client.create(&account(id), b"", &options).await?;
    }
    Ok(())
}

fn account(id: u32) -> String {
    format!("{ACCOUNTS}/{id:04}")
}

impl Nodes {
    pub(super) fn open(address: &str) -> Result<Self, Failure> {
        let zookeeper = ZooKeeper::at(address)?.server_tick(TICK);
        let zookeeper = zookeeper.session_timeout(SESSION)?;
        Ok(Self {
            address: address.to_owned(),
            leases: Arc::new(ZooKeeperLeases::open(&zookeeper, ROOT)?),
            number: AtomicU64::new(0),
        })
    }

    pub(super) async fn billed(&self) -> Result<Vec<u32>, Failure> {
        let client = connect(&self.address).await?;
        let mut accounts = client.list_children(ACCOUNTS).await?;
        accounts.sort_unstable();
        let mut billed = Vec::new();
        for id in 0..accounts.len() {
            let id = u32::try_from(id)?;
            let (_, stat) = client.get_data(&account(id)).await?;
            billed.push(u32::try_from(stat.version)?);
        }
        Ok(billed)
    }

    /// The fence, the period and the bill are one transaction.
    pub(super) async fn write(
        &self,
        term: &Term,
        leader: &str,
        bill: Bill,
    ) -> Result<Written, Failure> {
        let before = bill.period.cast_signed() - 1;
        let fence = self.leases.fence(term.key().clone(), term.token());
        let written = fence
            .set(account(bill.account), "", Some(before))
            .create(self.name(term, leader, bill), "")
            .commit();
        match written.await {
            Ok(()) => Ok(Written::Billed),
            Err(FenceError::Fenced(_)) => Ok(Written::Refused),
            Err(FenceError::Refused {
                why: Refusal::Version,
                ..
            }) => Ok(Written::Earlier),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn write_unfenced(
        &self,
        term: &Term,
        leader: &str,
        bill: Bill,
    ) -> Result<Written, Failure> {
        let client = connect(&self.address).await?;
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let name = self.name(term, leader, bill);
        client.create(&name, b"", &options).await?;
        // Only for the next leader, which reads it.
        let before = bill.period.cast_signed() - 1;
        let _ = client
            .set_data(&account(bill.account), b"", Some(before))
            .await;
        Ok(Written::Billed)
    }

    fn name(&self, term: &Term, leader: &str, bill: Bill) -> String {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (account, period, token) = (bill.account, bill.period, term.token().0);
        format!("{BILLS}/{account}-{period}-{token}-{leader}-{number}")
    }

    pub(super) async fn bills(&self) -> Result<Vec<Entry>, Failure> {
        let client = connect(&self.address).await?;
        let mut found = Vec::new();
        for name in client.list_children(BILLS).await? {
            let (_, stat) = client.get_data(&format!("{BILLS}/{name}")).await?;
            let entry = entry(&name).ok_or("a bill has a name that cannot be read")?;
            found.push((stat.czxid, entry));
        }
        // The transaction that has made a node is its place in the order of all writes.
        found.sort_unstable_by_key(|(place, _)| *place);
        Ok(found.into_iter().map(|(_, entry)| entry).collect())
    }
}

fn entry(name: &str) -> Option<Entry> {
    let parts: Vec<&str> = name.split('-').collect();
    let [account, period, token, leader, _] = parts[..] else {
        return None;
    };
    Some(Entry {
        bill: Bill {
            account: account.parse().ok()?,
            period: period.parse().ok()?,
        },
        token: token.parse().ok()?,
        leader: leader.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_is_read_from_the_name_of_its_node() {
        let bill = Bill {
            account: 3,
            period: 12,
        };
        let leader = "anna".to_owned();
        let expected = Entry {
            bill,
            token: 77,
            leader,
        };
        assert_eq!(entry("3-12-77-anna-5"), Some(expected));
        assert_eq!(entry("3-12-77"), None);
    }
}
