//! keylane beside everything else that keeps messages of one key in order.
//!
//! One process measures all contenders, in turns, so that what disturbs one disturbs all. A second
//! program, `versus-memory`, counts bytes and allocations.

// What is measured, and by whom.
pub mod contenders;
pub mod work;
pub mod workload;

// How.
pub mod disciplines;
pub mod footprint;
pub mod keys;
pub mod measure;
pub mod probe;
pub mod pull;
pub mod tower;

// What is said about it.
pub mod bars;
pub mod glob;
pub mod plot;
pub mod results;
pub mod table;
