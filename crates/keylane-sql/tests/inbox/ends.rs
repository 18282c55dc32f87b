//! Where things come to their end: numbers that are as high as their type, and runtimes.

use std::time::Duration;

use keylane_leases::store::{Answer, Claim, LeaseStore, Owner, Wish};
use keylane_sql::{Database, Settings, SqlInbox, Tables};
use keylane_testkit::scenario::{until, until_async};
use tokio::runtime::{Builder, Runtime};

use crate::rig::{Log, Own, Work, Worker, message};
use crate::support::{Kind, Place};

const KINDS: [Kind; 2] = [Kind::Postgres, Kind::MariaDb];

const MESSAGES: u64 = 20;

/// As many numbers are left as a few calls draw: beyond 2^53, which a double has, and up to 2^63.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_highest_numbers_are_handled() {
    const HIGH: u64 = i64::MAX as u64 - 1_000;
    for kind in KINDS {
        let place = Place::new(kind).await;
        place
            .execute(match kind {
                Kind::Postgres => format!(
                    "alter sequence keylane_sequence restart with {HIGH};
                     alter sequence keylane_tokens restart with {HIGH}"
                ),
                Kind::MariaDb => format!(
                    "alter table keylane_messages auto_increment = {HIGH};
                     update keylane_counters set value = {HIGH} where name = 'tokens'"
                ),
            })
            .await;
        let log = Log::default();
        let worker = Worker::start(&place.address, 0, &log, Work::new()).await;
        let inbox = worker.inbox.inbox();
        for id in 1..=MESSAGES {
            let accepted = inbox.accept_message(message(id % 4, id));
            assert!(accepted.await.unwrap().sequence() >= HIGH, "{kind:?}");
        }
        until(|| log.handled().len() == MESSAGES as usize).await;
        place.is_empty_within(Duration::from_secs(120)).await;
        let order = log.entries().into_iter().filter(|one| one.key == 1);
        assert!(order.map(|one| one.id).is_sorted(), "{kind:?}");
        worker.stop().await;

        let (store, owner, ttl) = (
            place.store().await,
            Owner::random(),
            Duration::from_secs(60),
        );
        let granted = store.acquire(&owner, &[Wish::new("key", ttl)]).await;
        let Answer::Granted(token) = granted.unwrap()[0] else {
            panic!("it is free");
        };
        assert!(token.0 >= HIGH, "{kind:?}: {token}");
        let claim = [Claim::new("key", token, ttl)];
        assert_eq!(store.renew(&owner, &claim).await.unwrap(), [true]);
    }
}

fn runtime() -> Runtime {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(1).enable_all().build().unwrap()
}

/// Its connections, and the tasks of its pool, end with the runtime that made them. The check of an
/// idle connection may still succeed, because it needs no runtime if the answer is there at once:
/// then the call after it fails.
#[test]
fn a_database_outlives_the_runtime_that_has_connected() {
    for kind in KINDS {
        let (keeps, connects, goes_on) = (runtime(), runtime(), runtime());
        let server = keeps.block_on(Own::start(kind));
        let (place, inbox, store) = connects.block_on(async {
            let place = server.place().await.migrated().await;
            let (inbox, store) = (place.inbox().await, place.store().await);
            inbox.inbox().accept_message(message(1, 1)).await.unwrap();
            (place, inbox, store)
        });
        drop(connects);
        goes_on.block_on(async {
            until_async("it accepts", async || {
                let accepted = inbox.inbox().accept_message(message(1, 2)).await;
                accepted.is_ok()
            })
            .await;
            let log = Log::default();
            let database: &Database = &place.database;
            until_async("an inbox opens", async || {
                let opened = SqlInbox::open(database, &Tables::new(), Settings::default()).await;
                opened.is_ok()
            })
            .await;
            let worker = Worker::start_in(database, 0, &log, Work::new()).await;
            until(|| log.handled().len() == 2).await;
            let wish = [Wish::new("key", Duration::from_secs(60))];
            until_async("a key is leased", async || {
                store.acquire(&Owner::random(), &wish).await.is_ok()
            })
            .await;
            worker.stop().await;
            assert_eq!(worker.stats().restarts, 0, "{kind:?}");
        });
        drop(goes_on);
        drop(server);
    }
}
