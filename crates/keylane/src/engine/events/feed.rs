//! The entry of events, and one bounded queue for each subscriber.
//!
//! Not `tokio::sync::broadcast`: that drops overwritten values, which hold the user's keys, and
//! clones wakers under its lock. Here only pointers move under the lock; keys are cloned and
//! dropped, and wakers cloned, woken and dropped outside of it.

use std::collections::VecDeque;
use std::fmt;
use std::task::Waker;

use keylane_rt::atomic::{AtomicUsize, Ordering};
use keylane_rt::{Arc, Mutex, lock};

use super::Event;

/// The engine's end. When it is dropped, all subscribers see the end of the stream.
pub(crate) struct Feed<K>(Arc<Shared<K>>);

pub(super) struct Shared<K> {
    /// Most events that wait for one subscriber.
    capacity: usize,
    /// How many subscribers there are. Relaxed, here and in `Feed::has_subscribers`: an event that
    /// happens while a subscriber comes may miss it, and the queues are behind the lock.
    count: AtomicUsize,
    subscribers: Mutex<Subscribers<K>>,
}

struct Subscribers<K> {
    /// By the number of the subscriber.
    queues: Vec<(u64, EventQueue<K>)>,
    next: u64,
    ended: bool,
}

struct EventQueue<K> {
    events: VecDeque<Arc<Event<K>>>,
    lost: u64,
    waker: Option<Waker>,
}

/// What a subscriber finds.
pub(super) enum Found<K> {
    Event(Arc<Event<K>>),
    Nothing,
    Ended,
}

impl<K> Feed<K> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(Arc::new(Shared {
            capacity,
            count: AtomicUsize::new(0),
            subscribers: Mutex::new(Subscribers {
                queues: Vec::new(),
                next: 0,
                ended: false,
            }),
        }))
    }

    /// Whether there is a subscriber. This is all that an event costs without one.
    #[inline]
    pub(crate) fn has_subscribers(&self) -> bool {
        // Partner: `subscribe`, `leave`.
        self.0.count.load(Ordering::Relaxed) > 0
    }

    /// Gives the event to all subscribers. The caller wakes and drops what comes back, outside of
    /// any lock, because that is the user's and may panic. `None` stands for an event that could
    /// not be made: each subscriber counts it as lost.
    #[must_use = "subscribers wait for it"]
    pub(crate) fn publish(&self, event: Option<Event<K>>) -> Published<K> {
        let event = event.map(Arc::new);
        let mut published = Published {
            wakers: Vec::new(),
            lost: Vec::new(),
        };
        let mut subscribers = lock(&self.0.subscribers);
        for (_, queue) in &mut subscribers.queues {
            let Some(event) = &event else {
                queue.lost += 1;
                continue;
            };
            if queue.events.len() >= self.0.capacity {
                queue.lost += 1;
                if event.is_common() {
                    continue;
                }
                published.lost.extend(queue.events.pop_front());
            }
            queue.events.push_back(Arc::clone(event));
            published.wakers.extend(queue.waker.take());
        }
        drop(subscribers);
        // Without a subscriber that took it, its key is dropped by the caller.
        published.lost.extend(event);
        published
    }

    /// Ends the stream. Returns the subscribers that wait, to be woken outside of any lock.
    #[must_use = "subscribers wait for it"]
    pub(crate) fn end(&self) -> Vec<Waker> {
        let mut subscribers = lock(&self.0.subscribers);
        subscribers.ended = true;
        let queues = subscribers.queues.iter_mut();
        queues.filter_map(|(_, queue)| queue.waker.take()).collect()
    }

    pub(super) fn subscribe(&self) -> (u64, Arc<Shared<K>>) {
        let mut subscribers = lock(&self.0.subscribers);
        subscribers.next += 1;
        let number = subscribers.next;
        let queue = EventQueue {
            events: VecDeque::new(),
            lost: 0,
            waker: None,
        };
        subscribers.queues.push((number, queue));
        drop(subscribers);
        // Partner: `has_subscribers`.
        self.0.count.fetch_add(1, Ordering::Relaxed);
        (number, Arc::clone(&self.0))
    }
}

/// What is left to do once the lock is released.
pub(crate) struct Published<K> {
    pub(crate) wakers: Vec<Waker>,
    pub(crate) lost: Vec<Arc<Event<K>>>,
}

impl<K> Shared<K> {
    /// Takes the oldest event of a subscriber.
    pub(super) fn take(&self, number: u64) -> Found<K> {
        let mut subscribers = lock(&self.subscribers);
        let ended = subscribers.ended;
        let event = subscribers
            .queue(number)
            .and_then(|queue| queue.events.pop_front());
        match event {
            Some(event) => Found::Event(event),
            None if ended => Found::Ended,
            None => Found::Nothing,
        }
    }

    /// Leaves a waker for the next event. False if there is something to take already.
    pub(super) fn wait(&self, number: u64, waker: Waker) -> bool {
        let mut subscribers = lock(&self.subscribers);
        let ended = subscribers.ended;
        let Some(queue) = subscribers.queue(number) else {
            return false;
        };
        if ended || !queue.events.is_empty() {
            drop(subscribers);
            drop(waker);
            return false;
        }
        let old = queue.waker.replace(waker);
        drop(subscribers);
        drop(old);
        true
    }

