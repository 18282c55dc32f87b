//! Opens the database, whatever the file contains.

use std::sync::Arc;

use keylane_disk::{Opener, Watch, Watched};
use redb::{Database, Durability, ReadableDatabase};

use super::fault::{Fault, Wrapped, guarded};
use super::settings::Settings;
use super::tables::{self, Totals};

/// Creates a database in an empty file.
pub(super) fn create(opener: &Opener, watch: &Arc<Watch>) -> Result<(), Fault> {
    guarded(|| {
        let bytes = Watched::open(opener, watch).map_err(|error| Wrapped(error.into()))?;
        let database = Database::builder().create_with_backend(bytes)?;
        let transaction = database.begin_write()?;
        tables::create(&transaction)?;
        transaction.commit()?;
        database.close()?;
        Ok(())
    })
}

/// Opens an existing database.
pub(super) fn open(
    opener: &Opener,
    watch: &Arc<Watch>,
    settings: &Settings,
) -> Result<(Database, Totals), Fault> {
    guarded(|| {
        let bytes = Watched::open(opener, watch).map_err(|error| Wrapped(error.into()))?;
        // redb would create a new database in it.
        if bytes.is_empty() {
            return Err(Wrapped(Fault::Damaged("it is empty".into())));
        }
        let database = Database::builder()
            .set_cache_size(settings.cache_bytes)
            .set_check_integrity_on_open(settings.check_on_open)
            .create_with_backend(bytes)?;
        let totals = Totals::read(&database.begin_read()?)?;
        Ok((database, totals))
    })
}

/// How a transaction commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasting {
    /// On the disk when the commit returns.
    Durable,
    /// In memory, until the next durable one.
    Later,
}

impl From<Lasting> for Durability {
    fn from(lasting: Lasting) -> Self {
        match lasting {
            Lasting::Durable => Self::Immediate,
            Lasting::Later => Self::None,
        }
    }
}
