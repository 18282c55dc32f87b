//! Standbys that are promoted.

use keylane_leader::ElectionStore;
use keylane_leader::store::Stage;
use keylane_leases::Token;
use keylane_sql::error::FenceError;
use keylane_sql::sqlx::{Connection, MySqlConnection, PgConnection};
use keylane_testkit::scenario::until_async;
use testkit_servers::{MariaDb, Postgres};

use super::Scene;
use crate::support::{Kind, Place};

const TERMS: &str = "select count(*) from keylane_terms where token = 5";

#[tokio::test]
async fn a_promoted_standby_of_postgres_has_another_history_at_once() {
    let primary = Postgres::start_primary().await.unwrap();
    let standby = primary.standby().await.unwrap();
    let address = primary.create_database().await.unwrap();
    let name = address.rsplit_once('/').unwrap().1.to_owned();
    let place = Place::at(Kind::Postgres, address).await.migrated().await;
    let scene = Scene::new(&place, "history").await;
    let before = scene.history().await;
    scene.record(5, "a", Stage::Began).await;
    until_async("the standby has the term", async || {
        standby
            .execute(&name, TERMS)
            .await
            .is_ok_and(|found| found == "1\n")
    })
    .await;
    let there = Place::at(Kind::Postgres, place.address_by(standby.port())).await;
    let scene_there = Scene::new(&there, "history").await;
    let refused = scene_there.store.history().await.unwrap_err().to_string();
    assert!(refused.contains("promote it"), "{refused}");
    assert!(
        scene_there.look().await.term.is_some(),
        "a standby can be read"
    );

    primary.kill().await.unwrap();
    standby.promote().await.unwrap();
    let after = scene_there.history().await;
    assert_ne!(before, after);
    let mut connection = PgConnection::connect(&there.address).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    let (store, key) = (&scene_there.store, &scene_there.key);
    let fenced = store.fence(&mut *transaction, key, Token(5), &before).await;
    assert!(
        matches!(fenced, Err(FenceError::Fenced { .. })),
        "{fenced:?}"
    );
    // The same token again, of another leader: only the history tells them apart.
    transaction.rollback().await.unwrap();
    scene_there.record(5, "b", Stage::Began).await;
    for (history, may) in [(&before, false), (&after, true)] {
        let mut transaction = connection.begin().await.unwrap();
        let fenced = store.fence(&mut *transaction, key, Token(5), history).await;
        assert_eq!(fenced.is_ok(), may, "{history}");
    }
}

#[tokio::test]
async fn a_promoted_standby_of_mariadb_has_another_history() {
    let primary = MariaDb::start_primary().await.unwrap();
    let standby = primary.standby().await.unwrap();
    let address = primary.create_database().await.unwrap();
    let name = address.rsplit_once('/').unwrap().1.to_owned();
    let place = Place::at(Kind::MariaDb, address).await.migrated().await;
    let scene = Scene::new(&place, "history").await;
    let before = scene.history().await;
    scene.record(5, "a", Stage::Began).await;
    until_async("the standby has the term", async || {
        standby
            .execute(&name, TERMS)
            .await
            .is_ok_and(|found| found == "1\n")
    })
    .await;
    primary.kill().await.unwrap();
    standby.promote().await.unwrap();
    let there = Place::at(Kind::MariaDb, place.address_by(standby.port())).await;
    let scene = Scene::new(&there, "history").await;
    assert_ne!(before, scene.history().await);
    let mut connection = MySqlConnection::connect(&there.address).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    let fenced = scene
        .store
        .fence(&mut *transaction, &scene.key, Token(5), &before)
        .await;
    assert!(
        matches!(fenced, Err(FenceError::Fenced { .. })),
        "{fenced:?}"
    );
}

/// What a copy without its sequences would draw again.
#[tokio::test]
async fn tokens_grow_in_a_copy_without_its_sequences() {
    let place = Place::new(Kind::Postgres).await;
    let scene = Scene::new(&place, "copy").await;
    let owner = keylane_leases::Owner::random();
    let first = scene.grant(&owner).await;
    scene.record(first.token.0 + 1_000, "a", Stage::Began).await;
    place
        .execute("truncate keylane_leases; alter sequence keylane_tokens restart")
        .await;
    let scene = Scene::new(&place, "copy").await;
    let next = scene.grant(&owner).await;
    assert!(next.token.0 > first.token.0 + 1_000, "{next:?}");
}
