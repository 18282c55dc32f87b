//! Lists on real servers.

mod conformance;
mod plain;
mod support;
