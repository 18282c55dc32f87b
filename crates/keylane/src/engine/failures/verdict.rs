//! The verdict on a failed attempt: a pure function of the policy, the attempt and the failure.

use std::time::Duration;

use crate::error::Failure;
use crate::letter::OnExhausted;
use crate::retry::Retry;

/// The builder's options about failures.
pub(super) struct Policy<'a, K, M, E> {
    pub(super) retry: Option<&'a Retry<E>>,
    pub(super) on_exhausted: &'a OnExhausted<K, M, E>,
    /// Whether the message has a key. Without a key there is no lane to halt, and a message of a
    /// source is held by itself.
    pub(super) is_keyed: bool,
    /// Whether the message has a source.
    pub(super) is_of_source: bool,
}

/// What to do with a message whose attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Try it again after this delay.
    Retry(Duration),
    /// Deliver it to the dead-letter sink. Its lane waits for the delivery.
    DeadLetter,
    /// Halt its lane until an operator decides. Without a lane, hold it until its source takes it
    /// back.
    Halt,
    /// Settle it as discarded. Its lane goes on.
    Discard,
}

impl<K, M, E> Policy<'_, K, M, E> {
    /// The verdict on a message whose `attempt`, counted from 1, has failed. `dice` is a number
    /// from 0 to 1 for jitter.
    pub(super) fn verdict(&self, attempt: u32, failure: &Failure<E>, dice: f64) -> Verdict {
        let wait = self
            .retry
            .and_then(|retry| retry.after(attempt, failure, dice));
        wait.map_or_else(|| self.given_up(), Verdict::Retry)
    }

    /// The verdict on a message that is not tried again.
    pub(super) fn given_up(&self) -> Verdict {
        match self.on_exhausted {
            OnExhausted::DeadLetter(_) => Verdict::DeadLetter,
            OnExhausted::AtSource if self.is_of_source => Verdict::DeadLetter,
            OnExhausted::AtSource | OnExhausted::Halt if self.is_keyed => Verdict::Halt,
            // A source must not be told that it is settled.
            OnExhausted::Halt if self.is_of_source => Verdict::Halt,
            OnExhausted::AtSource | OnExhausted::Halt | OnExhausted::Discard => Verdict::Discard,
        }
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;
    use crate::letter::{DeadLetter, DeadLetterSink};

    struct Sink;

    #[async_trait::async_trait]
    impl DeadLetterSink<u8, u8, &'static str> for Sink {
        async fn accept(
            &self,
            _: &DeadLetter<u8, u8, &'static str>,
        ) -> Result<(), crate::error::BoxError> {
            Ok(())
        }
    }

    type Given = OnExhausted<u8, u8, &'static str>;

    fn verdict(
        retry: Option<&Retry<&'static str>>,
        on_exhausted: &Given,
        is_keyed: bool,
        attempt: u32,
    ) -> Verdict {
        let policy = Policy {
            retry,
            on_exhausted,
            is_keyed,
            is_of_source: false,
        };
        policy.verdict(attempt, &Failure::Error("full"), 0.0)
    }

    #[test]
    fn without_a_retry_the_policy_decides_at_once() {
        assert_eq!(verdict(None, &Given::Discard, true, 1), Verdict::Discard);
        assert_eq!(verdict(None, &Given::Halt, true, 1), Verdict::Halt);
        let letters = Given::dead_letter(Sink);
        assert_eq!(verdict(None, &letters, true, 1), Verdict::DeadLetter);
    }

    #[test]
    fn a_message_without_a_key_has_no_lane_to_halt() {
        assert_eq!(verdict(None, &Given::Halt, false, 1), Verdict::Discard);
        let letters = Given::dead_letter(Sink);
        assert_eq!(verdict(None, &letters, false, 1), Verdict::DeadLetter);
    }

    #[test]
    fn what_a_source_waits_for_is_not_discarded_by_halt() {
        for (given, expected) in [
            (Given::Halt, Verdict::Halt),
            (Given::AtSource, Verdict::DeadLetter),
            (Given::Discard, Verdict::Discard),
        ] {
            let policy = Policy {
                retry: None,
                on_exhausted: &given,
                is_keyed: false,
                is_of_source: true,
            };
            assert_eq!(policy.given_up(), expected);
        }
    }

    #[test]
    fn it_is_tried_again_until_the_last_attempt() {
        let retry = Retry::fixed(Duration::from_secs(1)).max_attempts(3);
        for (attempt, expected) in [
            (1, Verdict::Retry(Duration::from_secs(1))),
            (2, Verdict::Retry(Duration::from_secs(1))),
            (3, Verdict::Halt),
        ] {
            assert_eq!(verdict(Some(&retry), &Given::Halt, true, attempt), expected);
        }
    }

    #[test]
    fn a_failure_that_is_not_to_be_retried_is_the_last_attempt() {
        let retry = Retry::fixed(Duration::from_secs(1))
            .retry_if(|failure| !matches!(failure, Failure::Error("full")));
        assert_eq!(
            verdict(Some(&retry), &Given::Discard, true, 1),
            Verdict::Discard
        );
    }
}
