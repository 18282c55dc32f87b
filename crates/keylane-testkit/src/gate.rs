//! Holding and releasing handlers.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Futures wait at a gate until the test lets them through, in the order in which they came.
///
/// A handle: clones are the same gate. A new gate is shut. It needs no runtime and no clock.
///
/// ```
/// # use keylane_testkit::Gate;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let gate = Gate::new();
/// let handler = tokio::spawn(gate.pass());
/// gate.arrivals(1).await; // the handler stands at the gate, for certain
/// assert_eq!(gate.waiting(), 1);
/// gate.release(1);
/// handler.await.unwrap();
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Gate {
    state: Arc<Mutex<State>>,
}

impl Gate {
    /// Creates a shut gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits until the gate lets this future through.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it loses its place. If it had already been released, the release
    /// goes to the next future.
    pub fn pass(&self) -> Pass {
        Pass {
            gate: self.clone(),
            ticket: None,
            passed: false,
        }
    }

    /// Waits until at least `count` futures wait at this gate at once.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing changes.
    pub fn arrivals(&self, count: usize) -> Arrivals {
        Arrivals {
            gate: self.clone(),
            count,
            ticket: None,
        }
    }

    /// Returns the number of futures that wait at this gate.
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Lets `count` futures through: first those that wait longest, then later arrivals.
    pub fn release(&self, count: usize) {
        let mut state = self.lock();
        state.banked += count;
        let wakers = state.settle();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Opens the gate: lets all futures through, now and from now on.
    pub fn open(&self) {
        let mut state = self.lock();
        state.open = true;
        let wakers = state.settle();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Shuts the gate: no future passes from now on, and unused releases are forgotten.
    pub fn shut(&self) {
        let mut state = self.lock();
        state.open = false;
        state.banked = 0;
    }

    /// Locks the state. A handler may panic while it waits here, but the state is consistent
    /// whenever it is unlocked.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Gate")
            .field("open", &state.open)
            .field("waiting", &state.waiting.len())
            .finish()
    }
}

/// The future of [`Gate::pass`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Pass {
    gate: Gate,
    ticket: Option<u64>,
    passed: bool,
}

impl Future for Pass {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.passed {
            return Poll::Ready(());
        }
        let mut state = this.gate.lock();
        let ticket = match this.ticket {
            Some(ticket) if state.waiting.contains_key(&ticket) => ticket,
            // The release has already taken it out of the queue.
            Some(_) => {
                this.passed = true;
                return Poll::Ready(());
            }
            None => state.next_ticket(),
        };
        this.ticket = Some(ticket);
        let replaced = state.waiting.insert(ticket, cx.waker().clone());
        let wakers = state.settle();
        let passed = !state.waiting.contains_key(&ticket);
        drop(state);
        drop(replaced);
        wakers.into_iter().for_each(Waker::wake);
        this.passed = passed;
        if passed {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.filter(|_| !self.passed) else {
            return;
        };
        let mut state = self.gate.lock();
        let place = state.waiting.remove(&ticket);
        let wakers = if place.is_none() && !state.open {
            state.banked += 1;
            state.settle()
        } else {
            Vec::new()
        };
        drop(state);
        drop(place);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The future of [`Gate::arrivals`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Arrivals {
    gate: Gate,
    count: usize,
    ticket: Option<u64>,
}

impl Future for Arrivals {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut state = this.gate.lock();
        if state.waiting.len() >= this.count {
            return Poll::Ready(());
        }
        let ticket = *this.ticket.get_or_insert_with(|| state.next_ticket());
        let replaced = state
            .watching
            .insert(ticket, (this.count, cx.waker().clone()));
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let watch = self.gate.lock().watching.remove(&ticket);
            drop(watch);
        }
    }
}

/// The queue. Wakers are taken out under the lock, and woken or dropped after it.
#[derive(Default)]
struct State {
    open: bool,
    /// Releases that no future has used yet.
    banked: usize,
    tickets: u64,
    /// The waiting futures by ticket, which is the order of arrival. A release removes the entry.
    waiting: BTreeMap<u64, Waker>,
    /// Futures of [`Gate::arrivals`], each with the number of waiters that it waits for.
    watching: BTreeMap<u64, (usize, Waker)>,
}

impl State {
    fn next_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Lets through as many futures as it may, and returns all wakers to wake.
    #[must_use = "these must be woken"]
    fn settle(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while self.open || self.banked > 0 {
            let Some((_, waker)) = self.waiting.pop_first() else {
                break;
            };
            if !self.open {
                self.banked -= 1;
            }
            wakers.push(waker);
        }
        let crowd = self.waiting.len();
        let met = self
            .watching
            .extract_if(.., |_, (count, _)| *count <= crowd);
        wakers.extend(met.map(|(_, (_, waker))| waker));
        wakers
    }
}

#[cfg(test)]
mod tests {
    use tokio_test::{assert_pending, assert_ready, task};

