//! A service that may do little in its database.

use std::time::Duration;

use keylane::error::BoxError;
use keylane::source::{RawMessage, Source};
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_inbox::NewMessage;
use keylane_sql::error::ErrorKind;
use keylane_sql::{Database, SourceSettings};
use tokio::time::sleep;

use crate::support::{Kind, Place};

/// The rights that the README names.
const POSTGRES: &str = "
    create role few login password 'few-rights';
    grant select, insert, update, delete on all tables in schema public to few;
    grant usage, select on all sequences in schema public to few;
    -- Rows of all tables need something to name them by then.
    create publication everything for all tables;
";

const MARIADB: &str = "
    create user few identified by 'few-rights';
    grant select, insert, update, delete on {database}.* to few;
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_rights_are_enough() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let owner = Place::new(kind).await;
        let (before, after) = owner.address.split_once('@').unwrap();
        let (scheme, _) = before.split_once("://").unwrap();
        let (_, database) = after.split_once('/').unwrap();
        owner
            .execute(match kind {
                Kind::Postgres => POSTGRES.to_owned(),
                Kind::MariaDb => MARIADB.replace("{database}", database),
            })
            .await;
        let place = Place::at(kind, format!("{scheme}://few:few-rights@{after}")).await;
        // They are made already.
        let place = place.migrated().await;
        let inbox = place.inbox().await;
        let kept = inbox.inbox();
        for number in 0..4 {
            let message = NewMessage::new(format!("key {}", number % 2), number.to_string());
            let message = message.id(format!("id {number}")).version(number + 1);
            kept.accept_message(message).await.unwrap();
        }
        let dispatcher = Dispatcher::builder(|raw: &RawMessage| raw.key.clone())
            .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(1))
            .on_exhausted(OnExhausted::AtSource)
            .spawn(|raw: RawMessage| async move {
                match &raw.payload[..] {
                    b"2" => Err("no"),
                    _ => Ok(()),
                }
            })
            .unwrap();
        let settings = SourceSettings::new().poll(Duration::from_millis(50));
        let source = inbox.source_with(settings);
        let source = source.decode(|raw| Ok::<_, BoxError>(raw.clone()));
        let intake = dispatcher.consume(source).unwrap();
        while kept.stats().await.unwrap().waiting > 0 {
            sleep(Duration::from_millis(10)).await;
        }
        let report = intake.stop().await;
        assert_eq!((report.acked, report.dead_lettered), (3, 1), "{report}");
        let letters = kept.letters();
        let sequence = letters.list(0, 10).await.unwrap()[0].message.sequence;
        assert_eq!(letters.redrive([sequence]).await.unwrap(), [sequence]);
        inbox.remove_old().await.unwrap();
        let leases = place.leases().await;
        let lease = leases.acquire("a key", Duration::from_secs(10)).await;
        lease.unwrap().release().await;
        leases.close().await;
    }
}

/// A pool only says that it has waited for too long.
#[tokio::test]
async fn a_refused_connection_says_why() {
    // Nothing listens there, and no connection has it as its own end.
    let port = 1;
    for scheme in ["postgres", "mysql"] {
        let address = format!("{scheme}://user:canary-4711@127.0.0.1:{port}/orders");
        let error = Database::connect(&address).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        let text = error.to_string();
        assert!(text.contains("refused"), "{text}");
        assert!(!text.contains("canary"), "{text}");
    }
}
