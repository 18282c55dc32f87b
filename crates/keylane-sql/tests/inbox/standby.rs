//! A source on a server that takes no writes yet: it waits, and works once the server does.

use keylane::consume::IntakeState;
use keylane_testkit::Lines;
use keylane_testkit::scenario::{until, until_async};
use testkit_servers::Postgres;

use crate::rig::{Log, Own, Work, Worker, log_to, message};
use crate::sessions::set_read_only;
use crate::support::{Kind, Place};

#[tokio::test]
async fn a_source_on_a_standby_works_once_that_is_promoted() {
    let primary = Postgres::start_primary().await.unwrap();
    let standby = primary.standby().await.unwrap();
    let address = primary.create_database().await.unwrap();
    let place = Place::at(Kind::Postgres, address).await.migrated().await;
    let inbox = place.inbox().await.inbox();
    inbox.accept_message(message(1, 1)).await.unwrap();
    let standby_place = place.address_by(standby.port());
    let name = place.address.rsplit_once('/').unwrap().1;
    until_async("the standby has the message", async || {
        let count = "select count(*) from keylane_messages";
        let found = standby.execute(name, count).await;
        found.is_ok_and(|found| found == "1\n")
    })
    .await;
    waits(&standby_place, || async {
        primary.kill().await.unwrap();
        standby.promote().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_source_on_a_read_only_mariadb_works_once_that_is_written_to() {
    let server = Own::start(Kind::MariaDb).await;
    let place = server.place().await.migrated().await;
    let inbox = place.inbox().await.inbox();
    inbox.accept_message(message(1, 1)).await.unwrap();
    set_read_only(&place, true).await;
    waits(&place.address, || set_read_only(&place, false)).await;
}

/// A message waits at this address. Nothing can be written there until `begin` has run.
async fn waits<F: Future<Output = ()>>(address: &str, begin: impl FnOnce() -> F) {
    let lines = Lines::new();
    let logged = log_to(&lines);
    let log = Log::default();
    let (worker, stopped) = (
        Worker::start(address, 0, &log, Work::new()).await,
        Worker::start(address, 1, &log, Work::new()).await,
    );
    for worker in [&worker, &stopped] {
        until(|| !worker.stats().failed_parts.is_empty()).await;
        let stats = worker.stats();
        let why = &stats.failed_parts[0].why;
        let says = ["the server is read-only", "promote it", "primary"];
        assert!(says.iter().all(|said| why.contains(said)), "{why}");
        assert_eq!(stats.state, IntakeState::Running, "{stats:?}");
    }
    // It tries again meanwhile.
    let times = || worker.stats().failed_parts[0].times;
    let before = times();
    until(|| times() > before + 1).await;
    // Later, a connection that was made before may say it once more.
    let said = lines.with("will retry");
    assert_eq!(said.len(), 2, "one for each source: {said:#?}");
    stopped.stop().await;
    begin().await;
    until(|| log.handled().contains(&1)).await;
    until(|| worker.stats().failed_parts.is_empty()).await;
    let stats = worker.stats();
    assert_eq!((stats.restarts, stats.last_error), (0, None));
    worker.stop().await;
    drop(logged);
    let said = lines.with("will retry");
    assert!(said.iter().all(|line| line.contains("WARN")), "{said:#?}");
    let errors = lines.with("ERROR");
    assert!(errors.is_empty(), "{errors:#?}");
}
