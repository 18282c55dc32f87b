//! For how long a source has what it handed over, as its guard says when it is asked.

use std::fmt;
use std::sync::Arc;

use keylane_rt::unwind::shielded;
use keylane_rt::{Mutex, lock};
use keylane_source::Hold;

type Ask = Arc<dyn Fn() -> Option<Hold> + Send + Sync>;

/// Asks the guard of a source until the intake has ended.
#[derive(Default)]
pub(super) struct HoldWatch(Mutex<Option<Ask>>);

impl HoldWatch {
    pub(super) fn begin(&self, ask: impl Fn() -> Option<Hold> + Send + Sync + 'static) {
        *lock(&self.0) = Some(Arc::new(ask));
    }

    /// Lets the guard go.
    pub(super) fn end(&self) {
        let ask = lock(&self.0).take();
        drop(ask);
    }

    pub(super) fn ask(&self) -> Option<Hold> {
        // The code of the source, outside of the lock.
        let ask = lock(&self.0).clone()?;
        let mut hold = None;
        shielded(|| hold = ask());
        hold
    }
}

impl fmt::Debug for HoldWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HoldWatch")
    }
}
