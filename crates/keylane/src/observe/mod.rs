//! What can be seen from outside: counters, spans, stuck handlers. A leaf: it decides nothing.

mod stats;
pub(crate) use stats::Counters;
pub use stats::Stats;

mod beat;
pub(crate) use beat::{Beat, Watch};

mod hot;
pub use hot::{By, Hot};

pub(crate) mod heat;

pub(crate) mod facade;
pub(crate) mod trace;
