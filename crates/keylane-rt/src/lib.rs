#![doc = include_str!("../README.md")]

mod runtime;
pub use runtime::*;

pub mod clock;

pub mod unwind;

mod prehashed;
pub use prehashed::BuildPrehashed;

mod slots;
pub use slots::Slots;

mod text;
pub use text::cut;
