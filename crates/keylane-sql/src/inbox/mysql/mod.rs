//! The inbox in MySQL and MariaDB, in statements that both databases know.
//!
//! Each call goes to the server as few texts of several statements: prepared, each statement would
//! take two round trips. All values in a text are numbers, or bytes in hexadecimal. Only large
//! messages are bound: hexadecimal doubles them.
//!
//! Each transaction runs at the level "read committed". Under "repeatable read", the default of
//! both databases, all plain reads of a transaction see the state of the first read, which may be
//! older than a row that was locked in between; and missing rows are locked as well.
//!
//! Each statement that locks rows by their keys is forced to use the index: if a table is small, or
//! was small when its statistics were taken, the databases would read all rows, and wait for each
//! row that another transaction has locked.

mod accept;
pub(super) use accept::{Bounds, accept_on};

mod commit;
pub(super) use commit::{begin, commit};

mod history;

mod script;

mod store;

mod turn;

use std::fmt;

use keylane_inbox::{NewMessage, StoredMessage};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::headers;
use crate::connections::Connections;
use crate::error::SqlError;
use crate::history::History;
use crate::tables::Tables;
use crate::times;

/// How many rows one statement names. With many more, the databases would not use their indexes.
const MOST: usize = 1_000;

const BEGIN: &str = "set transaction isolation level read committed; start transaction";

pub(super) struct MySql {
    connections: Connections<sqlx::MySql>,
    tables: Tables,
    history: History,
}

impl MySql {
    pub(super) fn new(
        connections: Connections<sqlx::MySql>,
        tables: &Tables,
        history: History,
    ) -> Self {
        Self {
            connections,
            tables: tables.clone(),
            history,
        }
    }
}

impl fmt::Debug for MySql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MySQL")
    }
}

/// The columns of a message, with these names.
const MESSAGE: &str = "messages.sequence, messages.`key`, messages.payload, messages.id,
    messages.version, messages.headers,
    timestampdiff(microsecond, '1970-01-01', messages.accepted_at) as accepted_at_us";

fn message_of(row: &MySqlRow) -> Result<StoredMessage, SqlError> {
    let sequence = row.get::<u64, _>("sequence");
    let mut message = NewMessage::new(
        row.get::<Vec<u8>, _>("key"),
        row.get::<Vec<u8>, _>("payload"),
    );
    message.id = row.get::<Option<Vec<u8>>, _>("id").map(Into::into);
    message.version = row.get("version");
    let headers = headers::decode(row.get("headers"));
    message.headers = headers.ok_or_else(|| SqlError::damaged(sequence))?;
    let accepted_at = times::from_millis(millis(row, "accepted_at_us"));
    Ok(StoredMessage::new(sequence, accepted_at, message))
}

fn millis(row: &MySqlRow, name: &str) -> u64 {
    row.get::<i64, _>(name).unsigned_abs() / 1_000
}
