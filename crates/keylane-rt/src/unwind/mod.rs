//! Running, waking and dropping what is the user's, without being taken down by its panics.

mod caught;
pub use caught::{caught, cloned, dropped, shielded};

mod quiet;
pub use quiet::Quiet;
