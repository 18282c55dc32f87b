//! Candidates, keys and ranks at their limits.

use std::time::Duration;

use bytes::Bytes;
use keylane_leader::ElectionStore;
use keylane_leader::store::{CandidateId, Entry, Recorded, Stage};
use keylane_sql::Database;

use super::{LONG, Scene, choosing, id};
use crate::support::{Kind, Place};

#[tokio::test]
async fn limits_in_postgres() {
    limits(Kind::Postgres).await;
}

#[tokio::test]
async fn limits_in_mariadb() {
    limits(Kind::MariaDb).await;
}

async fn limits(kind: Kind) {
    let place = Place::new(kind).await;
    let mut scene = Scene::new(&place, "").await;
    let keys = [
        Bytes::new(),
        Bytes::from_static(b"\0"),
        Bytes::from(vec![0xff; 100_000]),
        Bytes::from_static(b"'; drop table keylane_terms; --"),
    ];
    for key in keys {
        scene.key = key;
        names_and_ranks(&scene).await;
    }
}

async fn names_and_ranks(scene: &Scene) {
    // Names that quoting, case or order could confuse.
    let longest = "~".repeat(100);
    let names = ["A", "a", "'", "\\", "\"`", "%_", &longest];
    let mut expected = Vec::new();
    for (at, name) in names.into_iter().enumerate() {
        let rank = if at % 2 == 0 { u16::MAX } else { 0 };
        scene.enter(name, rank, LONG).await;
        expected.push((rank, at, name));
    }
    expected.sort_unstable();
    for (_, _, name) in expected {
        assert_eq!(scene.look().await.next, Some(id(name)));
        let term = choosing(1, "leader", name);
        let recorded = scene.write(&term).await;
        assert!(matches!(recorded, Recorded::Written(_)), "{recorded:?}");
        assert_eq!(scene.look().await.term, Some(term));
        let candidate = CandidateId::new(name).unwrap();
        scene.store.withdraw(&scene.key, &candidate).await.unwrap();
    }
    assert_eq!(scene.look().await.next, None);
    // The highest token that a lease can have, and the longest time.
    let highest = i64::MAX.unsigned_abs();
    let recorded = scene.record(highest, &longest, Stage::Ended).await;
    assert!(matches!(recorded, Recorded::Written(Some(_))));
    assert_eq!(
        scene.record(highest - 1, "x", Stage::Began).await,
        Recorded::Refused
    );
    let entry = Entry {
        id: id("x"),
        rank: 0,
    };
    let entered = scene.store.enter(&scene.key, &entry, Duration::MAX).await;
    assert_eq!(entered.unwrap().next, Some(id("x")));
    scene.store.withdraw(&scene.key, &id("x")).await.unwrap();
}

/// A candidate that has run out is not seen, and its row goes.
#[tokio::test]
async fn rows_of_candidates_go() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = Place::new(kind).await;
        let scene = Scene::new(&place, "rows").await;
        for at in 0..100 {
            scene.enter(&format!("c{at}"), 1, Duration::ZERO).await;
        }
        scene.enter("last", 1, LONG).await;
        let count = place
            .number("select count(*) from keylane_candidates")
            .await;
        assert_eq!(count, 1, "{kind:?}");
    }
}

/// A service that may not make tables, but read and write their rows.
#[tokio::test]
async fn no_more_rights_are_needed_than_for_an_inbox() {
    let place = Place::new(Kind::Postgres).await;
    let (_, name) = place.address.rsplit_once('/').unwrap();
    let user = format!("few_{}", name.to_lowercase());
    let rights = format!(
        "create role {user} login password 'secret';
         grant select, insert, update, delete on all tables in schema public to {user};
         grant usage, select on all sequences in schema public to {user};
         revoke usage, select on sequence keylane_candidates_place_seq from {user}"
    );
    place.execute(rights).await;
    let (_, server) = place.address.rsplit_once('@').unwrap();
    let address = format!("postgres://{user}:secret@{server}");
    let few = Place {
        kind: Kind::Postgres,
        database: Database::connect(&address).await.unwrap(),
        address,
    };
    let scene = Scene::new(&few, "few").await;
    scene.enter("a", 1, LONG).await;
    scene.record(1, "a", Stage::Began).await;
    let history = scene.history().await;
    let mut transaction = begin(&few.address).await;
    let fenced = scene
        .store
        .fence(&mut transaction, b"few", keylane_leases::Token(1), &history);
    fenced.await.unwrap();
}

async fn begin(address: &str) -> keylane_sql::sqlx::PgConnection {
    use keylane_sql::sqlx::{Connection, Executor, PgConnection};
    let mut connection = PgConnection::connect(address).await.unwrap();
    connection.execute("begin").await.unwrap();
    connection
}
