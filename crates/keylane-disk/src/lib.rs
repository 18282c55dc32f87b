#![doc = include_str!("../README.md")]

mod displacement;
pub use displacement::Displacement;

mod place;
pub use place::{Displaced, Place};

mod storage;
pub use storage::{Opener, Watch, Watched, file};

pub mod random;
