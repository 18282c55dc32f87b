//! Transactions of the user's.

use sqlx::{MySqlConnection, PgConnection};

/// A connection in a transaction: what [`SqlInbox::accept_in`](crate::SqlInbox::accept_in) and
/// [`SqlElections::fence`](crate::SqlElections::fence) take.
///
/// For a `sqlx::Transaction`, pass `&mut *transaction`.
#[allow(private_bounds, reason = "it is for the connections of sqlx")]
pub trait InTransaction: OfEither {}

impl<T: OfEither> InTransaction for T {}

/// A connection of either kind.
pub(crate) enum Either<'a> {
    Postgres(&'a mut PgConnection),
    MySql(&'a mut MySqlConnection),
}

pub(crate) trait OfEither: Send {
    fn either(&mut self) -> Either<'_>;
}

impl OfEither for PgConnection {
    fn either(&mut self) -> Either<'_> {
        Either::Postgres(self)
    }
}

impl OfEither for MySqlConnection {
    fn either(&mut self) -> Either<'_> {
        Either::MySql(self)
    }
}
