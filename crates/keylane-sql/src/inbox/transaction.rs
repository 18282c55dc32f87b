//! Accepts messages in a transaction of the user's.

use async_trait::async_trait;
use keylane_inbox::Accepted;
use sqlx::{MySqlConnection, PgConnection};

use super::record::Items;
use super::{mysql, postgres};
use crate::error::SqlError;
use crate::tables::Tables;

/// A connection in a transaction: what [`SqlInbox::accept_in`](super::SqlInbox::accept_in) takes.
///
/// For a `sqlx::Transaction`, pass `&mut *transaction`.
#[allow(private_bounds, reason = "it is for the connections of sqlx")]
pub trait InTransaction: Accepts {}

impl<T: Accepts> InTransaction for T {}

#[async_trait]
pub(super) trait Accepts: Send {
    async fn accept(
        &mut self,
        tables: &Tables,
        items: Items<'_>,
    ) -> Result<Vec<Accepted>, SqlError>;
}

#[async_trait]
impl Accepts for PgConnection {
    async fn accept(
        &mut self,
        tables: &Tables,
        items: Items<'_>,
    ) -> Result<Vec<Accepted>, SqlError> {
        Ok(postgres::accept_on(self, tables, &items).await?)
    }
}

#[async_trait]
impl Accepts for MySqlConnection {
    async fn accept(
        &mut self,
        tables: &Tables,
        items: Items<'_>,
    ) -> Result<Vec<Accepted>, SqlError> {
        Ok(mysql::accept_on(self, tables, &items, mysql::Bounds::Callers).await?)
    }
}
