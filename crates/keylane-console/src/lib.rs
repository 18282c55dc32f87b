#![doc = include_str!("../README.md")]

mod who;

mod key;
pub use key::ConsoleKey;

mod action;
pub use action::Action;

mod view;
pub use view::View;

mod registry;

mod rows;

mod parts;
pub use parts::SourcePart;

mod leaders;
pub use leaders::Leader;

#[cfg(feature = "leases")]
mod leases;

mod letters;
pub use letters::{LetterStore, StoredLetter};

mod detail;

mod holders;

mod times;

mod summary;

mod target;

mod feed;

mod fronts;

mod access;

mod sessions;

mod reports;

mod refusal;

mod state;

mod guard;

mod acting;

mod assets;

mod routes;

mod letter_routes;

mod console;
pub use console::{Console, ServeError};

mod builder;
pub use builder::{BuildError, Builder};
