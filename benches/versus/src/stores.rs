//! The stores a durable inbox can be built on.
//!
//! Each of them keeps the same tables by the same algorithm, and answers after the same fsync.

// What is stored.
pub mod inbox;
pub mod message;
pub mod store;
pub mod tail;

// Where.
pub mod fjall;
pub mod floor;
pub mod redb;

// How it is measured.
pub mod measure;
pub mod process;
