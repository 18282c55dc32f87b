//! Every public future, dropped at every await: nothing is accepted that was not said to be, nothing
//! twice, and no room is lost.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use keylane::Overflow;
use keylane_testkit::{Act, Evidence, Gate, History, Script};

use crate::rig::{Desk, Mail, SECOND, assert_empty, mails, paused, quiet, scripted, within};

const CAPACITY: usize = 4;

/// Polls a future so many times, with everything else going on in between, then drops it. What it
/// answered, if it did.
async fn give_up_after<F: Future>(
    polls: usize,
    future: F,
    mut between: impl AsyncFnMut(usize),
) -> Option<F::Output> {
    let mut future = Box::pin(future);
    for poll in 0..polls {
        let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx))).await;
        if let Poll::Ready(answer) = polled {
            return Some(answer);
        }
        between(poll).await;
    }
    None
}

/// What stands in the way of a message of key 1.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Obstacle {
    None,
    /// The dispatcher is at its capacity.
    Capacity,
    /// The lane of the key is full.
    Lane,
    /// Both; the lane first.
    LaneAndCapacity,
    /// The dispatcher is at its capacity in bytes.
    Bytes,
}

const OBSTACLES: [Obstacle; 5] = [
    Obstacle::None,
    Obstacle::Capacity,
    Obstacle::Lane,
    Obstacle::LaneAndCapacity,
    Obstacle::Bytes,
];

/// A dispatcher with that obstacle; the gate takes it away, message by message.
async fn obstructed(obstacle: Obstacle) -> (Desk, Gate) {
    let history = History::new();
    let gate = Gate::new();
    let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
    let bytes = if obstacle == Obstacle::Bytes {
        2
    } else {
        1_000
    };
    let orders = mails()
        .capacity(CAPACITY)
        .capacity_bytes(bytes, |_: &Mail| 1)
        .lane_capacity(2, Overflow::Wait)
        .spawn(scripted(script))
        .unwrap();
    let desk = Desk::new(&history, orders);
    let keys: &[u64] = match obstacle {
        Obstacle::None => &[],
        Obstacle::Capacity => &[2, 3, 4, 5],
        Obstacle::Lane => &[1, 1],
        Obstacle::LaneAndCapacity => &[1, 1, 2, 3],
        Obstacle::Bytes => &[2, 3],
    };
    for key in keys {
        desk.send(*key).await;
        quiet().await;
    }
    (desk, gate)
}

/// Lets all handlers go, and sees that all room is back and each message was handled once.
async fn all_is_well(desk: Desk, gate: &Gate) {
    gate.open();
    quiet().await;
    assert_eq!(desk.mails.stats().capacity_left, CAPACITY);
    assert_empty(&desk.mails);
    // All of it can be had: the count, and the bytes as far as they are limited.
    let mut permits = Vec::new();
    for _ in 0..CAPACITY {
        permits.push(within(desk.mails.reserve()).await.unwrap());
    }
    drop(permits);
    for key in [1, 1, 1, 2, 3] {
        within(desk.send(key)).await;
    }
    desk.finish(Evidence::new()).await;
}

#[test]
fn send_dropped_at_each_poll() {
    each_send(async |desk: &Desk, mail| desk.mails.send(mail).await.map_err(drop));
}

#[test]
fn submit_dropped_at_each_poll() {
    each_send(async |desk: &Desk, mail| desk.mails.submit(mail).await.map(drop).map_err(drop));
}

#[test]
fn reserve_and_send_dropped_at_each_poll() {
    each_send(async |desk: &Desk, mail| {
        let permit = desk.mails.reserve().await.map_err(drop)?;
        // A lane that is full says so to a permit; then the message was not accepted.
        permit.send(mail).map_err(drop)
    });
}

fn each_send(send: impl AsyncFn(&Desk, Mail) -> Result<(), ()>) {
    for obstacle in OBSTACLES {
        for polls in 0..5 {
            // When the way is cleared: before, between or after the polls.
            for cleared in 0..6 {
                paused().block_on(async {
                    let (desk, gate) = obstructed(obstacle).await;
                    let (mail, sending) = desk.next(1);
                    let id = mail.id;
                    let answer = give_up_after(polls, send(&desk, mail), async |poll| {
                        if poll == cleared {
                            gate.release(1);
                            quiet().await;
                        }
                    })
                    .await;
                    let accepted = answer == Some(Ok(()));
                    match accepted {
                        true => sending.ok(),
                        false => sending.fail(),
                    }
                    if polls > 0 && obstacle == Obstacle::None {
                        assert!(accepted, "nothing was in its way");
                    }
                    let before = desk.mails.stats();
                    quiet().await;
                    let after = desk.mails.stats();
                    assert!(after.accepted - before.accepted <= u64::from(accepted));
                    assert_eq!(
                        after.accepted,
                        id - u64::from(!accepted),
                        "{obstacle:?} {polls}"
                    );
                    all_is_well(desk, &gate).await;
                });
            }
        }
    }
}

