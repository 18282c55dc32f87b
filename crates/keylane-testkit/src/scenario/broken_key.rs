//! Keys whose own code panics.

use std::hash::{Hash, Hasher};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A part of a [`BrokenKey`] that can panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its `Hash`.
    Hash,
    /// Its `PartialEq`.
    Eq,
    /// Its `Clone`.
    Clone,
    /// Its `Drop`.
    Drop,
    /// Its `Drop`, unless the thread panics already. A second panic that leaves a `Drop` ends the
    /// process.
    LoneDrop,
}

/// A switch that makes one part of all its keys panic. The panic hook is not called, so tests print
/// nothing.
///
/// ```
/// use std::panic::{AssertUnwindSafe, catch_unwind};
/// use keylane_testkit::scenario::{BrokenKey, Fuse, Part};
///
/// let fuse = Fuse::new();
/// let key = BrokenKey::new(7, &fuse);
/// let compare = || catch_unwind(AssertUnwindSafe(|| key == key));
/// fuse.light_at(Part::Eq, 2); // the second comparison from now on
/// assert_eq!([compare().is_ok(), compare().is_ok(), compare().is_ok()], [true, false, true]);
/// assert!(fuse.put_out(), "it went off");
/// assert_eq!(fuse.panics(), 1);
/// ```
#[derive(Debug, Default)]
pub struct Fuse(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    lit: Option<Lit>,
    panics: usize,
}

#[derive(Debug)]
struct Lit {
    part: Part,
    /// Calls until it goes off; `None`: at each call.
    left: Option<usize>,
    went_off: bool,
}

impl Fuse {
    /// Creates a fuse that is not lit.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Lights the fuse: each call of a part panics.
    pub fn light(&self, part: Part) {
        self.set(part, None);
    }

    /// Lights the fuse: one call of a part, counted from 1, panics.
    pub fn light_at(&self, part: Part, call: usize) {
        self.set(part, Some(call));
    }

    /// Puts the fuse out. Returns whether it went off since it was lit.
    pub fn put_out(&self) -> bool {
        let lit = self.lock().lit.take();
        lit.is_some_and(|lit| lit.went_off)
    }

    /// Returns how often it has gone off in total.
    pub fn panics(&self) -> usize {
        self.lock().panics
    }

    fn set(&self, part: Part, left: Option<usize>) {
        self.lock().lit = Some(Lit {
            part,
            left,
            went_off: false,
        });
    }

    fn burn(&self, part: Part) {
        let mut state = self.lock();
        let Some(lit) = state.lit.as_mut().filter(|lit| lit.part == part) else {
            return;
        };
        if let Some(left) = &mut lit.left {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => return,
            }
            if *left > 0 {
                return;
            }
        }
        lit.went_off = true;
        state.panics += 1;
        drop(state);
        resume_unwind(Box::new("a part of a key panics"));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key that panics when its [`Fuse`] says so.
#[derive(Debug)]
pub struct BrokenKey {
    number: u64,
    fuse: Arc<Fuse>,
}

impl BrokenKey {
    /// Returns the key with this number.
    pub fn new(number: u64, fuse: &Arc<Fuse>) -> Self {
        let fuse = Arc::clone(fuse);
        Self { number, fuse }
    }
}

impl PartialEq for BrokenKey {
    fn eq(&self, other: &Self) -> bool {
        self.fuse.burn(Part::Eq);
        self.number == other.number
    }
}

impl Eq for BrokenKey {}

impl Hash for BrokenKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fuse.burn(Part::Hash);
        self.number.hash(state);
    }
}

impl Clone for BrokenKey {
    fn clone(&self) -> Self {
        self.fuse.burn(Part::Clone);
        Self::new(self.number, &self.fuse)
    }
}

impl Drop for BrokenKey {
    fn drop(&mut self) {
        self.fuse.burn(Part::Drop);
        if !std::thread::panicking() {
            self.fuse.burn(Part::LoneDrop);
        }
    }
}
