//! Lists on real servers.

mod conformance;
mod hostile;
mod late;
mod plain;
mod processes;
mod sink;
mod state;
mod story;
mod support;
