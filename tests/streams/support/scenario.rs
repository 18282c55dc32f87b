//! Scripted elements: what comes out of the source when, and when which future is ready.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures::Stream;

use super::task::throw;

/// What becomes of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Fine,
    Fails,
    FailsInSource,
    ThrowsInKey,
    ThrowsInF,
    ThrowsInPoll,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub(crate) key: u64,
    /// How often its future is to be released before it is ready.
    pub(crate) waits: u32,
    pub(crate) fate: Fate,
}

/// An element: its number, counted from 0, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) n: usize,
    pub(crate) key: u64,
}

/// A future that has started and is neither ready nor dropped.
pub(crate) struct Flying {
    pub(crate) key: u64,
    pub(crate) waits: u32,
    waker: Option<Waker>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) scripts: Vec<Script>,
    /// Elements that the source may give out.
    pub(crate) fed: usize,
    pub(crate) pulled: usize,
    pub(crate) ended: bool,
    source: Option<Waker>,
    pub(crate) started: Vec<usize>,
    pub(crate) flying: BTreeMap<usize, Flying>,
    pub(crate) finished: Vec<usize>,
    pub(crate) lost: Vec<usize>,
    pub(crate) dropped: Vec<usize>,
    pub(crate) most: usize,
    /// What started last of each key.
    last: HashMap<u64, usize>,
    /// What must not happen and did. Noted, because a panic here would be caught.
    pub(crate) wrong: Vec<String>,
}

#[derive(Clone, Default)]
pub(crate) struct Scenario(Rc<RefCell<State>>);

/// The source of the elements.
pub(crate) struct Feed(Scenario);

/// The future of an element.
pub(crate) struct Work {
    scenario: Scenario,
    n: usize,
}

impl Scenario {
    pub(crate) fn new(scripts: Vec<Script>) -> Self {
        let scenario = Self::default();
        scenario.0.borrow_mut().scripts = scripts;
        scenario
    }

    /// All elements are there at once. Each is a key, and how often it waits.
    pub(crate) fn of(elements: &[(u64, u32)]) -> Self {
        let fine = |&(key, waits)| Script {
            key,
            waits,
            fate: Fate::Fine,
        };
        let scenario = Self::new(elements.iter().map(fine).collect());
        scenario.feed(elements.len());
        scenario
    }

    pub(crate) fn with_fates(elements: &[(u64, u32, Fate)]) -> Self {
        let script = |&(key, waits, fate)| Script { key, waits, fate };
        let scenario = Self::new(elements.iter().map(script).collect());
        scenario.feed(elements.len());
        scenario
    }

    pub(crate) fn see<R>(&self, see: impl FnOnce(&mut State) -> R) -> R {
        see(&mut self.0.borrow_mut())
    }

    /// The source has so many more elements.
    pub(crate) fn feed(&self, elements: usize) {
        let waker = self.see(|state| {
            state.fed = (state.fed + elements).min(state.scripts.len());
            state.source.take()
        });
        waker.into_iter().for_each(Waker::wake);
    }

    /// The future of this element has to wait once less.
    pub(crate) fn release(&self, n: usize) {
        let waker = self.see(|state| {
            let flying = state.flying.get_mut(&n).expect("it is in flight");
            flying.waits = flying.waits.saturating_sub(1);
            flying.waker.clone()
        });
        waker.into_iter().for_each(Waker::wake);
    }

