//! The console over real sockets, and in a real browser.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod served;

mod attacks;

mod feed;

mod holders;

mod holding;

mod actions;

mod gone;

mod page;

mod sources;

mod parts;

mod shelf;

mod leases;

mod letters;

mod letters_of_kafka;

mod letters_of_redis;

mod lane;

mod keyboard;
