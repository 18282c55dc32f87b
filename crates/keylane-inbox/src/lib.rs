//! Durable ends for keylane: a spool for producers.

pub mod spool;
