//! What all adapters have in common: it pulls, parks, starts and finishes, in the consumer's task.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use pin_project_lite::pin_project;

use super::answers::Answers;
use super::flight::{Keyed, Thrown};
use super::inside::{Arrival, Inside, Lost, Parked};
use super::limits::Limits;
use crate::engine::Quiet;

/// Most elements pulled and futures finished in one poll. Then others get their turn.
const WORK: usize = 128;

pin_project! {
    #[project = CoreProjection]
    pub(super) struct Core<S, K, T, G, F, Fut, A> {
        #[pin]
        source: S,
        key: G,
        f: F,
        hasher: RandomState,
        pub(super) limits: Limits,
        inside: Inside<K, T, Fut>,
        answers: A,
        next_index: u64,
        stage: Stage,
    }
}

/// How far it is. It only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There may be more elements.
    Pulling,
    /// The source has ended, or is not asked any more; what is inside finishes.
    Finishing,
    /// Nothing is inside.
    Over,
}

/// Why there is nothing more to do in this poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Somebody will wake the task.
    Waiting,
    /// It has done enough for one poll.
    Tired,
    /// Nothing is going to happen.
    Over,
}

impl<S, K, T, G, F, Fut, A> Core<S, K, T, G, F, Fut, A>
where
    S: Stream,
    K: Hash + Eq + Clone,
    G: FnMut(&T) -> K,
    F: FnMut(T) -> Fut,
    Fut: Future,
    A: Answers<Answer = Fut::Output>,
{
    #[track_caller]
    pub(super) fn new(source: S, concurrency: usize, key: G, f: F, answers: A) -> Self {
        Self {
            source,
            key,
            f,
            hasher: RandomState::new(),
            limits: Limits::new(concurrency),
            inside: Inside::new(),
            answers,
            next_index: 0,
            stage: Stage::Pulling,
        }
    }

    /// Moves everything on, then takes the answer that is next.
    ///
    /// `open` takes an item of the source: an element, or an answer already. `is_last` tells whether
    /// nothing is to follow an answer.
    pub(super) fn poll_answer(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        open: impl Fn(S::Item) -> Result<T, A::Answer>,
        is_last: impl Fn(&A::Answer) -> bool,
    ) -> Poll<Option<A::Answer>> {
        let stop = self.as_mut().drive(cx, open, is_last);
        if let Some(answer) = self.project().answers.take() {
            return Poll::Ready(Some(answer));
        }
        match stop {
            Stop::Over => Poll::Ready(None),
            Stop::Waiting => Poll::Pending,
            Stop::Tired => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn drive(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        open: impl Fn(S::Item) -> Result<T, A::Answer>,
        is_last: impl Fn(&A::Answer) -> bool,
    ) -> Stop {
        if self.stage == Stage::Over {
            return Stop::Over;
        }
        let mut work = WORK;
        while work > 0 {
            #[cfg(keylane_mutant = "stream-restart-late")]
            if self.answers.len() > 0 {
                return Stop::Waiting;
            }
            // First of all, or a new element could take the key that was freed, or its place.
            self.as_mut().move_on();
            // The last of the work is for what is in flight, however much comes in.
            while work > 1 && self.as_mut().poll_enter(cx, &open, &is_last).is_ready() {
                work -= 1;
            }
            work -= 1;
            match self.as_mut().project().inside.poll_landed(cx) {
                Poll::Ready(Some((index, Ok(answer)))) => {
                    self.as_mut().project().settle(index, answer, &is_last);
                }
                Poll::Ready(Some((index, Err(thrown)))) => {
                    self.as_mut().project().lose([index], thrown)
                }
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        // A key that was freed last moves on in this poll all the same.
        self.as_mut().move_on();
        let this = self.project();
        if *this.stage == Stage::Finishing && this.inside.is_still() {
            *this.stage = Stage::Over;
            this.inside.clear();
            return Stop::Over;
        }
        if work == 0 {
            return Stop::Tired;
        }
        Stop::Waiting
    }

    fn move_on(self: Pin<&mut Self>) {
        let mut this = self.project();
        if let Err(Lost { indices, thrown }) = this.inside.move_on(this.f) {
            this.lose(indices, thrown);
        }
    }

    /// Lets one more element in, if there is a place for it. Ready: there may be another one.
    fn poll_enter(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        open: impl Fn(S::Item) -> Result<T, A::Answer>,
        is_last: impl Fn(&A::Answer) -> bool,
    ) -> Poll<()> {
        let mut this = self.project();
        if this.inside.in_flight() >= this.limits.concurrency {
            return Poll::Pending;
        }
        if let Some(held) = this.inside.take_held() {
            this.enter(held);
            return if this.inside.holds() {
                Poll::Pending
            } else {
                Poll::Ready(())
            };
        }
        #[cfg(keylane_mutant = "stream-idle")]
        if this.inside.in_flight() > 0 && this.answers.len() > 0 {
            return Poll::Pending;
        }
        if *this.stage != Stage::Pulling
            || this.inside.len() + this.answers.held() >= this.limits.capacity()
            || this.answers.ready() >= this.limits.concurrency
        {
            return Poll::Pending;
        }
        match this.source.as_mut().poll_next(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => *this.stage = Stage::Finishing,
            Poll::Ready(Some(item)) => match open(item) {
                Ok(element) => this.arrive(element),
                Err(answer) => {
                    let index = this.count();
                    this.settle(index, answer, is_last);
                }
            },
        }
        Poll::Ready(())
    }
}

// What follows from a step. The projection is taken by these, not the pinned core.
impl<S, K, T, G, F, Fut, A> CoreProjection<'_, S, K, T, G, F, Fut, A>
where
    K: Hash + Eq + Clone,
    G: FnMut(&T) -> K,
    F: FnMut(T) -> Fut,
    Fut: Future,
    A: Answers<Answer = Fut::Output>,
{
    /// A new element has come out of the source.
    fn arrive(&mut self, element: T) {
        let element = Quiet::new(element);
        // Should the user's code panic here, the element was never counted.
        let key = Quiet::new((self.key)(element.get()));
        let hash = self.hasher.hash_one(&key);
        let index = self.count();
        self.enter(Arrival {
            at: Keyed { key, hash },
            parked: Parked { index, element },
        });
    }

    fn enter(&mut self, arrival: Arrival<K, T>) {
        let lane_capacity = self.limits.lane_capacity;
        if let Err(Lost { indices, thrown }) = self.inside.enter(arrival, lane_capacity, self.f) {
            self.lose(indices, thrown);
        }
    }

    fn count(&mut self) -> u64 {
        let index = *self.next_index;
        *self.next_index += 1;
        self.answers.expect();
        index
    }

    fn settle(&mut self, index: u64, answer: A::Answer, is_last: impl Fn(&A::Answer) -> bool) {
        let last = is_last(&answer);
        self.answers.put(index, answer);
        if last {
            *self.stage = Stage::Finishing;
            self.inside.cut(self.answers.over_from(index));
            self.answers.end_with(index);
        }
    }

    /// These elements will have no answer, because something has panicked.
    fn lose(&mut self, indices: impl IntoIterator<Item = u64>, thrown: Thrown) -> ! {
        for index in indices {
            self.answers.skip(index);
        }
        resume_unwind(thrown)
    }
}

impl<S, K, T, G, F, Fut, A: Answers> Core<S, K, T, G, F, Fut, A> {
    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over && self.answers.len() == 0
    }

    pub(super) fn answers_mut(self: Pin<&mut Self>) -> &mut A {
        self.project().answers
    }

    /// How many answers there will be, if nothing panics.
    pub(super) fn size_hint(&self) -> (usize, Option<usize>)
    where
        S: Stream,
    {
        let (lower, upper) = match self.stage {
            Stage::Pulling => self.source.size_hint(),
            Stage::Finishing | Stage::Over => (0, Some(0)),
        };
        let here = self.inside.len() + self.answers.len();
        (
            lower.saturating_add(here),
            upper.and_then(|upper| upper.checked_add(here)),
        )
    }

    /// Neither elements nor keys nor answers: they are the user's.
    pub(super) fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("in_flight", &self.inside.in_flight())
            .field("parked", &self.inside.parked())
            .field("answers", &self.answers.len())
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}
