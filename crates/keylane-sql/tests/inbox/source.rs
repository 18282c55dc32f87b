//! The suite that all sources must pass, on both databases.

use std::time::Duration;

use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane_sql::{Settings, SourceSettings, SqlInbox, Tables};
use keylane_testkit::conformance::{Fault, Harness, Site};
use testkit_servers::{MariaDb, Postgres};

use crate::keyless::{Keyless, NO_KEY};
use crate::raw::{new_message, raw_message, sayable};
use crate::support::{Kind, Place};

mod postgres {
    keylane_testkit::conformance_tests!(
        [flavor = "multi_thread", worker_threads = 2]
        super::Databases(super::Kind::Postgres)
    );
}

mod mariadb {
    keylane_testkit::conformance_tests!(
        [flavor = "multi_thread", worker_threads = 2]
        super::Databases(super::Kind::MariaDb)
    );
}

/// An inbox in a database of its own.
struct Databases(Kind);

struct Database {
    place: Place,
    server: Option<Server>,
    inbox: SqlInbox,
    exact_starts: bool,
}

/// A server that a case ends, and that is its own therefore.
enum Server {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

#[keylane::async_trait]
impl Harness for Databases {
    type Site = Database;

    async fn site(&self, case: &str) -> Result<Database, BoxError> {
        let (place, server) = match (case, self.0) {
            ("restart" | "kill", Kind::Postgres) => {
                let server = Postgres::start().await?;
                let address = server.create_database().await?;
                let place = Place::at(self.0, address).await.migrated().await;
                (place, Some(Server::Postgres(server)))
            }
            ("restart" | "kill", Kind::MariaDb) => {
                let server = MariaDb::start().await?;
                let address = server.create_database().await?;
                let place = Place::at(self.0, address).await.migrated().await;
                (place, Some(Server::MariaDb(server)))
            }
            _ => (Place::new(self.0).await, None),
        };
        let inbox = place.inbox().await;
        Ok(Database {
            place,
            server,
            inbox,
            // After a death the messages of a key are handed over one at a time otherwise.
            exact_starts: matches!(case, "attempts" | "stale_ack"),
        })
    }

    fn faults(&self) -> Vec<Fault> {
        vec![Fault::Restart, Fault::Kill, Fault::Lose]
    }
}

#[keylane::async_trait]
impl Site for Database {
    type Source = Keyless;

    /// Each as a process of its own would have it.
    async fn source(&self) -> Result<Keyless, BoxError> {
        let place = Place::at(self.place.kind, self.place.address.clone()).await;
        let tables = Tables::new();
        let inbox = SqlInbox::open(&place.database, &tables, Settings::new()).await?;
        let mut settings = SourceSettings::new()
            .lease(Duration::from_secs(3))
            .poll(Duration::from_millis(250));
        if self.exact_starts {
            settings = settings.exact_starts();
        }
        Ok(Keyless(inbox.source_with(settings)))
    }

    async fn publish(&self, messages: Vec<RawMessage>) -> Result<(), BoxError> {
        let messages = messages.into_iter();
        let messages = messages.map(|raw| new_message(raw, NO_KEY));
        self.inbox.inbox().accept_many(messages).await?;
        Ok(())
    }

    async fn left(&self) -> Result<usize, BoxError> {
        Ok(usize::try_from(self.inbox.inbox().stats().await?.waiting)?)
    }

    async fn letters(&self) -> Result<Vec<RawMessage>, BoxError> {
        let letters = self.inbox.inbox().letters().list(0, 1_000).await?;
        Ok(letters.into_iter().map(raw_message).collect())
    }

    fn sayable(&self, message: RawMessage) -> RawMessage {
        sayable(message)
    }

    async fn redrive(&self) -> Result<bool, BoxError> {
        let letters = self.inbox.inbox().letters();
        let all = letters.list(0, 1_000).await?;
        let all = all.iter().map(|letter| letter.message.sequence);
        letters.redrive(all).await?;
        Ok(true)
    }

    async fn inject(&self, fault: Fault) -> Result<(), BoxError> {
        match (fault, &self.server) {
            (Fault::Restart, Some(Server::Postgres(server))) => {
                server.stop().await?;
                server.start_again().await?;
            }
            (Fault::Restart, Some(Server::MariaDb(server))) => {
                server.stop().await?;
                server.start_again().await?;
            }
            (Fault::Kill, Some(Server::Postgres(server))) => {
                server.kill().await?;
                server.start_again().await?;
            }
            (Fault::Kill, Some(Server::MariaDb(server))) => {
                server.kill().await?;
                server.start_again().await?;
            }
            (Fault::Lose, _) => {
                let past = match self.place.kind {
                    Kind::Postgres => "now() - interval '1 second'",
                    Kind::MariaDb => "utc_timestamp(6) - interval 1 second",
                };
                let expire = format!("update keylane_workers set runs_out = {past}");
                self.place.execute(expire).await;
            }
            (other, _) => return Err(format!("there is no {other}").into()),
        }
        Ok(())
    }
}
