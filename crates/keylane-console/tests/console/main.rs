//! The console over real sockets, and in a real browser.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod served;

mod attacks;

mod feed;

mod actions;

mod page;

mod sources;

// HTTP as text and a driven browser, as the example `orders` has them for its page.
#[path = "../../../../examples/orders/tests/support/mod.rs"]
mod support;

#[path = "../../../../examples/orders/tests/page/browser.rs"]
mod browser;
