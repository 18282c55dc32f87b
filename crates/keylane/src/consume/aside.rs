//! Messages that wait beside full lanes, each lane's in order.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use super::inlet::Waiting;
use crate::engine::Gate;
use crate::rt::{NumberMap, OwnedSemaphorePermit};

/// One queue for each full lane, by the hash of its key: two keys with one hash wait together.
pub(super) struct Aside<K, M> {
    queues: NumberMap<u64, VecDeque<Waiting<K, M>>>,
    /// One wait for each queue.
    gates: FuturesUnordered<BoxFuture<'static, (u64, Option<OwnedSemaphorePermit>)>>,
    len: usize,
}

impl<K, M> Aside<K, M> {
    pub(super) fn new() -> Self {
        Self {
            queues: NumberMap::new(),
            gates: FuturesUnordered::new(),
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether messages of this key wait, so that others of it have to wait behind them.
    #[inline]
    pub(super) fn holds(&self, hash: u64) -> bool {
        self.len > 0 && self.queues.contains_key(&hash)
    }

    /// Puts a message behind the others of its key.
    pub(super) fn push(&mut self, waiting: Waiting<K, M>) {
        self.len += 1;
        self.queues
            .entry(waiting.hash)
            .or_default()
            .push_back(waiting);
    }

    /// Waits at this gate for the first message of a key.
    pub(super) fn wait(&mut self, hash: u64, gate: Gate) {
        let passed = async move { (hash, gate.acquire_owned().await.ok()) };
        self.gates.push(Box::pin(passed));
    }

    /// A gate has let one in, or is gone.
    pub(super) fn poll_gate(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<(u64, Option<OwnedSemaphorePermit>)> {
        match self.gates.poll_next_unpin(cx) {
            Poll::Ready(Some(passed)) => Poll::Ready(passed),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// The first message of a key.
    pub(super) fn front(&self, hash: u64) -> Option<&Waiting<K, M>> {
        self.queues.get(&hash)?.front()
    }

    /// Takes the first message of a key.
    pub(super) fn pop(&mut self, hash: u64) -> Option<Waiting<K, M>> {
        let queue = self.queues.get_mut(&hash)?;
        let waiting = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&hash);
        }
        self.len -= usize::from(waiting.is_some());
        waiting
    }

    /// Takes out what is chosen of one key.
    pub(super) fn extract_of(
        &mut self,
        hash: u64,
        chosen: impl Fn(&Waiting<K, M>) -> bool,
    ) -> Vec<Waiting<K, M>> {
        let Some(queue) = self.queues.get_mut(&hash) else {
            return Vec::new();
        };
        let (out, rest) = queue.drain(..).partition::<Vec<_>, _>(chosen);
        queue.extend(rest);
        if queue.is_empty() {
            self.queues.remove(&hash);
        }
        self.len -= out.len();
        out
    }

    /// Takes out what is chosen. A queue that is empty then is gone, and its wait finds nothing.
    pub(super) fn extract(
        &mut self,
        mut chosen: impl FnMut(&Waiting<K, M>) -> bool,
        out: &mut Vec<Waiting<K, M>>,
    ) {
        for queue in self.queues.values_mut() {
            for _ in 0..queue.len() {
                match queue.pop_front() {
                    Some(waiting) if chosen(&waiting) => out.push(waiting),
                    Some(waiting) => queue.push_back(waiting),
                    None => {}
                }
            }
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        self.len = self.queues.values().map(VecDeque::len).sum();
    }
}
