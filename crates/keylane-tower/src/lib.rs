#![doc = include_str!("../README.md")]

mod layer;
pub use layer::KeyedLayer;

mod service;
pub use service::KeyedService;

pub mod future;

pub mod error;
pub use error::Error;

mod on_drop;
pub use on_drop::{Cancel, Finish, OnDrop};

mod handler;
pub use handler::{ContextHandler, Delivery, ServiceHandler};

pub mod order;

/// The lanes behind the layer, their limits, and which limit does not fit.
pub use keylane::{BuildError, Turnstile, TurnstileBuilder};
