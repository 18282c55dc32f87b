//! What an operator asks of one key, and decides about it.

mod decide;
