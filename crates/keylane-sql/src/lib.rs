#![doc = include_str!("../README.md")]

mod database;
pub use database::Database;

mod tables;
pub use tables::Tables;

mod leases;
pub use leases::SqlLeases;

mod inbox;
pub use inbox::{
    Claim, Committed, InTransaction, Position, Settings, SourceSettings, SqlInbox, SqlSource,
    SqlTransaction,
};

pub mod error;

mod lent;
mod literals;
mod migrations;
mod times;

pub use sqlx;
