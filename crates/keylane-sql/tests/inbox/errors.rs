//! What errors say about the database, also over a pool of the user's.

use bytes::Bytes;
use keylane_leader::ElectionStore;
use keylane_leases::store::LeaseStore;
use keylane_sql::sqlx::{MySqlPool, PgPool};
use keylane_sql::{Database, Settings, SqlElections, SqlInbox, SqlLeases, Tables};

use crate::support::{Kind, Place};

#[tokio::test]
async fn errors_over_a_pool_of_the_users_name_its_database() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = Place::new(kind).await;
        let database = match kind {
            Kind::Postgres => Database::postgres(PgPool::connect(&place.address).await.unwrap()),
            Kind::MariaDb => {
                let pool = MySqlPool::connect(&place.address).await.unwrap();
                Database::mysql(pool)
            }
        };
        let tables = Tables::new();
        let inbox = SqlInbox::open(&database, &tables, Settings::new()).await;
        let inbox = inbox.unwrap().inbox();
        let leases = SqlLeases::open(&database, &tables).await.unwrap();
        let elections = SqlElections::open(&database, &tables).await.unwrap();
        let (key, drop) = (Bytes::from("key"), "drop table keylane_");
        for table in ["keys", "leases", "candidates"] {
            place.execute(format!("{drop}{table}")).await;
        }
        let errors = [
            inbox
                .accept("key", "payload")
                .await
                .unwrap_err()
                .to_string(),
            leases.held_by(&key).await.unwrap_err().to_string(),
            elections.look(&key).await.unwrap_err().to_string(),
        ];
        let (_, named) = place.address.split_once('@').unwrap();
        let named = format!("{} at {named}: a database, schema or table", kind.system());
        for error in errors {
            assert!(error.contains(&named), "{error}");
            assert!(error.contains("`keylane inbox migrate`"), "{error}");
        }
    }
}
