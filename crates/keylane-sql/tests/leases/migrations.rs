//! Tables that are made, found, too old or too new.

use futures::future::join_all;
use keylane_sql::error::OpenError;
use keylane_sql::{SqlLeases, Tables};

use crate::support::{Kind, Place};

#[tokio::test]
async fn postgres_migrates() {
    migrates(Kind::Postgres).await;
}

#[tokio::test]
async fn mariadb_migrates() {
    migrates(Kind::MariaDb).await;
}

async fn migrates(kind: Kind) {
    let place = Place::empty(kind).await;
    let tables = Tables::new();
    let missing = SqlLeases::open(&place.database, &tables).await;
    assert!(
        matches!(missing, Err(OpenError::Older { found: 0, .. })),
        "{missing:?}"
    );
    // Several processes start at a time.
    let at_a_time = join_all((0..8).map(|_| place.database.migrate(&tables)));
    for migrated in at_a_time.await {
        migrated.unwrap();
    }
    place.database.check(&tables).await.unwrap();
    place.database.migrate(&tables).await.unwrap();

    place.set_version(9_999).await;
    for refused in [
        place.database.check(&tables).await,
        place.database.migrate(&tables).await,
        SqlLeases::open(&place.database, &tables).await.map(drop),
    ] {
        assert!(
            matches!(refused, Err(OpenError::Newer { found: 9_999, .. })),
            "{refused:?}"
        );
    }
    // Others are as they were: not there.
    let others = Tables::new().prefix("Others_").unwrap();
    let missing = place.database.check(&others).await;
    assert!(
        matches!(missing, Err(OpenError::Older { .. })),
        "{missing:?}"
    );
    place.database.migrate(&others).await.unwrap();
    place.database.check(&others).await.unwrap();
    let nowhere = Tables::new().schema("nowhere").unwrap();
    let refused = place.database.migrate(&nowhere).await;
    assert!(matches!(refused, Err(OpenError::Sql(_))), "{refused:?}");
}
