//! The code of a crate as it is measured: its files, its modules, and what each of them names.

mod disk;
pub(super) use disk::{document, packages};

mod file;
pub(super) use file::Line;

mod modules;
pub(super) use modules::Crate;

mod product;

mod words;
pub(super) use words::{own_calls, words};

mod names;
pub(super) use names::{Names, Reach, Target, Use, name, uses};

/// A crate of these files, for tests.
#[cfg(test)]
pub(super) use modules::tests::code_of;
