//! Which order of layers means what.
//!
//! In `ServiceBuilder` the first layer is the outermost: it sees a request first. *Outside* of the keyed
//! layer means that what a layer does includes the waiting for a turn; *inside* means that it happens
//! during the turn, and the key waits for it.
//!
//! | layer | outside: above the keyed layer | inside: below it |
//! | --- | --- | --- |
//! | `timeout` | the time counts from the `call`. A request that waits too long leaves its lane and was never run; one that runs too long is dropped, and the next has its turn | the time counts from the moment its turn has come. Waiting in the lane has no limit but the lane's capacity |
//! | `retry` | each attempt is a new `call`: it goes to the end of its lane, and what was behind the failed attempt runs before it. Order holds for attempts, not for requests | the attempts happen during one turn: the key waits, and order holds for requests. This is what ledgers want |
//! | `concurrency_limit` | a limit on requests in all, those that wait included: one busy key can use it up | a limit on the inner service; a head that finds it used up waits with its turn in hand. Use the turnstile's `concurrency` instead, which gives turns only to those who can run |
//! | `load_shed` | a request beyond the capacity is answered at once with `Overloaded`, instead of waiting in `poll_ready`. Right for servers | an inner service that is not ready fails the request, whose turn is over |
//! | `buffer` | puts requests into one line, in the order of their `call`s, and keeps it; its worker calls the keyed layer in that order | takes requests in the order of the turns, and answers come from a worker: the key waits for the answer, so order holds |
//! | `rate_limit` | slows all keys together, before they have a place | the one whose turn it is waits, and holds its turn |
//! | panic catching | sees the panic when the next of the key has its turn already | the panic is an answer, during the turn |
//!
//! Some of them change the error: around `timeout`, `load_shed` and `buffer` it is a boxed one, in which
//! [`LaneFull`](crate::error::LaneFull) and [`Closed`](crate::error::Closed) are found with `is` or
//! `downcast_ref`. In axum all of that stands below its `HandleErrorLayer`, which then takes a `BoxError`
//! and not an [`Error`](crate::Error): the front page of this crate has it.
//!
//! A layer outside that calls from several tasks, or makes clones ready in any order, decides the order
//! in which `call` happens; from there on it is kept.
//!
//! ```
//! use std::time::Duration;
//! use keylane_tower::KeyedLayer;
//! use tower::{BoxError, ServiceBuilder, service_fn};
//!
//! # fn main() {
//! let by_account = KeyedLayer::by_key(|payment: &(u64, i64)| Some(payment.0));
//! let ledger = ServiceBuilder::new()
//!     .load_shed()                        // at the capacity: an error, and no waiting
//!     .timeout(Duration::from_secs(30))   // from the call to the answer
//!     .layer(by_account)
//!     .timeout(Duration::from_secs(2))    // from the turn to the answer
//!     .service(service_fn(|(_, amount): (u64, i64)| async move { Ok::<i64, BoxError>(amount) }));
//! # drop(ledger);
//! # }
//! ```
