//! A primary and a standby that follows it.

use std::time::Duration;

use testkit_servers::{MariaDb, Postgres};
use tokio::time::{Instant, sleep};

use super::Kind;

/// How long a standby may take to follow.
const LIMIT: Duration = Duration::from_secs(180);

/// A primary, a standby that follows it, and the address that leads to one of them.
pub(crate) enum Pair {
    Postgres(Postgres, Postgres),
    MariaDb(MariaDb, MariaDb),
}

impl Pair {
    pub(crate) async fn start(kind: Kind) -> Self {
        match kind {
            Kind::Postgres => {
                let primary = Postgres::start_primary().await.unwrap();
                let standby = primary.standby().await.unwrap();
                Self::Postgres(primary, standby)
            }
            Kind::MariaDb => {
                let primary = MariaDb::start_primary().await.unwrap();
                let standby = primary.standby().await.unwrap();
                Self::MariaDb(primary, standby)
            }
        }
    }

    pub(crate) fn ports(&self) -> (u16, u16) {
        match self {
            Self::Postgres(primary, standby) => (primary.port(), standby.port()),
            Self::MariaDb(primary, standby) => (primary.port(), standby.port()),
        }
    }

    /// The same database with both hosts in the address, the standby first.
    pub(crate) fn both(&self, address: &str, parameters: &str) -> String {
        let (primary, standby) = self.ports();
        let (before, after) = address.rsplit_once(':').unwrap();
        let (_, database) = after.split_once('/').unwrap();
        format!("{before}:{standby},127.0.0.1:{primary}/{database}{parameters}")
    }

    pub(crate) async fn create_database(&self) -> String {
        let created = match self {
            Self::Postgres(primary, _) => primary.create_database().await,
            Self::MariaDb(primary, _) => primary.create_database().await,
        };
        created.unwrap()
    }

    /// Waits until the standby has what the primary had when this was called.
    pub(crate) async fn until_same(&self, address: &str, query: &str) {
        let name = address.rsplit_once('/').unwrap().1;
        let ask = async |is_standby: bool| match (self, is_standby) {
            (Self::Postgres(one, _), false) => one.execute(name, query).await,
            (Self::Postgres(_, one), true) => one.execute(name, query).await,
            (Self::MariaDb(one, _), false) => one.execute(name, query).await,
            (Self::MariaDb(_, one), true) => one.execute(name, query).await,
        };
        let wanted = ask(false).await.unwrap();
        let began = Instant::now();
        while ask(true).await.ok().as_ref() != Some(&wanted) {
            assert!(began.elapsed() < LIMIT, "the standby does not follow");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Nothing that the primary commits from now on comes to the standby.
    pub(crate) async fn fall_behind(&self) {
        let told = match self {
            Self::Postgres(_, standby) => standby.fall_behind().await,
            Self::MariaDb(_, standby) => standby.fall_behind().await,
        };
        told.unwrap();
    }

    /// Lets the commits of the primary wait for the standby.
    pub(crate) async fn synchronous(&self) {
        let told = match self {
            Self::Postgres(primary, standby) => primary.synchronous(standby).await,
            Self::MariaDb(primary, standby) => primary.synchronous(standby).await,
        };
        told.unwrap();
    }

    /// The primary dies with all its connections.
    pub(crate) async fn kill_primary(&self) {
        let killed = match self {
            Self::Postgres(primary, _) => primary.kill().await,
            Self::MariaDb(primary, _) => primary.kill().await,
        };
        killed.unwrap();
    }

    pub(crate) async fn promote(&self) {
        let promoted = match self {
            Self::Postgres(_, standby) => standby.promote().await,
            Self::MariaDb(_, standby) => standby.promote().await,
        };
        promoted.unwrap();
        self.set_read_only(false).await;
    }

    /// Whether the standby takes writes. One of PostgreSQL takes none until it is promoted.
    pub(crate) async fn set_read_only(&self, is_read_only: bool) {
        if let Self::MariaDb(_, standby) = self {
            let set = format!("set global read_only = {}", u8::from(is_read_only));
            standby.execute("mysql", &set).await.unwrap();
        }
    }
}
