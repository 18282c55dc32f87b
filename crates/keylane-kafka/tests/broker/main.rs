//! The source against a real broker.

mod conformance;
mod consumer;
mod logs;
mod resume;
mod support;
