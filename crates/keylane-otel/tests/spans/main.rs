//! What an exporter sees of attempts, sends and settlements.

#[path = "../support/mod.rs"]
mod support;

mod attempts;
mod batches;
mod contexts;
mod kept;
mod sends;
mod settles;
