//! The reason why a case has failed.

use std::error::Error;
use std::fmt;

use keylane::error::BoxError;

/// A mistake of a source.
///
/// `Debug` prints the text of `Display` on lines of its own, so the panic message of an `expect` is
/// readable.
#[derive(Clone, PartialEq, Eq)]
pub struct Broken(String);

impl Broken {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// Returns `Err` with this text, unless `holds` is true.
pub(super) fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<(), Broken> {
    match holds {
        true => Ok(()),
        false => Err(Broken::new(what())),
    }
}

impl From<BoxError> for Broken {
    fn from(error: BoxError) -> Self {
        Self(format!("the harness failed: {error}"))
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl Error for Broken {}
