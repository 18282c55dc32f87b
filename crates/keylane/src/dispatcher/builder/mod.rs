//! How a dispatcher is set up, checked and started.

mod settings;
pub use settings::Builder;

mod limits;

mod disciplines;

mod leases;

mod failures;

mod watching;

mod check;

mod spawn;
#[cfg(all(test, keylane_shuttle))]
pub(crate) use spawn::STRIPED;
