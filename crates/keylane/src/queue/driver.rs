//! The task that keeps the time of a queue.

use std::future::poll_fn;
use std::sync::Weak;
use std::task::{Context, Poll};

use super::desk::Watch;
use super::shared::Shared;
use crate::clock::Alarm;

/// Makes ready what has run out, until the queue is over or gone.
pub(super) fn drive<K: Eq + Clone, M>(queue: Weak<Shared<K, M>>) -> impl Future<Output = ()> {
    // Here and not in the first poll: a runtime may drop a task that it has never polled.
    let driver = Driver(queue);
    let mut alarm = None;
    poll_fn(move |cx| driver.poll(&mut alarm, cx))
}

/// However the task ends, nobody waits for it afterwards.
struct Driver<K, M>(Weak<Shared<K, M>>);

impl<K: Eq + Clone, M> Driver<K, M> {
    fn poll(&self, alarm: &mut Option<Alarm>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(queue) = self.0.upgrade() else {
                return Poll::Ready(());
            };
            if queue.tick() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match queue.watch(cx.waker()) {
                Watch::End => return Poll::Ready(()),
                Watch::Idle => return Poll::Pending,
                Watch::Until(time) => {
                    let alarm = alarm.get_or_insert_with(|| Alarm::new(time));
                    alarm.reset(time);
                    if alarm.poll(cx).is_pending() {
                        // Or the model's time would outrun every worker of a lower priority.
                        #[cfg(keylane_shuttle)]
                        crate::rt::linger();
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl<K, M> Drop for Driver<K, M> {
    fn drop(&mut self) {
        if let Some(queue) = self.0.upgrade() {
            queue.stop();
        }
    }
}
