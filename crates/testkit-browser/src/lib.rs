//! What tests of pages share: a headless Chromium, requests written as text, and waiting without a
//! runtime.
//!
//! `cargo xtask setup` installs Chromium and its driver.

mod until;
pub use until::until;

mod http;
pub use http::{Answer, Request};

mod browser;
pub use browser::Browser;
