//! Lists on real servers.

mod conformance;
mod support;
