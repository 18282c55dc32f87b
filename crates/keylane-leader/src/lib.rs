//! One leader across processes.

mod memory;
pub use memory::MemoryElections;

pub mod store;
pub use store::ElectionStore;

pub mod conformance;
