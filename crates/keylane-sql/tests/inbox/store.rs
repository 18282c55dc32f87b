//! The suite that all stores must pass.

use std::sync::Arc;

use keylane_inbox::{InboxStore, conformance};
use keylane_sql::{Settings, SqlInbox, Tables};

use crate::support::{Kind, Place};

impl Place {
    /// The inbox of this place, as a process of its own has it.
    pub(crate) async fn inbox(&self) -> SqlInbox {
        let tables = Tables::new();
        let inbox = SqlInbox::open(&self.database, &tables, Settings::new());
        inbox.await.unwrap()
    }
}

/// A place that is made when it is opened.
struct Later(Kind, tokio::sync::OnceCell<Place>);

#[keylane_inbox::async_trait]
impl conformance::Place for Later {
    async fn open(&self) -> Arc<dyn InboxStore> {
        let place = self.1.get_or_init(|| Place::new(self.0)).await;
        Arc::new(place.inbox().await)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_is_a_store() {
    conformance::check(|| Later(Kind::Postgres, Default::default())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_is_a_store() {
    conformance::check(|| Later(Kind::MariaDb, Default::default())).await;
}
