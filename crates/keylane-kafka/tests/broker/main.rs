//! The source against a real broker.

mod conformance;
mod consumer;
mod hot_keys;
mod logs;
mod rebalances;
mod resume;
mod support;
