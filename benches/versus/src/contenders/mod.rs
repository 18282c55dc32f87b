//! Everything that is measured, behind one trait.
//!
//! Each contender is used the way its own documentation shows it, with the same limits wherever it
//! has such a limit: [`Limits`]. Where there was a choice (a try before a wait, tracing on or off,
//! the size of a mailbox), the faster one was taken.

mod id;

mod floor;
mod future_queue;
mod grommet;
mod kameo;
mod keyed_lock;
mod keylane;
pub mod naive_queue;
mod per_key;
mod ractor;
mod spawn;
mod static_hash;

pub use id::Id;