    pub(super) fn lost(&self, number: u64) -> u64 {
        let mut subscribers = lock(&self.subscribers);
        subscribers.queue(number).map_or(0, |queue| queue.lost)
    }

    /// A subscriber leaves, with what it has not read.
    pub(super) fn leave(&self, number: u64) {
        // Partner: `has_subscribers`.
        self.count.fetch_sub(1, Ordering::Relaxed);
        let mut subscribers = lock(&self.subscribers);
        let queues = &mut subscribers.queues;
        let place = queues.iter().position(|(of, _)| *of == number);
        let left = place.map(|place| queues.remove(place));
        drop(subscribers);
        drop(left);
    }
}

impl<K> Subscribers<K> {
    fn queue(&mut self, number: u64) -> Option<&mut EventQueue<K>> {
        let mut queues = self.queues.iter_mut();
        queues.find_map(|(of, queue)| (*of == number).then_some(queue))
    }
}

impl<K> Drop for Feed<K> {
    fn drop(&mut self) {
        // A dispatcher that ends, ends the stream before. This is for one that never came to its
        // end.
        for waker in self.end() {
            waker.wake();
        }
    }
}

impl<K> fmt::Debug for Feed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::engine::Overflow;

    fn now() -> tokio::time::Instant {
        keylane_rt::clock::now().into()
    }

    fn halted<K>(key: K) -> Option<Event<K>> {
        Some(Event::Halted {
            key,
            attempts: 1,
            why: String::new(),
            at: now(),
        })
    }

    fn overflowed(key: u64) -> Option<Event<u64>> {
        Some(Event::Overflowed {
            key,
            policy: Overflow::DropOldest,
            at: now(),
        })
    }

    fn keys(events: &mut super::super::Events<u64>) -> Vec<u64> {
        std::iter::from_fn(|| events.try_recv())
            .filter_map(|event| event.key().copied())
            .collect()
    }

    #[test]
    fn the_oldest_is_lost_and_each_subscriber_has_its_own_loss() {
        let feed = Feed::new(3);
        assert!(!feed.has_subscribers());
        let (mut slow, mut fast) = (feed.events(), feed.events());
        let mut read = Vec::new();
        for key in 1..=5 {
            drop(feed.publish(halted(key)));
            read.extend(keys(&mut fast));
        }
        assert_eq!((slow.lost(), fast.lost()), (2, 0));
        assert_eq!(
            (keys(&mut slow), read),
            (vec![3, 4, 5], vec![1, 2, 3, 4, 5])
        );
        drop(feed.publish(None));
        assert_eq!(
            (slow.lost(), fast.lost()),
            (3, 1),
            "one that could not be made"
        );
        drop(slow);
        assert!(feed.has_subscribers());
        drop(fast);
        assert!(!feed.has_subscribers());
    }

    #[test]
    fn a_flood_of_overflows_pushes_nothing_out() {
        let feed = Feed::new(3);
        let mut events = feed.events();
        drop(feed.publish(halted(1)));
        for key in 2..=9 {
            drop(feed.publish(overflowed(key)));
        }
        assert_eq!(events.lost(), 6);
        drop(feed.publish(halted(10)));
        drop(feed.publish(halted(11)));
        assert_eq!((keys(&mut events), events.lost()), (vec![3, 10, 11], 8));
    }

    #[tokio::test]
    async fn the_end_comes_after_all_was_read() {
        let feed = Feed::new(3);
        let (mut early, mut waiting) = (feed.events(), feed.events());
        let waits = tokio::spawn(async move { (waiting.recv().await, waiting.recv().await) });
        tokio::task::yield_now().await;
        for waker in feed.publish(halted(1)).wakers {
            waker.wake();
        }
        tokio::task::yield_now().await;
        drop(feed);
        assert!(early.recv().await.is_some());
        assert_eq!(early.recv().await, None);
        assert_eq!(early.recv().await, None);
        let (event, end) = waits.await.unwrap();
        assert!(event.is_some() && end.is_none());
    }

    /// A key that looks, when it is dropped, whether the feed can be used.
    struct Curious(std::sync::Weak<Shared<Curious>>, Arc<AtomicBool>);

    impl Drop for Curious {
        fn drop(&mut self) {
            if let Some(feed) = self.0.upgrade() {
                let free = feed.subscribers.try_lock().is_ok();
                self.1.store(free, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn no_key_is_dropped_under_the_lock() {
        let feed = Feed::new(1);
        let events = feed.events();
        let free = Arc::new(AtomicBool::new(false));
        let key = || Curious(Arc::downgrade(&feed.0), Arc::clone(&free));
        drop(feed.publish(halted(key())));
        drop(feed.publish(halted(key())));
        assert!(free.swap(false, Ordering::Relaxed), "overwritten");
        drop(events);
        assert!(free.swap(false, Ordering::Relaxed), "left unread");
        drop(feed.publish(halted(key())));
        assert!(free.load(Ordering::Relaxed), "without a subscriber");
    }
}
