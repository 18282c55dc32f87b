//! The part that all adapters share: pulling elements, starting or parking them, and completing
//! their outputs, all in the consumer's task.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use keylane_rt::unwind::Quiet;
use pin_project_lite::pin_project;

use super::elements::{Elements, KeyedElement, Lost, ParkedElement};
use super::keyed_future::{HashedKey, PanicPayload};
use super::limits::Limits;
use super::outputs::Outputs;

/// Most elements pulled and futures finished in one poll. Then the task yields to others.
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
        elements: Elements<K, T, Fut>,
        outputs: A,
        next_index: u64,
        progress: Progress,
    }
}

/// How far an adapter has come. It only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The source may have more elements.
    Pulling,
    /// The source has ended or is not polled any more. The elements that were pulled finish.
    Finishing,
    /// No element is left.
    Done,
}

/// Why a poll has nothing more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driven {
    /// The source or a future will wake the task.
    Pending,
    /// The work of one poll is used up, and there may be more to do.
    Yield,
    /// The adapter is done.
    Done,
}

impl<S, K, T, G, F, Fut, A> Core<S, K, T, G, F, Fut, A>
where
    S: Stream,
    K: Hash + Eq + Clone,
    G: FnMut(&T) -> K,
    F: FnMut(T) -> Fut,
    Fut: Future,
    A: Outputs<Output = Fut::Output>,
{
    #[track_caller]
    pub(super) fn new(source: S, concurrency: usize, key: G, f: F, outputs: A) -> Self {
        Self {
            source,
            key,
            f,
            hasher: RandomState::new(),
            limits: Limits::new(concurrency),
            elements: Elements::new(),
            outputs,
            next_index: 0,
            progress: Progress::Pulling,
        }
    }

    /// Does the work of one poll, then takes the next output.
    ///
    /// `open` turns an item of the source into an element, or into an output at once. `is_last`
    /// says whether an output is the last one.
    pub(super) fn poll_output(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        open: impl Fn(S::Item) -> Result<T, A::Output>,
        is_last: impl Fn(&A::Output) -> bool,
    ) -> Poll<Option<A::Output>> {
        let driven = self.as_mut().drive(cx, open, is_last);
        if let Some(output) = self.project().outputs.take() {
            return Poll::Ready(Some(output));
        }
        match driven {
            Driven::Done => Poll::Ready(None),
            Driven::Pending => Poll::Pending,
            Driven::Yield => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn drive(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        open: impl Fn(S::Item) -> Result<T, A::Output>,
        is_last: impl Fn(&A::Output) -> bool,
    ) -> Driven {
        if self.progress == Progress::Done {
            return Driven::Done;
        }
        let mut work = WORK;
        while work > 0 {
            // First, so that no new element overtakes what is parked behind the freed key.
            self.as_mut().start_next();
            // One step is kept for the futures, so that a fast source cannot starve them.
            while work > 1 && self.as_mut().poll_pull(cx, &open, &is_last).is_ready() {
                work -= 1;
            }
            work -= 1;
            match self.as_mut().project().elements.poll_finished(cx) {
                Poll::Ready(Some((index, Ok(output)))) => {
                    self.as_mut().project().complete(index, output, &is_last);
                }
                Poll::Ready(Some((index, Err(payload)))) => {
                    self.as_mut().project().fail([index], payload)
                }
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        // A key that was freed by the last step starts its next element in this poll, too.
        self.as_mut().start_next();
        let this = self.project();
        if *this.progress == Progress::Finishing && this.elements.is_idle() {
            *this.progress = Progress::Done;
            this.elements.clear();
            return Driven::Done;
        }
        if work == 0 {
            return Driven::Yield;
        }
        Driven::Pending
    }

    fn start_next(self: Pin<&mut Self>) {
        let mut this = self.project();
        if let Err(Lost { indices, payload }) = this.elements.start_next(this.f) {
            this.fail(indices, payload);
        }
    }

    /// Pulls one more element, if the limits allow it. Ready: there may be another one.
    fn poll_pull(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        open: impl Fn(S::Item) -> Result<T, A::Output>,
        is_last: impl Fn(&A::Output) -> bool,
    ) -> Poll<()> {
        let mut this = self.project();
        if this.elements.in_flight() >= this.limits.concurrency {
            return Poll::Pending;
        }
        if let Some(held) = this.elements.take_held() {
            this.start_or_park(held);
            return if this.elements.holds() {
                Poll::Pending
            } else {
                Poll::Ready(())
            };
        }
        if *this.progress != Progress::Pulling
            || this.elements.len() + this.outputs.held() >= this.limits.capacity()
            || this.outputs.ready() >= this.limits.concurrency
        {
            return Poll::Pending;
        }
        match this.source.as_mut().poll_next(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => *this.progress = Progress::Finishing,
            Poll::Ready(Some(item)) => match open(item) {
                Ok(element) => this.accept(element),
                Err(output) => {
                    let index = this.take_index();
                    this.complete(index, output, is_last);
                }
            },
        }
        Poll::Ready(())
    }
}

// These are methods of the projection, because their callers have projected the pinned core
// already.
impl<S, K, T, G, F, Fut, A> CoreProjection<'_, S, K, T, G, F, Fut, A>
where
    K: Hash + Eq + Clone,
    G: FnMut(&T) -> K,
    F: FnMut(T) -> Fut,
    Fut: Future,
    A: Outputs<Output = Fut::Output>,
{
    /// Takes a new element of the source.
    fn accept(&mut self, element: T) {
        let element = Quiet::new(element);
        // If the user's code panics here, the element has no index yet and no output is expected.
        let key = Quiet::new((self.key)(element.get()));
        let hash = self.hasher.hash_one(&key);
        let index = self.take_index();
        self.start_or_park(KeyedElement {
            hashed: HashedKey { key, hash },
            parked: ParkedElement { index, element },
        });
    }

    fn start_or_park(&mut self, element: KeyedElement<K, T>) {
        let lane_capacity = self.limits.lane_capacity;
        if let Err(Lost { indices, payload }) =
            self.elements.start_or_park(element, lane_capacity, self.f)
        {
            self.fail(indices, payload);
        }
    }

    fn take_index(&mut self) -> u64 {
        let index = *self.next_index;
        *self.next_index += 1;
        self.outputs.push_pending();
        index
    }

    fn complete(&mut self, index: u64, output: A::Output, is_last: impl Fn(&A::Output) -> bool) {
        let last = is_last(&output);
        self.outputs.complete(index, output);
        if last {
            *self.progress = Progress::Finishing;
            self.elements.stop(self.outputs.stop_from(index));
            self.outputs.end_at(index);
        }
    }

    /// These elements will have no output, because the user's code has panicked.
    fn fail(&mut self, indices: impl IntoIterator<Item = u64>, payload: PanicPayload) -> ! {
        for index in indices {
            self.outputs.skip(index);
        }
        resume_unwind(payload)
    }
}

impl<S, K, T, G, F, Fut, A: Outputs> Core<S, K, T, G, F, Fut, A> {
    pub(super) fn is_done(&self) -> bool {
        self.progress == Progress::Done && self.outputs.len() == 0
    }

    pub(super) fn outputs_mut(self: Pin<&mut Self>) -> &mut A {
        self.project().outputs
    }

    /// How many outputs there will be, if nothing panics.
    pub(super) fn size_hint(&self) -> (usize, Option<usize>)
    where
        S: Stream,
    {
        let (lower, upper) = match self.progress {
            Progress::Pulling => self.source.size_hint(),
            Progress::Finishing | Progress::Done => (0, Some(0)),
        };
        let here = self.elements.len() + self.outputs.len();
        (
            lower.saturating_add(here),
            upper.and_then(|upper| upper.checked_add(here)),
        )
    }

    /// Shows neither elements nor keys nor outputs: they are the user's.
    pub(super) fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("in_flight", &self.elements.in_flight())
            .field("parked", &self.elements.parked())
            .field("outputs", &self.outputs.len())
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
