//! The embedded store: the suite that all stores must pass, and what is its own.

mod conformance;
