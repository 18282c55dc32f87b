#![doc = include_str!("../README.md")]

// # How it works
//
//     calls, from any runtime ──► Link ──► Session (client, Book) ◄── sweep: what has run out
//                                   └────► Worker: the thread on which the session lives
//
// **Where is a lease, and how is one grant told from the next?** `leases/mod.rs`.
//
// **Why does a renewal write?** A server that was cut off from its leader answers questions for
// some ticks, and the leader does not learn that it has heard of the client. What a majority has
// written in this session was written by a leader that still had it (`Session::beat`,
// `longest_ttl`).
//
// **What if the server puts another session in the place of a lost one, and does not say so?** Each
// renewal makes a node anew, and looks whose it is (`Session::replaced`).
//
// **May a call that was given up do harm when it is done late?** Not after a later one: the
// requests of a session are done in their order, also over a reconnection, because the leader
// refuses what a server still sends for a session that has moved on.

mod server;
pub use server::ZooKeeper;

mod leases;
pub use leases::ZooKeeperLeases;

mod fence;
pub use fence::{Fence, FenceError, Refusal};

mod elections;

mod book;
mod error;
mod link;
mod names;
mod session;
mod timetable;
mod worker;

pub use keylane_connector::ConfigError;
pub use keylane_leader::ElectionStore;
