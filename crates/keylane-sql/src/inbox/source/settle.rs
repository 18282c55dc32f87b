//! Letters for messages whose handlers have dropped their transactions. They delay nothing else:
//! until a letter is written, its message stays in the table, and its lane is not left.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::SqlInbox;
use super::super::backend::Dead;
use super::super::turn::{Claimed, MessageRef};
use super::call::{Call, CallResult, PAUSES};
use super::failures::{Failures, Part, fail};
use super::position::SqlPosition;
use crate::error::SqlError;

pub(super) struct Letters {
    under_way: FuturesUnordered<Call>,
    unkept: Arc<Unkept>,
    /// Letters in progress are not tried again.
    is_last_try: CancellationToken,
}

impl Letters {
    pub(super) fn new(failures: &Arc<Failures>) -> Self {
        Self {
            under_way: FuturesUnordered::new(),
            unkept: Arc::new(Unkept::new(failures)),
            is_last_try: CancellationToken::new(),
        }
    }

    /// Begins another session. Results of earlier ones are not reported any more.
    pub(super) fn begin(&mut self, failures: &Arc<Failures>) {
        self.unkept.end_all();
        self.unkept = Arc::new(Unkept::new(failures));
    }

    /// Writes a letter in a task, and repeats that while it may help. `lost`: whether the claim has
    /// ended.
    pub(super) fn write(
        &mut self,
        inbox: SqlInbox,
        (worker, claimed, mut lost): (u64, Claimed, watch::Receiver<bool>),
        position: SqlPosition,
        dead: Dead,
    ) {
        let (unkept, is_last_try) = (Arc::clone(&self.unkept), self.is_last_try.clone());
        let message = position.name();
        self.under_way.push(tokio::spawn(async move {
            let mut pause = PAUSES.0;
            let kept = loop {
                let backend = &inbox.shared.backend;
                let kept = backend.dead_letter(worker, claimed, message, &dead);
                let kept = inbox.limited(kept).await;
                let Err(error) = &kept else {
                    break kept;
                };
                unkept.fail(message, error);
                let may_be_next = error.is_retryable();
                if !may_be_next {
                    // The message comes back after the longest pause, so it is not handled at full
                    // speed.
                    pause = PAUSES.1;
                }
                tokio::select! {
                    _ = lost.wait_for(|is_lost| *is_lost) => break Ok(false),
                    () = is_last_try.cancelled() => break kept,
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSES.1),
                }
                if !may_be_next {
                    break kept;
                }
            };
            CallResult::Letter(position, dead.attempts, kept)
        }));
    }

    /// Ends each letter in progress after its current try.
    pub(super) fn end_tries(&mut self) {
        std::mem::take(&mut self.is_last_try).cancel();
    }

    /// Waits for the result of a letter in progress; `None`: there is none.
    pub(super) async fn next(&mut self) -> Option<<Call as Future>::Output> {
        self.under_way.next().await
    }

    /// Takes the letters in progress, because their claims have ended.
    pub(super) fn take_under_way(&mut self) -> FuturesUnordered<Call> {
        std::mem::take(&mut self.under_way)
    }

    /// Records that a message is not here any more, or may not be.
    pub(super) fn settled(&self, message: MessageRef) {
        self.unkept.end(message);
    }
}

/// Messages of a session that could not become letters so far, and have not settled otherwise.
/// `None`: the session has ended, while a try may still be in progress.
struct Unkept {
    messages: Mutex<Option<HashSet<MessageRef>>>,
    failures: Arc<Failures>,
}

impl Unkept {
    fn new(failures: &Arc<Failures>) -> Self {
        Self {
            messages: Mutex::new(Some(HashSet::new())),
            failures: Arc::clone(failures),
        }
    }

    fn fail(&self, message: MessageRef, error: &SqlError) {
        if let Some(messages) = &mut *self.lock() {
            messages.insert(message);
            fail(&self.failures, Part::Letters, error);
        }
    }

    fn end(&self, message: MessageRef) {
        if let Some(messages) = &mut *self.lock()
            && messages.remove(&message)
            && messages.is_empty()
        {
            self.failures.recover(&Part::Letters);
        }
    }

    fn end_all(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashSet<MessageRef>>> {
        let messages = self.messages.lock();
        messages.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use keylane_source::Deliveries;
    use tokio::time::Instant;

    use super::*;

    /// Returns whether anything is reported: that letters fail, or work again.
    fn told(failures: &Failures) -> bool {
        failures.report(&mut Deliveries::<(), ()>::new(1, Instant::now()))
    }

    #[tokio::test(start_paused = true)]
    async fn letters_are_well_when_none_of_this_session_is_unkept() {
        let failures = Arc::default();
        let mut letters = Letters::new(&failures);
        let [one, other] = [1, 2].map(|sequence| MessageRef { sequence, nonce: 7 });
        let error = SqlError::timed_out();
        letters.unkept.fail(one, &error);
        assert!(told(&failures));
        letters.unkept.fail(other, &error);
        letters.settled(one);
        assert!(!told(&failures));
        letters.settled(other);
        assert!(told(&failures));
        let before = Arc::clone(&letters.unkept);
        letters.begin(&failures);
        before.fail(one, &error);
        assert!(
            !told(&failures),
            "its session is over, and cannot say that it is well"
        );
    }
}
