//! Where answers wait until the consumer takes them.

use std::collections::VecDeque;

/// What an adapter does with answers.
pub(super) trait Answers {
    type Answer;

    /// One more element is inside; the first has the index 0, the next one 1.
    fn expect(&mut self);

    /// An element is answered.
    fn put(&mut self, index: u64, answer: Self::Answer);

    /// An element will have no answer.
    fn skip(&mut self, index: u64);

    /// The answer that is next.
    fn take(&mut self) -> Option<Self::Answer>;

    /// How many can be taken one after the other.
    fn ready(&self) -> usize;

    /// How many are here.
    fn len(&self) -> usize;

    /// How many places are held: by those that are here, and by those that were skipped and wait behind
    /// somebody.
    fn held(&self) -> usize {
        self.len()
    }

    /// The element from which on nothing is to start any more once the one at `index` is the last.
    fn over_from(&self, index: u64) -> u64;

    /// The answer at `index` is the last.
    fn end_with(&mut self, index: u64);
}

/// In the order of the elements.
pub(super) struct InOrder<A> {
    /// The first is never [`Place::Gone`]: it is waited for, or can be taken.
    places: VecDeque<Place<A>>,
    /// The index of the first place.
    first: u64,
    /// Places from the first on that nobody waits for.
    run: usize,
    /// Answers among these.
    ready: usize,
    len: usize,
    gone: usize,
}

enum Place<A> {
    Waiting,
    Here(A),
    Gone,
}

impl<A> InOrder<A> {
    pub(super) fn new() -> Self {
        Self {
            places: VecDeque::new(),
            first: 0,
            run: 0,
            ready: 0,
            len: 0,
            gone: 0,
        }
    }

    fn set(&mut self, index: u64, place: Place<A>) {
        let at = usize::try_from(index - self.first);
        #[cfg(not(keylane_mutant = "stream-answer-order"))]
        let at = at.expect("places are in memory");
        #[cfg(keylane_mutant = "stream-answer-order")]
        let at = at.map_or(0, |_| {
            let mut places = self.places.iter();
            let free = places.position(|place| matches!(place, Place::Waiting));
            free.expect("one waits")
        });
        self.places[at] = place;
        self.stretch();
    }

    fn stretch(&mut self) {
        while let Some(place) = self.places.get(self.run) {
            match place {
                Place::Waiting => return,
                Place::Here(_) => self.ready += 1,
                Place::Gone => {}
            }
            self.run += 1;
        }
    }

    /// Nobody comes for the skipped places in front.
    fn trim(&mut self) {
        while let Some(Place::Gone) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
            self.run -= 1;
            self.gone -= 1;
        }
    }
}

impl<A> Answers for InOrder<A> {
    type Answer = A;

    fn expect(&mut self) {
        self.places.push_back(Place::Waiting);
    }

    fn put(&mut self, index: u64, answer: A) {
        self.len += 1;
        self.set(index, Place::Here(answer));
    }

    fn skip(&mut self, index: u64) {
        self.gone += 1;
        self.set(index, Place::Gone);
        self.trim();
    }

    fn take(&mut self) -> Option<A> {
        let first = self
            .places
            .pop_front_if(|place| matches!(place, Place::Here(_)));
        let Some(Place::Here(answer)) = first else {
            return None;
        };
        self.first += 1;
        self.run -= 1;
        self.ready -= 1;
        self.len -= 1;
        self.trim();
        Some(answer)
    }

    fn ready(&self) -> usize {
        self.ready
    }

    fn len(&self) -> usize {
        self.len
    }

    fn held(&self) -> usize {
        self.len + self.gone
    }

    fn over_from(&self, index: u64) -> u64 {
        index
    }

    fn end_with(&mut self, index: u64) {
        let keep = usize::try_from(index - self.first).map_or(usize::MAX, |at| at + 1);
        let keep = keep.min(self.places.len());
        let after = self.places.split_off(keep);
        let here = |place: &&Place<A>| matches!(place, Place::Here(_));
        self.len = self.places.iter().filter(here).count();
        let gone = |place: &&Place<A>| matches!(place, Place::Gone);
        self.gone = self.places.iter().filter(gone).count();
        (self.run, self.ready) = (0, 0);
        self.stretch();
        // The user's, and may panic: last.
        drop(after);
    }
}

/// In the order in which they came.
pub(super) struct AsTheyCome<A>(VecDeque<A>);

impl<A> AsTheyCome<A> {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }
}

impl<A> Answers for AsTheyCome<A> {
    type Answer = A;

    fn expect(&mut self) {}

    fn put(&mut self, _: u64, answer: A) {
        self.0.push_back(answer);
    }

    fn skip(&mut self, _: u64) {}

    fn take(&mut self) -> Option<A> {
        self.0.pop_front()
    }

    fn ready(&self) -> usize {
        self.0.len()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn over_from(&self, _: u64) -> u64 {
        0
    }

    fn end_with(&mut self, _: u64) {}
}

/// Keeps the first error and nothing else.
pub(super) struct FirstError<E>(Option<E>);

impl<E> FirstError<E> {
    pub(super) fn new() -> Self {
        Self(None)
    }

    pub(super) fn take_error(&mut self) -> Option<E> {
        self.0.take()
    }
}

impl<E> Answers for FirstError<E> {
    type Answer = Result<(), E>;

    fn expect(&mut self) {}

    fn put(&mut self, _: u64, answer: Self::Answer) {
        if let Err(error) = answer
            && self.0.is_none()
        {
            self.0 = Some(error);
        }
    }

    fn skip(&mut self, _: u64) {}

    fn take(&mut self) -> Option<Self::Answer> {
        None
    }

    fn ready(&self) -> usize {
        0
    }

    fn len(&self) -> usize {
        0
    }

    fn over_from(&self, _: u64) -> u64 {
        0
    }

    fn end_with(&mut self, _: u64) {}
}

/// There is nothing to keep.
pub(super) struct Nothing;

impl Answers for Nothing {
    type Answer = ();

    fn expect(&mut self) {}

    fn put(&mut self, _: u64, (): ()) {}

    fn skip(&mut self, _: u64) {}

    fn take(&mut self) -> Option<()> {
        None
    }

    fn ready(&self) -> usize {
        0
    }

    fn len(&self) -> usize {
        0
    }

    fn over_from(&self, _: u64) -> u64 {
        0
    }

    fn end_with(&mut self, _: u64) {}
}