    /// Wakes all tasks for nothing.
    pub(crate) fn disturb(&self) {
        let wakers: Vec<Waker> = self.see(|state| {
            let flying = state.flying.values();
            let wakers = flying.filter_map(|flying| flying.waker.clone());
            wakers.chain(state.source.clone()).collect()
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn started(&self) -> Vec<usize> {
        self.see(|state| state.started.clone())
    }

    pub(crate) fn in_flight(&self) -> Vec<usize> {
        self.see(|state| state.flying.keys().copied().collect())
    }

    pub(crate) fn pulled(&self) -> usize {
        self.see(|state| state.pulled)
    }

    /// Elements, or errors with their number.
    pub(crate) fn try_feed(&self) -> Feed {
        Feed(self.clone())
    }

    pub(crate) fn stream(&self) -> impl Stream<Item = Element> + Unpin + use<> {
        futures::StreamExt::map(self.try_feed(), |item| item.expect("it has no errors"))
    }

    pub(crate) fn key(&self) -> impl FnMut(&Element) -> u64 + use<> {
        let scenario = self.clone();
        move |element| {
            if scenario.fate(element.n) == Fate::ThrowsInKey {
                scenario.see(|state| state.lost.push(element.n));
                throw(element.n);
            }
            element.key
        }
    }

    /// Starts the work of an element.
    pub(crate) fn start(&self) -> impl FnMut(Element) -> Work + use<> {
        let scenario = self.clone();
        move |element| {
            scenario.note_start(element);
            Work {
                scenario: scenario.clone(),
                n: element.n,
            }
        }
    }

    pub(crate) fn fate(&self, n: usize) -> Fate {
        self.see(|state| state.scripts[n].fate)
    }

    fn note_start(&self, element: Element) {
        let Element { n, key } = element;
        let throws = self.see(|state| {
            if state.flying.values().any(|flying| flying.key == key) {
                state.wrong.push(format!("{n} starts beside its key"));
            }
            // From the last one of the key on, all others have started before.
            let from = state.last.insert(key, n).map_or(0, |last| last + 1);
            if n < from {
                state
                    .wrong
                    .push(format!("{n} starts after {from}, or twice"));
            }
            for other in from..n {
                let script = state.scripts[other];
                let starts = !matches!(script.fate, Fate::ThrowsInKey | Fate::FailsInSource);
                if script.key == key && starts {
                    state.wrong.push(format!("{n} starts before {other}"));
                }
            }
            state.started.push(n);
            if state.scripts[n].fate == Fate::ThrowsInF {
                state.lost.push(n);
                return true;
            }
            let waits = state.scripts[n].waits;
            let flying = Flying {
                key,
                waits,
                waker: None,
            };
            state.flying.insert(n, flying);
            state.most = state.most.max(state.flying.len());
            false
        });
        if throws {
            throw(n);
        }
    }
}

impl Stream for Feed {
    type Item = Result<Element, usize>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.see(|state| {
            if state.ended {
                state.wrong.push("polled after its end".to_owned());
            }
            if state.pulled == state.scripts.len() {
                state.ended = true;
                return Poll::Ready(None);
            }
            if state.pulled == state.fed {
                state.source = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let n = state.pulled;
            state.pulled += 1;
            let script = state.scripts[n];
            Poll::Ready(Some(match script.fate {
                Fate::FailsInSource => Err(n),
                _ => Ok(Element { n, key: script.key }),
            }))
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.see(|state| {
            let left = state.scripts.len() - state.pulled;
            (left, Some(left))
        })
    }
}

impl Future for Work {
    type Output = Result<usize, usize>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let n = self.n;
        let fate = self.scenario.fate(n);
        let ready = self.scenario.see(|state| {
            let Some(flying) = state.flying.get_mut(&n) else {
                state.wrong.push(format!("{n} is polled after its end"));
                return true;
            };
            if flying.waits > 0 {
                flying.waker = Some(cx.waker().clone());
                return false;
            }
            state.flying.remove(&n);
            match fate {
                Fate::ThrowsInPoll => state.lost.push(n),
                _ => state.finished.push(n),
            }
            true
        });
        match (ready, fate) {
            (false, _) => Poll::Pending,
            (true, Fate::ThrowsInPoll) => throw(n),
            (true, Fate::Fails) => Poll::Ready(Err(n)),
            (true, _) => Poll::Ready(Ok(n)),
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let n = self.n;
        self.scenario.see(|state| {
            if state.flying.remove(&n).is_some() {
                state.dropped.push(n);
            }
        });
    }
}
