//! The task that talks to a system: one exchange after the other, each with all pending changes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use crate::repeats::Repeats;
use crate::session::SessionOf;
use crate::starts::StartsOf;
use crate::system::{End, Rest, System};

/// The pause before it asks again for messages that are blocked, or asks a system that could not
/// execute the call.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The pause after a wait that failed.
const WAIT_AGAIN: Duration = Duration::from_millis(200);

pub(crate) struct Task<S: System> {
    pub(crate) system: Arc<S>,
    pub(crate) worker: Arc<S::Worker>,
    pub(crate) link: S::Link,
    pub(crate) session: Arc<SessionOf<S>>,
    pub(crate) starts: Arc<StartsOf<S>>,
    /// When the request was sent with which the lease began.
    pub(crate) entered: Instant,
}

/// Returns when a lease ends for its worker, if the request that renewed it was sent at this time:
/// counted from before the system has executed it, and a tenth earlier, because clocks run at
/// different speeds.
pub(crate) fn lease_ends_at(sent: Instant, lease: Duration) -> Instant {
    sent + lasts(lease)
}

/// Returns how long a lease lasts, by this clock.
pub(crate) fn lasts(lease: Duration) -> Duration {
    lease * 9 / 10
}

impl<S: System> Task<S> {
    pub(crate) async fn run(mut self) {
        let session = Arc::clone(&self.session);
        // Also after a panic.
        let _over = OnDrop(move || session.is_over());
        let end = self.work().await;
        self.session.end(end);
    }

    async fn work(&mut self) -> End<S::Error> {
        let third = self.system.lease() / 3;
        let waits = Waits::new(Arc::clone(&self.system), Arc::clone(&self.session));
        let mut renew_at = self.entered + third;
        let (mut rest, mut is_waited_for) = (Rest::More, false);
        let mut repeats = Repeats::default();
        loop {
            let (is_waiting, wants) = {
                let state = self.session.lock();
                let wants = state.wanted > 0;
                let comes_again = wants && rest != Rest::Blocked;
                let is_waiting = state.outbox.is_waiting(comes_again) || state.is_probed;
                (is_waiting, wants)
            };
            let is_due = Instant::now() >= renew_at;
            if !(is_waiting || is_due || wants && rest == Rest::More) {
                if wants && rest == Rest::Nothing && !is_waited_for {
                    waits.begin.notify_one();
                    is_waited_for = true;
                }
                let look_at = match wants && rest == Rest::Blocked {
                    true => renew_at.min(Instant::now() + LOOK_AGAIN),
                    false => renew_at,
                };
                tokio::select! {
                    () = self.session.to_task.notified() => {}
                    () = waits.over.notified() => {
                        is_waited_for = false;
                        rest = Rest::More;
                    }
                    () = sleep_until(look_at) => if rest == Rest::Blocked {
                        rest = Rest::More;
                    },
                }
                continue;
            }
            let sent = Instant::now();
            match self.exchange(sent).await {
                Ok(left) => {
                    renew_at = sent + third;
                    rest = left;
                }
                Err(End::Unable(error)) => {
                    let is_over = {
                        let mut state = self.session.lock();
                        state.take_back();
                        state.until <= Instant::now()
                    };
                    if is_over {
                        return End::Unable(error);
                    }
                    if let Some(left_out) = repeats.hear(error.to_string(), Instant::now()) {
                        tracing::warn!(
                            target: "keylane",
                            %error,
                            left_out,
                            "the server cannot serve the source now, will retry"
                        );
                    }
                    sleep(LOOK_AGAIN).await;
                }
                Err(end) => return end,
            }
        }
    }

    async fn exchange(&mut self, sent: Instant) -> Result<Rest, End<S::Error>> {
        let (changes, most) = self.session.lock().send(self.system.most());
        let exchanged = self
            .system
            .exchange(&mut self.link, &self.worker, &changes, most);
        let reply = exchanged.await?;
        // If it could hand over messages and takes none of those that were returned, it is not
        // asked again at once.
        let is_stuck =
            most > 0 && reply.came == 0 && reply.messages.is_empty() && !changes.again.is_empty();
        let rest = match is_stuck {
            true => Rest::Blocked,
            false => reply.rest,
        };
        self.starts.confirm(&changes);
        drop(changes);
        let until = lease_ends_at(sent, self.system.lease());
        self.session.lock().confirm(reply, until);
        self.session.to_source.notify_one();
        Ok(rest)
    }
}

/// Calls a function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// The task that waits for messages, on a connection of its own. It ends when this is dropped.
struct Waits {
    /// Notified if there were no messages.
    begin: Arc<Notify>,
    /// Notified when there may be some.
    over: Arc<Notify>,
    _task: AbortOnDropHandle<()>,
}

impl Waits {
    fn new<S: System>(system: Arc<S>, session: Arc<SessionOf<S>>) -> Self {
        let (begin, over) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let task = wait(system, session, Arc::clone(&begin), Arc::clone(&over));
        Self {
            begin,
            over,
            _task: AbortOnDropHandle::new(tokio::spawn(task)),
        }
    }
}

async fn wait<S: System>(
    system: Arc<S>,
    session: Arc<SessionOf<S>>,
    begin: Arc<Notify>,
    over: Arc<Notify>,
) {
    let (mut link, mut is_failing) = (None, false);
    let report = |waits| {
        session.lock().waits = Some(waits);
        session.to_source.notify_one();
    };
    loop {
        begin.notified().await;
        loop {
            match system.wait(&mut link).await {
                Ok(has_come) => {
                    if std::mem::take(&mut is_failing) {
                        report(Ok(()));
                    }
                    if has_come {
                        break;
                    }
                }
                // The task asks now, and again at intervals.
                Err(error) => {
                    is_failing = true;
                    report(Err(error.to_string()));
                    sleep(WAIT_AGAIN).await;
                    break;
                }
            }
        }
        over.notify_one();
    }
}
