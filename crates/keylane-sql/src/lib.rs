#![doc = include_str!("../README.md")]

// # How it works
//
// Each part begins with a page of its own: `leases/mod.rs`, `elections/mod.rs` and `inbox/mod.rs`.
// These hold for all:
//
// - *A connection goes back only when its call has come to an end* (`link.rs`). A future of sqlx
//   that is dropped in a `begin` leaves the connection in a transaction that its pool does not
//   know.
// - *An error of the session closes it* (`is_of_session`). A refused statement leaves its
//   connection as it was. A session that was ended, or that can only read, would refuse the next
//   statement as well.
// - *The migrations are our own*, in fifty lines. Those of sqlx know no prefix, and share one table
//   with the migrations of the user.

mod database;
pub use database::Database;

mod tables;
pub use tables::Tables;

mod leases;
pub use leases::SqlLeases;

mod elections;
pub use elections::SqlElections;

mod inbox;
pub use inbox::{
    Claim, Committed, Settings, SourceSettings, SqlInbox, SqlPosition, SqlSource, SqlTransaction,
    published_metrics,
};

mod transaction;
pub use transaction::InTransaction;

pub mod error;

mod addresses;
mod again;
mod connections;
mod history;
mod link;
mod listening;
mod literals;
mod migrations;
mod pooler;
mod session;
mod times;

pub use sqlx;
