//! The decisions of an operator about one key.

mod decide;

mod origins;
