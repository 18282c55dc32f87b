//! The books: the last period of each account, and a list of bills that only grows.

mod postgres;
mod zookeeper;

use std::sync::Arc;

use keylane_leader::{ElectionStore, Term};

use crate::Failure;
use crate::judge::Entry;
use crate::words::{Bill, Place, Store, Written};

/// The books, and the elections in the same store.
pub(crate) enum Books {
    Postgres(postgres::Tables),
    ZooKeeper(zookeeper::Nodes),
}

impl Books {
    pub(crate) async fn open(place: &Place) -> Result<Self, Failure> {
        let address = &place.address;
        Ok(match place.store {
            Store::Postgres => Self::Postgres(postgres::Tables::open(address).await?),
            Store::Zookeeper => Self::ZooKeeper(zookeeper::Nodes::open(address)?),
        })
    }

    /// Makes empty books in a new store.
    pub(crate) async fn create(place: &Place, accounts: u32) -> Result<(), Failure> {
        match place.store {
            Store::Postgres => postgres::create(&place.address, accounts).await,
            Store::Zookeeper => zookeeper::create(&place.address, accounts).await,
        }
    }

    pub(crate) fn elections(&self) -> Arc<dyn ElectionStore> {
        match self {
            Self::Postgres(tables) => tables.elections.clone(),
            Self::ZooKeeper(nodes) => nodes.leases.clone(),
        }
    }

    /// Returns the last period for which each account was billed; 0 for none.
    pub(crate) async fn billed(&self) -> Result<Vec<u32>, Failure> {
        match self {
            Self::Postgres(tables) => tables.billed().await,
            Self::ZooKeeper(nodes) => nodes.billed().await,
        }
    }

    /// Writes a bill in one step: if the term is the last one, and the account was billed for the
    /// period before and not for this one.
    pub(crate) async fn write(
        &self,
        term: &Term,
        leader: &str,
        bill: Bill,
    ) -> Result<Written, Failure> {
        match self {
            Self::Postgres(tables) => tables.write(term, leader, bill).await,
            Self::ZooKeeper(nodes) => nodes.write(term, leader, bill).await,
        }
    }

    /// Writes a bill, and asks nothing.
    pub(crate) async fn write_unfenced(
        &self,
        term: &Term,
        leader: &str,
        bill: Bill,
    ) -> Result<Written, Failure> {
        match self {
            Self::Postgres(tables) => tables.write_unfenced(term, leader, bill).await,
            Self::ZooKeeper(nodes) => nodes.write_unfenced(term, leader, bill).await,
        }
    }

    /// Returns all bills, in the order in which they were written.
    pub(crate) async fn bills(&self) -> Result<Vec<Entry>, Failure> {
        match self {
            Self::Postgres(tables) => tables.bills().await,
            Self::ZooKeeper(nodes) => nodes.bills().await,
        }
    }
}
