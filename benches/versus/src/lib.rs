//! keylane beside everything else that keeps messages of one key in order.
//!
//! One process measures all contenders, in turns, so that what disturbs one disturbs all. A second
//! program, `versus-memory`, counts bytes and allocations.

// What is sent, and what a handler does with it.
pub mod keys;
pub mod limits;
pub mod message;
pub mod probe;
pub mod traffic;
pub mod work;

// What is compared.
pub mod contender;
pub mod contenders;

// How it is measured.
pub mod allocator;
pub mod counter;
pub mod disciplines;
pub mod extra;
pub mod footprint;
pub mod idle;
pub mod latency;
pub mod measure;
pub mod pull;
pub mod rate_keys;
pub mod source;
pub mod stores;
pub mod tower;
pub mod workload;

// What came of it.
pub mod against;
pub mod bars;
pub mod glob;
pub mod number;
pub mod plot;
pub mod results;
pub mod table;
