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

pub use keylane::KeyedSemaphore;
/// The semaphore of a layer, its settings, and why they are refused.
pub use keylane::error::BuildError;
pub use keylane::semaphore::KeyedSemaphoreBuilder;
