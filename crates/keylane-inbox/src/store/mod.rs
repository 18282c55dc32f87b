//! The interface of an inbox to its store. The embedded store is [`EmbeddedStore`]; a database
//! server can be another.

mod contract;
pub use contract::{Accepted, InboxStore, Redriven, Settled, Stats, Tail};

pub use crate::limits::check as check_limits;

mod embedded;
pub use embedded::{EmbeddedStore, Settings, SyncMode};
