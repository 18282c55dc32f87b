//! The runner: the task that polls handlers.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use keylane_lanes::Role;
use keylane_rt::{self as rt, Arc};

use super::in_flight::InFlight;
use super::invoke::Invoke;
use super::letter::{LetterInFlight, Undelivered, poll_delivery};
use super::poll::{Attempt, Handling};
use super::runner::Runner;
use crate::types::Spec;

/// Takes jobs from the ready queue and runs them, until the ready queue tells it to leave.
///
/// A handler that is ready at its first poll needs no task of its own. A handler that returns
/// `Pending` makes this runner the holder of its lane, and another runner becomes the poller.
///
/// All that lives across the await of a handler is memory per handler in flight. So values are
/// moved into functions, the handler's future is made in its final place, and there is a single
/// await for it: a value that lives across two awaits gets its own bytes in the future.
#[allow(
    clippy::manual_async_fn,
    reason = "an `async fn` would store its arguments twice, as passed and as bound"
)]
pub(crate) fn run<T: Spec, I: Invoke<T>>(
    mut runner: Runner<T>,
    invoke: Arc<I>,
) -> impl Future<Output = ()> + Send {
    async move {
        let mut context = runner.context();
        loop {
            // No job is held across these awaits. Jobs are held only while handlers and sinks run.
            match runner.role() {
                Role::Gone => return,
                // A holder that found enough pollers comes here without having asked for a job.
                Role::Idle if !runner.woken().await => return,
                Role::Idle | Role::Starting | Role::Poller | Role::Recruiter | Role::Holder => {}
            }
            // Not `||`: each of them counts.
            if runner.should_yield() | runner.must_step_aside() {
                runner.flush();
                rt::step_aside().await;
            }
            let Some(mut job) = runner.take(&mut context) else {
                continue;
            };
            loop {
                let (head, is_letter) = job.with_is_letter();
                let next = if is_letter {
                    let letter = LetterInFlight::take(runner.engine(), head);
                    let accepted = deliver(&letter, &mut runner).await;
                    letter.finish(runner.settling().1, accepted)
                } else {
                    let finished = {
                        let (input, in_flight) =
                            InFlight::take(runner.engine(), &mut context, head, I::keep);
                        let attempt = pin!(Attempt::new(in_flight));
                        let handle = |context, input| invoke.call(context, input);
                        let called = attempt.call(runner.engine(), input, handle);
                        Handling::<T, I, _>::new(called, &mut runner).await
                    };
                    let (engine, tally) = runner.settling();
                    I::advance(engine, tally, &mut context, finished)
                };
                match runner.proceed(&mut context, next) {
                    Some(next) => job = next,
                    None => break,
                }
            }
        }
    }
}

/// Awaits the sink's answer. The first `Pending` makes the runner a holder.
async fn deliver<T: Spec>(
    letter: &LetterInFlight<T>,
    runner: &mut Runner<T>,
) -> Result<(), Undelivered> {
    let mut delivery = pin!(Some(letter.deliver()));
    let accepted = poll_fn(|cx| {
        let is_first = !runner.holds();
        if !is_first && letter.has_lost_lease(cx) {
            return Poll::Ready(Err(Undelivered::Unleased));
        }
        let polled = poll_delivery(delivery.as_mut(), cx);
        if polled.is_pending() {
            runner.hold(letter.head());
            if letter.is_revoked(cx) {
                let why = "its source took the message back".to_owned();
                return Poll::Ready(Err(Undelivered::Refused(why)));
            }
            if is_first && letter.has_lost_lease(cx) {
                return Poll::Ready(Err(Undelivered::Unleased));
            }
        }
        polled.map_err(Undelivered::Refused)
    })
    .await;
    runner.engine().probe.drop_future(|| delivery.set(None));
    accepted
}
