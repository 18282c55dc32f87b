//! The program `keylane` and the console of a service that runs.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod served;

mod interrupt;

mod letters;

mod refused;

mod sessions;

mod terminal;

mod tls;

mod top;
