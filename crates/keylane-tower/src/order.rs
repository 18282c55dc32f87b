//! The order of layers, and how it changes what they do.
//!
//! In a `ServiceBuilder` the first layer is the outermost: it sees a request first. A layer
//! *outside* the keyed layer includes the time in which a request waits for its permit. A layer
//! *inside* it runs while the request holds the permit, so the requests behind it in the same key
//! wait.
//!
//! - `timeout`
//!   - outside: the time starts with `call`. A request that waits too long leaves its lane and
//!     never runs. A request that runs too long is dropped, and the next of its key runs.
//!   - inside: the time starts when the request has its permit. Before that, only the capacity of
//!     the lane limits how long it waits.
//! - `retry`
//!   - outside: each attempt is a new `call`. It goes to the end of its lane, and the requests
//!     behind the failed attempt run before it. Attempts are in order, requests are not.
//!   - inside: all attempts run under one permit. The key waits, and requests are in order. Choose
//!     this where the order of requests matters.
//! - `concurrency_limit`
//!   - outside: it limits all requests, those that wait included, so one busy key can use it up.
//!   - inside: it limits the inner service. A request that finds the limit used up waits, and holds
//!     its permit meanwhile. The `concurrency` of the semaphore is the better choice: it gives
//!     permits only to requests that can run.
//! - `load_shed`
//!   - outside: at the capacity, a request fails at once with `Overloaded` and does not wait in
//!     `poll_ready`. This is right for servers.
//!   - inside: if the inner service is not ready, the request fails and its permit is given back.
//! - `buffer`
//!   - outside: requests go through one queue in the order of their `call`s, and the worker calls
//!     the keyed layer in that order.
//!   - inside: requests enter the queue in the order of their permits. A permit is held until the
//!     worker has sent the response, so order holds.
//! - `rate_limit`
//!   - outside: it delays all keys together, before a request has its place in a lane.
//!   - inside: it delays a request that holds its permit.
//! - panic catching
//!   - outside: the next request of the key may run before the panic is caught.
//!   - inside: the panic becomes a response before the permit is given back.
//!
//! `timeout`, `load_shed` and `buffer` change the error type to a boxed error, in which `is` and
//! `downcast_ref` find [`LaneFull`](crate::error::LaneFull) and [`Closed`](crate::error::Closed).
//! In axum, these layers stand below a `HandleErrorLayer`, whose function then takes a `BoxError`
//! and not an [`Error`](crate::Error). The front page of this crate has an example.
//!
//! If a layer outside calls from several tasks, or calls clones in an order of its own, the order
//! is that of its `call`s.
//!
//! ```
//! use std::time::Duration;
//! use keylane_tower::KeyedLayer;
//! use tower::{BoxError, ServiceBuilder, service_fn};
//!
//! # fn main() {
//! let by_account = KeyedLayer::by_key(|payment: &(u64, i64)| Some(payment.0));
//! let ledger = ServiceBuilder::new()
//!     .load_shed()                        // at the capacity: an error instead of waiting
//!     .timeout(Duration::from_secs(30))   // from the call to the response
//!     .layer(by_account)
//!     .timeout(Duration::from_secs(2))    // from the permit to the response
//!     .service(service_fn(|(_, amount): (u64, i64)| async move { Ok::<i64, BoxError>(amount) }));
//! # drop(ledger);
//! # }
//! ```
