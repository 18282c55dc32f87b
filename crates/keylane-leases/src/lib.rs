#![doc = include_str!("../README.md")]

mod leases;
pub use leases::Leases;

mod lease;
pub use lease::Lease;

mod lanes;
pub use lanes::Lanes;

mod settings;
pub use settings::{LONGEST_TTL, SHORTEST_TTL, Settings};

pub mod error;

pub mod store;
pub use store::{LeaseStore, Owner, Token};

pub mod table;

mod memory;
pub use memory::MemoryStore;

pub mod conformance;

mod keeper;
mod shared;
mod term;

pub use async_trait::async_trait;
pub use bytes::Bytes;
