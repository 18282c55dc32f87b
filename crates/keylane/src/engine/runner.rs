//! The task that polls handlers.

use std::future::{Future, poll_fn};
use std::pin::pin;

use super::Engine;
use super::attempt;
use super::hand::{Hand, Post};
use super::seat::Seat;
use crate::error::Failure;
use crate::handler::{Context, Handler};
use crate::lanes::Role;
use crate::rt::{self, Arc};
use crate::types::Spec;

/// Takes turns from the ready queue and runs them, until there are runners enough.
///
/// A handler that is ready at its first poll costs no task of its own. One that returns `Pending`
/// makes this runner the task of its lane, and another runner polls on.
///
/// What is alive across the await of a handler is memory for each handler in flight. So values are
/// moved on whole, into functions, and the handler's future is made in the place where it stays.
// Not an `async fn`: that would keep its arguments twice, as given and as bound.
#[allow(clippy::manual_async_fn)]
pub(crate) fn run<T: Spec, H, A>(
    mut seat: Seat<T>,
    handler: Arc<H>,
) -> impl Future<Output = ()> + Send
where
    H: Handler<T::Key, T::Message, A, Output = T::Output, Error: Into<Failure<T::Error>>>,
{
    async move {
        let engine = Arc::clone(seat.engine());
        let mut context = Context::new(engine.shutdown.cancel.clone());
        loop {
            // No turn is held across the awaits out here: only handlers and sinks hold one.
            match seat.role() {
                Role::Gone => return,
                // A holder that found pollers enough comes here without having asked for a turn.
                #[cfg(not(keylane_mutant = "unsummoned"))]
                Role::Idle if !seat.summoned().await => return,
                Role::Idle | Role::Starting | Role::Poller | Role::Holder => {}
            }
            if seat.is_tired() | seat.is_in_the_way() {
                seat.flush();
                rt::step_aside().await;
            }
            let Some(mut turn) = seat.take() else {
                continue;
            };
            loop {
                let (head, is_letter) = turn.sorted();
                let next = if is_letter {
                    let post = Post::take(&engine, head);
                    let accepted = deliver(&engine, &post, &mut seat).await;
                    seat.after_letter(post.done(), accepted)
                } else {
                    let concluded = {
                        let (message, mut hand) = Hand::take(&engine, &mut context, head);
                        let mut slot = pin!(None);
                        hand.call(message, slot.as_mut(), |context, message| {
                            handler.handle(context, message)
                        });
                        let answer = poll_fn(|cx| hand.poll(slot.as_mut(), &mut seat, cx)).await;
                        #[cfg(keylane_mutant = "drop-after-next")]
                        hand.move_on();
                        // Gone before the key moves on, whatever its drop does.
                        engine.drop_future(|| slot.set(None));
                        hand.conclude(&mut seat, answer)
                    };
                    seat.after_attempt(&mut context, concluded)
                };
                match seat.proceed(next) {
                    Some(next) => turn = next,
                    None => break,
                }
            }
        }
    }
}

/// The sink's verdict on a letter. The first `Pending` makes the runner a holder.
pub(super) async fn deliver<T: Spec>(
    engine: &Arc<Engine<T>>,
    post: &Post<'_, T>,
    seat: &mut Seat<T>,
) -> Result<(), String> {
    let mut delivery = pin!(Some(post.deliver()));
    let accepted = poll_fn(|cx| {
        let polled = attempt::poll_delivery(delivery.as_mut(), cx);
        if polled.is_pending() {
            let (hash, attempts) = (post.hash(), post.attempts());
            seat.hold(post.key(), hash, attempts, post.parked_at());
        }
        polled
    })
    .await;
    engine.drop_future(|| delivery.set(None));
    accepted
}
