#![doc = include_str!("../README.md")]

mod key;
pub use key::ConsoleKey;

mod action;
pub use action::Action;

mod registry;

mod rows;

mod summary;

mod target;

mod feed;

mod access;

mod sessions;

mod refusal;

mod state;

mod guard;

mod assets;

mod routes;

mod console;
pub use console::{Console, ServeError};

mod builder;
pub use builder::{BuildError, Builder};
