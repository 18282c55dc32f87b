//! Where a message is, as text.

use std::fmt;
use std::sync::Arc;

use keylane_rt::cut;
use keylane_rt::unwind::caught;

/// Most characters of a description.
const LONGEST: usize = 256;

/// What a description says if its function panics.
const UNKNOWN: &str = "a position whose description panics";

/// Says where a message is: a function of its position, for the lines of the log about the message,
/// and for those who inspect its lane. It does not need the source, which may be busy with a call.
/// Clones share the function.
///
/// The default is the `Debug` of the position.
///
/// # Examples
///
/// ```
/// use keylane::source::Describer;
///
/// #[derive(Debug)]
/// struct Row { number: u64 }
///
/// let debug = Describer::<Row>::default();
/// assert_eq!(debug.describe(&Row { number: 7 }), "Row { number: 7 }");
///
/// let rows = Describer::new(|row: &Row| format!("row {}", row.number));
/// assert_eq!(rows.describe(&Row { number: 7 }), "row 7");
///
/// // A source around another one has positions of its own.
/// struct Numbered { inner: Row }
/// let numbered = rows.inside(|position: &Numbered| &position.inner);
/// assert_eq!(numbered.describe(&Numbered { inner: Row { number: 8 } }), "row 8");
/// ```
pub struct Describer<P>(Arc<dyn Fn(&P) -> String + Send + Sync>);

impl<P: 'static> Describer<P> {
    /// Creates a describer. The function shows no secrets, and must not block.
    pub fn new(describe: impl Fn(&P) -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(describe))
    }

    /// Returns where a message is, in at most 256 characters. If the function panics, the text says
    /// so.
    pub fn describe(&self, position: &P) -> String {
        let described = caught(|| (self.0)(position));
        cut(described.unwrap_or_else(|_| UNKNOWN.to_owned()), LONGEST)
    }

    /// Returns a describer of positions `Q` that have such a position inside, for a source around
    /// another one.
    pub fn inside<Q: 'static>(self, inner: fn(&Q) -> &P) -> Describer<Q> {
        Describer::new(move |position| (self.0)(inner(position)))
    }
}

impl<P: fmt::Debug + 'static> Default for Describer<P> {
    fn default() -> Self {
        Self::new(|position| format!("{position:?}"))
    }
}

impl<P> Clone for Describer<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P> fmt::Debug for Describer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Describer").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_description_that_panics_is_a_text() {
        let bad = Describer::new(|_: &u64| panic!("the test wants it"));
        assert_eq!(bad.describe(&1), UNKNOWN);
        let around = bad.inside(|position: &(u64, ())| &position.0);
        assert_eq!(around.describe(&(1, ())), UNKNOWN);
    }

    #[test]
    fn a_description_is_cut() {
        let long = Describer::new(|length: &usize| "x".repeat(*length));
        assert_eq!(long.describe(&LONGEST).chars().count(), LONGEST);
        assert!(long.describe(&10_000).chars().count() <= LONGEST + 1);
    }
}
