//! TLS to servers: why it fails, the certificates of a client, and a handshake that finds the
//! reason where the client of a system does not say it.
//!
//! ```text
//!  error of a client ── TlsFailure::of ──► TlsFailure ──► ErrorKind::Tls
//!  a time-out, an error without a reason ── find_failure: a handshake of our own ──┘
//! ```

mod failure;
pub use failure::{TlsFailure, TlsNames};

#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "tls")]
pub use certificates::{Certificates, Identity, set_provider};

#[cfg(feature = "tls")]
mod find;
#[cfg(feature = "tls")]
pub use find::{find_failure, host_and_port, speaks_tls};

#[cfg(feature = "tls")]
mod open;
#[cfg(feature = "tls")]
pub use open::secured;
