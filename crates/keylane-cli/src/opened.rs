//! The inbox of a command.

use std::env;
use std::path::Path;

use keylane_inbox::InboxStore;
use keylane_inbox::store::{EmbeddedStore, Settings};
use keylane_sql::{Database, SqlInbox, Tables};

use crate::args::Place;
use crate::failure::Failure;

/// The variable that names a database.
const URL: &str = "KEYLANE_INBOX_URL";

pub(crate) enum Opened {
    Embedded(EmbeddedStore),
    Tables(SqlInbox),
}

impl Opened {
    pub(crate) async fn open(place: &Place) -> Result<Self, Failure> {
        let Some(url) = url(place) else {
            let mut settings = Settings::default();
            // A wrong name must not become an inbox.
            settings.create = false;
            let dir = place.dir.as_deref().unwrap_or(Path::new("."));
            let store = EmbeddedStore::open(dir, settings).await?;
            return Ok(Self::Embedded(store));
        };
        let tables = tables(place)?;
        let database = Database::connect(&url).await?;
        // The tables stay as they are: only `migrate` creates any.
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

/// Creates the tables, or brings them to the version of this program.
pub(crate) async fn migrate(place: &Place) -> Result<(), Failure> {
    let Some(url) = url(place) else {
        let why = "an inbox in a directory has no tables: name a database with --url";
        return Err(Failure::Other(why.to_owned()));
    };
    let database = Database::connect(&url).await?;
    let migrated = database.migrate(&tables(place)?).await;
    database.close().await;
    Ok(migrated?)
}

/// Returns the address of the database, unless the place is a directory.
fn url(place: &Place) -> Option<String> {
    if place.url.is_some() || place.dir.is_some() {
        return place.url.clone();
    }
    env::var(URL).ok().filter(|url| !url.is_empty())
}

fn tables(place: &Place) -> Result<Tables, Failure> {
    let tables = Tables::new().prefix(&place.prefix)?;
    match &place.schema {
        Some(schema) => Ok(tables.schema(schema)?),
        None => Ok(tables),
    }
}
