//! The task that ends leases and delays when their time has come.

use std::future::poll_fn;
use std::sync::Weak;
use std::task::{Context, Poll};

use keylane_rt::clock::Alarm;

use super::lease_table::NextWake;
use super::shared::Shared;

/// Runs until the queue is finished or dropped.
pub(super) fn drive<K: Eq + Clone, M>(queue: Weak<Shared<K, M>>) -> impl Future<Output = ()> {
    // Made here and not in the first poll: a runtime may drop a task that it has never polled.
    let driver = Driver(queue);
    let mut alarm = None;
    poll_fn(move |cx| driver.poll(&mut alarm, cx))
}

struct Driver<K, M>(Weak<Shared<K, M>>);

impl<K: Eq + Clone, M> Driver<K, M> {
    fn poll(&self, alarm: &mut Option<Alarm>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(queue) = self.0.upgrade() else {
                return Poll::Ready(());
            };
            if queue.expire() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match queue.plan_wake(cx.waker()) {
                NextWake::Stop => return Poll::Ready(()),
                NextWake::Never => return Poll::Pending,
                NextWake::At(time) => {
                    let alarm = alarm.get_or_insert_with(|| Alarm::new(time));
                    alarm.reset(time);
                    if alarm.poll(cx).is_pending() {
                        // Otherwise the model's time would outrun the workers of lower priority.
                        #[cfg(keylane_shuttle)]
                        keylane_rt::linger();
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl<K, M> Drop for Driver<K, M> {
    /// However the task ends: no lease expires by itself any more, so no task may wait for one.
    fn drop(&mut self) {
        if let Some(queue) = self.0.upgrade() {
            queue.stop();
        }
    }
}
