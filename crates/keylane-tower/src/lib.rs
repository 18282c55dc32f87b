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

#[cfg(feature = "handler")]
mod handler;
#[cfg(feature = "handler")]
pub use handler::{ContextHandler, Delivery, ServiceHandler};

pub mod order;

/// The semaphore of a layer, its settings, and why they are refused.
#[doc(inline)]
pub use keylane_semaphore::{KeyedSemaphore, KeyedSemaphoreBuilder, SettingError};