/// Several wait in a row; each of them in turn is the one that goes away, also when it has just been
/// woken.
#[test]
fn a_sender_dropped_in_the_queue_passes_its_place_on() {
    for obstacle in [
        Obstacle::Capacity,
        Obstacle::Lane,
        Obstacle::LaneAndCapacity,
        Obstacle::Bytes,
    ] {
        for gone in 0..3 {
            for woken in [false, true] {
                paused().block_on(async {
                    let (desk, gate) = obstructed(obstacle).await;
                    let mut sends = Vec::new();
                    for _ in 0..3 {
                        let (mail, sending) = desk.next(1);
                        let mails = desk.mails.clone();
                        let mut send = Box::pin(async move { mails.send(mail).await });
                        assert!(
                            poll_fn(|cx| Poll::Ready(send.as_mut().poll(cx)))
                                .await
                                .is_pending()
                        );
                        sends.push(Some((send, sending)));
                    }
                    if woken {
                        gate.release(1);
                        quiet().await;
                    }
                    let (send, sending) = sends[gone].take().unwrap();
                    drop(send);
                    sending.fail();
                    gate.open();
                    for (send, sending) in sends.into_iter().flatten() {
                        within(send).await.unwrap();
                        sending.ok();
                    }
                    all_is_well(desk, &gate).await;
                });
            }
        }
    }
}

#[test]
fn reserve_dropped_at_each_poll() {
    for polls in 0..4 {
        for cleared in 0..5 {
            paused().block_on(async {
                let (desk, gate) = obstructed(Obstacle::Capacity).await;
                let permit = give_up_after(polls, desk.mails.reserve(), async |poll| {
                    if poll == cleared {
                        gate.release(1);
                        quiet().await;
                    }
                })
                .await;
                drop(permit);
                all_is_well(desk.clone(), &gate).await;
            });
        }
    }
}

#[test]
fn a_receipt_dropped_or_left_at_each_poll() {
    for polls in 0..4 {
        for cleared in 0..5 {
            paused().block_on(async {
                let (desk, gate) = obstructed(Obstacle::None).await;
                let mut receipt = desk.submit(1).await;
                let between = async |poll| {
                    if poll == cleared {
                        gate.release(1);
                        quiet().await;
                    }
                };
                // Left by reference, it can be taken up again: the answer is not lost.
                let answer = give_up_after(polls, &mut receipt, between).await;
                if answer.is_none() && polls % 2 == 0 {
                    gate.release(1);
                    assert_eq!(within(receipt).await.unwrap(), 1);
                }
                all_is_well(desk, &gate).await;
            });
        }
    }
}

#[test]
fn an_ending_dropped_at_each_poll_goes_on() {
    for end in 0..4 {
        for polls in 1..4 {
            for cleared in 0..4 {
                paused().block_on(async {
                    let (desk, gate) = obstructed(Obstacle::LaneAndCapacity).await;
                    let ending = match end {
                        0 => desk.mails.drain(),
                        1 => desk.mails.close(),
                        2 => desk.mails.abort(),
                        _ => desk.mails.drain().within(SECOND),
                    };
                    let first = give_up_after(polls, ending.into_future(), async |poll| {
                        if poll == cleared {
                            gate.open();
                        }
                        quiet().await;
                    })
                    .await;
                    assert!(desk.mails.is_closed());
                    gate.open();
                    let second = within(async { desk.mails.drain().await }).await;
                    // Whoever was there for it got the messages, and nobody got them twice.
                    let back = second.handed_back as usize;
                    let returned = first.map_or(0, |report| report.returned.len());
                    assert_eq!(returned + second.returned.len(), back);
                    let ids: Vec<_> = (1..=4).collect();
                    let done: Vec<_> = history_done(&desk);
                    let evidence = Evidence::new()
                        .handed_back(ids.into_iter().filter(|id| !done.contains(id)));
                    desk.judge(&second, evidence);
                    assert_eq!(desk.mails.stats().capacity_left, CAPACITY);
                });
            }
        }
    }
}

/// The ids whose handlers ended well.
fn history_done(desk: &Desk) -> Vec<u64> {
    use keylane_testkit::{Event, Outcome};
    let records = desk.history.records();
    let done = records.iter().filter_map(|record| match record.event {
        Event::End {
            id,
            outcome: Outcome::Ok,
            ..
        } => Some(id),
        _ => None,
    });
    done.collect()
}

/// The future of a handler's own context.
#[test]
fn cancelled_dropped_at_each_poll() {
    for polls in 0..4 {
        paused().block_on(async move {
            let orders = keylane::Dispatcher::builder(|n: &u64| *n)
                .spawn(move |ctx: keylane::Context<u64>, n: u64| async move {
                    let told = give_up_after(polls, ctx.cancelled(), async |_| {
                        tokio::task::yield_now().await;
                    })
                    .await;
                    assert!(told.is_none());
                    ctx.cancelled().await;
                    Ok::<_, ()>(n)
                })
                .unwrap();
            let receipt = orders.submit(7).await.unwrap();
            quiet().await;
            assert_eq!(orders.close().await.done, 1);
            assert_eq!(receipt.await, Ok(7));
        });
    }
}
