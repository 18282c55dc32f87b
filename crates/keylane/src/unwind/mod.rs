//! Running, waking and dropping what is the user's, without being taken down by its panics.

mod caught;
pub(crate) use caught::{caught, cloned, dropped, shielded};

mod quiet;
pub(crate) use quiet::Quiet;
