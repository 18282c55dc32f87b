//! The inbox that a command is about.

use keylane_inbox::InboxStore;
use keylane_inbox::store::{EmbeddedStore, Settings};
use keylane_sql::{Database, SqlInbox, Tables};

use crate::args::Place;
use crate::failure::Failure;

pub(crate) enum Opened {
    Embedded(EmbeddedStore),
    Tables(SqlInbox),
}

impl Opened {
    pub(crate) async fn open(place: &Place) -> Result<Self, Failure> {
        let Some(url) = &place.url else {
            let mut settings = Settings::default();
            // A wrong name must not become an inbox.
            settings.create = false;
            let store = EmbeddedStore::open(&place.dir, settings).await?;
            return Ok(Self::Embedded(store));
        };
        let mut tables = Tables::new().prefix(&place.prefix)?;
        if let Some(schema) = &place.schema {
            tables = tables.schema(schema)?;
        }
        let database = Database::connect(url).await?;
        // The tables are as they are: this program makes none.
        let inbox = SqlInbox::open(&database, &tables, keylane_sql::Settings::new()).await?;
        Ok(Self::Tables(inbox))
    }

    pub(crate) fn store(&self) -> &dyn InboxStore {
        match self {
            Self::Embedded(store) => store,
            Self::Tables(inbox) => inbox,
        }
    }
}