    use super::*;

    #[test]
    fn lets_through_in_order_of_arrival_and_banks_the_rest() {
        let gate = Gate::new();
        let mut futures: Vec<_> = (0..3).map(|_| task::spawn(gate.pass())).collect();
        futures
            .iter_mut()
            .for_each(|future| assert_pending!(future.poll()));
        gate.release(2);
        assert_eq!(
            futures
                .iter()
                .map(|future| future.is_woken())
                .collect::<Vec<_>>(),
            [true, true, false]
        );
        assert_ready!(futures[0].poll());
        assert_ready!(futures[1].poll());
        assert_pending!(futures[2].poll());
        assert_eq!(gate.waiting(), 1);

        futures.drain(..2); // their releases are used up
        assert_pending!(futures[0].poll());
        gate.release(2);
        assert_ready!(futures[0].poll());
        assert_ready!(task::spawn(gate.pass()).poll());
        assert_pending!(task::spawn(gate.pass()).poll());
    }

    #[test]
    fn a_dropped_future_passes_its_release_on() {
        let gate = Gate::new();
        let mut first = task::spawn(gate.pass());
        let mut second = task::spawn(gate.pass());
        assert_pending!(first.poll());
        assert_pending!(second.poll());
        gate.release(1);
        drop(first);
        assert!(second.is_woken());
        assert_ready!(second.poll());
    }

    #[test]
    fn a_dropped_future_leaves_the_queue() {
        let gate = Gate::new();
        let mut first = task::spawn(gate.pass());
        let mut second = task::spawn(gate.pass());
        assert_pending!(first.poll());
        assert_pending!(second.poll());
        drop(first);
        assert_eq!(gate.waiting(), 1);
        gate.release(1);
        assert_ready!(second.poll());
        assert_pending!(task::spawn(gate.pass()).poll());
    }

    #[test]
    fn open_lets_all_through_until_shut() {
        let gate = Gate::new();
        let mut early = task::spawn(gate.pass());
        assert_pending!(early.poll());
        gate.open();
        assert!(early.is_woken());
        gate.release(5);
        assert_ready!(task::spawn(gate.pass()).poll());
        gate.shut();
        assert_ready!(early.poll());
        assert_pending!(task::spawn(gate.pass()).poll());
    }

    #[test]
    fn arrivals_counts_who_waits_now() {
        let gate = Gate::new();
        let mut two = task::spawn(gate.arrivals(2));
        assert_ready!(task::spawn(gate.arrivals(0)).poll());
        assert_pending!(two.poll());
        let mut first = task::spawn(gate.pass());
        assert_pending!(first.poll());
        assert!(!two.is_woken());
        assert_pending!(two.poll());
        let mut second = task::spawn(gate.pass());
        assert_pending!(second.poll());
        assert!(two.is_woken());
        assert_ready!(two.poll());

        let mut watch = task::spawn(gate.arrivals(3));
        assert_pending!(watch.poll());
        drop(watch);
        assert!(gate.lock().watching.is_empty());
    }

    #[test]
    fn polling_again_keeps_the_place_and_takes_the_new_waker() {
        let gate = Gate::new();
        let mut future = gate.pass();
        let mut old = task::spawn(());
        let mut new = task::spawn(());
        assert_pending!(old.enter(|cx, _| Pin::new(&mut future).poll(cx)));
        assert_pending!(new.enter(|cx, _| Pin::new(&mut future).poll(cx)));
        assert_eq!(gate.waiting(), 1);
        gate.release(1);
        assert!(new.is_woken() && !old.is_woken());
    }
}
