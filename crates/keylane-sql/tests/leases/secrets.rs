//! No password is shown.

use std::sync::Arc;

use keylane_leases::Leases;
use keylane_sql::{Database, SqlLeases, Tables};

use crate::support::{Kind, Place};

const CANARY: &str = "c4n4ry-s3cr3t";

#[tokio::test]
async fn addresses_that_are_none_are_refused_without_showing_them() {
    let addresses = [
        CANARY.to_owned(),
        format!("user:{CANARY}@localhost/db"),
        format!("http://user:{CANARY}@localhost/db"),
        format!("postgres://user:{CANARY}@localhost:port/db"),
        format!("postgres://user:{CANARY}@[::1/db"),
        format!("mysql://user:{CANARY}@localhost:99999999/db"),
        format!("postgres://user:{CANARY}@localhost:1/db?sslmode=perhaps"),
        format!(
            "postgres://user:{CANARY}@localhost:1/db?sslrootcert=/no/{CANARY}&sslmode=verify-full"
        ),
    ];
    for address in addresses {
        let error = Database::connect(&address).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(CANARY), "{shown}");
    }
}

#[tokio::test]
async fn a_refused_password_is_not_shown() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = Place::empty(kind).await;
        let address = place.address_with_password(CANARY);
        let error = Database::connect(&address).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(CANARY), "{shown}");
    }
}

#[tokio::test]
async fn debug_shows_no_password() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = Place::new(kind).await;
        let store = SqlLeases::open(&place.database, &Tables::new())
            .await
            .unwrap();
        let shown = format!("{:?} {store:?}", place.database);
        let leases = Leases::open(Arc::new(store)).unwrap();
        let shown = format!("{shown} {leases:?}");
        assert!(!shown.contains(place.password()), "{shown}");
    }
}
