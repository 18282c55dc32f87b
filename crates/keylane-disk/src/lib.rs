#![doc = include_str!("../README.md")]

mod displacement;
pub use displacement::Displacement;

mod place;
pub use place::{Displaced, Place};

mod name;
pub use name::name_of;

mod storage;
pub use storage::{Opener, Watch, Watched, file};

pub mod random;
