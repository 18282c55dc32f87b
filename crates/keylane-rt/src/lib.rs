#![doc = include_str!("../README.md")]

mod runtime;
pub use runtime::*;

pub mod clock;

pub mod unwind;

#[cfg(not(keylane_shuttle))]
mod nudge;
#[cfg(not(keylane_shuttle))]
pub use nudge::Nudge;

mod prehashed;
pub use prehashed::BuildPrehashed;

mod slots;
pub use slots::Slots;

mod text;
pub use text::cut;

mod shown;
pub use shown::shown_key;
