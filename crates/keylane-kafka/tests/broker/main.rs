//! The source against a real broker.

mod conformance;
mod support;
