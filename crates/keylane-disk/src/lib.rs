//! The files of an inbox and of a spool of [keylane](https://docs.rs/keylane): whether they are still
//! where they were opened, and what happens to their bytes.
//!
//! It has no stable API: use `keylane-inbox` or `keylane-spool` instead.

mod displacement;
pub use displacement::Displacement;

mod place;
pub use place::{Displaced, Place};

mod storage;
pub use storage::{Opener, Watch, Watched, file};

pub mod random;
