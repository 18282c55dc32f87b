#![doc = include_str!("../README.md")]

mod runtime;
pub use runtime::*;

pub mod clock;

pub mod unwind;

mod prehashed;
pub use prehashed::BuildPrehashed;

mod text;
pub use text::cut;
