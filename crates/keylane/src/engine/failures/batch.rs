//! What happens to a batch that has ended.

use super::Failures;
use crate::engine::message::{
    BatchMember, Envelope, Parked, Queued, Unsettled, UnsettledBatch, why,
};
use crate::engine::settlement::{Outcome, Tally};
use crate::error::Failure;
use crate::handler::Context;
use crate::observe::message_line::Fate;
use crate::types::{Spec, Types};

/// A message of a batch that has failed.
struct Failed<T: Types> {
    envelope: Envelope<T>,
    kept: Option<T::Message>,
    /// `None`: it failed because another message of its batch failed.
    failure: Option<Failure<T::Error>>,
}

impl<T: Spec> Failures<T> {
    /// Handles a batch that has ended: settles its successes, and puts back or gives up its
    /// failures. Returns the next job of the key if the first message has settled.
    pub(crate) fn after_batch(
        &self,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        batch: UnsettledBatch<T>,
    ) -> Option<Queued<T>> {
        let UnsettledBatch {
            first:
                Unsettled {
                    hash,
                    envelope,
                    kept,
                },
            members,
            answer,
        } = batch;
        let had_members = !members.is_empty();
        if let Err(failure) = &answer
            && let Failure::LeaseLost = **failure
        {
            let unsettled = Unsettled {
                hash,
                envelope,
                kept,
            };
            return self.after_loss(tally, context, unsettled, members);
        }
        let first = std::iter::once(BatchMember { envelope, kept });
        let all = first.chain(members);
        let mut failed = Vec::new();
        match answer {
            Err(failure) => {
                let mut failure = Some(failure);
                failed.extend(all.map(|BatchMember { envelope, kept }| Failed {
                    envelope,
                    kept,
                    failure: failure.take().map(|failure| *failure),
                }));
            }
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for BatchMember { envelope, kept } in all {
                    let failure = match answers.next() {
                        Some(Ok(answer)) => {
                            self.probe.drop_quietly(kept);
                            self.settlement
                                .settle(tally, envelope, Outcome::Done(answer));
                            self.settlement.flush_some(tally);
                            continue;
                        }
                        Some(Err(error)) => Failure::Error(error),
                        None => Failure::NoAnswer,
                    };
                    failed.push(Failed {
                        envelope,
                        kept,
                        failure: Some(failure),
                    });
                }
                // Answers without a message are dropped here, which runs user code.
                self.probe.drop_quietly(answers);
            }
        }
        let mut failed = failed.into_iter();
        match failed.next() {
            None => {
                if had_members {
                    self.decisions
                        .put_back(tally, context.key.as_ref(), hash, Vec::new());
                }
                self.decisions.advance(context.key.take(), hash)
            }
            Some(first) => {
                let failure = first.failure.unwrap_or(Failure::NoAnswer);
                let why = why(&failure);
                if had_members {
                    self.put_failed_back(tally, context.key.as_ref(), hash, &why, failed);
                }
                let unsettled = Unsettled {
                    hash,
                    envelope: first.envelope,
                    kept: first.kept,
                };
                self.failed(tally, context, unsettled, failure)
            }
        }
    }

    /// The lease of the key was lost while its batch was in flight. Nothing of it counts as tried.
    fn after_loss(
        &self,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        first: Unsettled<T>,
        members: Vec<BatchMember<T>>,
    ) -> Option<Queued<T>> {
        if !members.is_empty() {
            let mut back = Vec::with_capacity(members.len());
            for BatchMember { envelope, kept } in members {
                match kept {
                    Some(message) => back.push(Parked { message, envelope }),
                    // Where lanes are leased, messages are kept.
                    None => self.settlement.settle(
                        tally,
                        envelope,
                        Outcome::Discarded(Failure::LeaseLost),
                    ),
                }
            }
            self.decisions
                .put_back(tally, context.key.as_ref(), first.hash, back);
        }
        self.failed(tally, context, first, Failure::LeaseLost)
    }

    /// Puts the messages that failed behind the first failed one back into the lane, if they are
    /// kept.
    fn put_failed_back(
        &self,
        tally: &mut Tally,
        key: Option<&T::Key>,
        hash: u64,
        why: &str,
        failed: impl Iterator<Item = Failed<T>>,
    ) {
        let mut back = Vec::new();
        for Failed {
            mut envelope,
            kept,
            failure,
        } in failed
        {
            let source = envelope.obligation.source();
            let attempt = u32::from(envelope.obligation.charge().earlier).saturating_add(1);
            if let Some(failure) = &failure {
                self.log_failed(key, hash, source, attempt, failure);
            }
            let failure = failure.unwrap_or_else(|| Failure::WithBatch(why.to_owned()));
            match (kept, key) {
                (Some(message), Some(_)) => {
                    self.probe.drop_quietly(failure);
                    let charge = envelope.obligation.charge_mut();
                    charge.earlier = charge.earlier.saturating_add(1);
                    back.push(Parked { message, envelope });
                }
                (_, _) => {
                    self.probe.counters.failures.add(1);
                    self.log_given_up(key, hash, source, attempt, Fate::Discard);
                    self.settlement
                        .settle(tally, envelope, Outcome::Discarded(failure));
                }
            }
        }
        self.decisions.put_back(tally, key, hash, back);
    }
}
