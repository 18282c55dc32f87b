//! Every public future, dropped at every await: nothing is accepted that was not said to be, nothing
//! twice, and no room is lost.

use std::future::{Future, IntoFuture, poll_fn};
use std::task::Poll;

use keylane::Overflow;
use keylane_testkit::scenario::{
    Message, Producer, SECOND, assert_nothing_left, dispatcher, drop_after_polls, paused, quiet,
    scripted, within,
};
use keylane_testkit::{Act, Evidence, Gate, History, Script};

use crate::support::boxed;

const CAPACITY: usize = 4;

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
async fn obstructed(obstacle: Obstacle) -> (Producer, Gate) {
    let history = History::new();
    let gate = Gate::new();
    let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
    let bytes = if obstacle == Obstacle::Bytes {
        2
    } else {
        1_000
    };
    let orders = dispatcher()
        .capacity(CAPACITY)
        .capacity_bytes(bytes, |_: &Message| 1)
        .lane_capacity(2, Overflow::Wait)
        .spawn(scripted(script))
        .unwrap();
    let producer = Producer::new(&history, orders);
    let keys: &[u64] = match obstacle {
        Obstacle::None => &[],
        Obstacle::Capacity => &[2, 3, 4, 5],
        Obstacle::Lane => &[1, 1],
        Obstacle::LaneAndCapacity => &[1, 1, 2, 3],
        Obstacle::Bytes => &[2, 3],
    };
    for key in keys {
        producer.send(*key).await;
        quiet().await;
    }
    (producer, gate)
}

/// Lets all handlers go, and sees that all room is back and each message was handled once.
async fn all_is_well(producer: Producer, gate: &Gate) {
    gate.open();
    quiet().await;
    assert_eq!(producer.dispatcher.stats().capacity_left, CAPACITY);
    assert_nothing_left(&producer.dispatcher);
    // All of it can be had: the count, and the bytes as far as they are limited.
    let mut permits = Vec::new();
    for _ in 0..CAPACITY {
        permits.push(within(producer.dispatcher.reserve()).await.unwrap());
    }
    drop(permits);
    for key in [1, 1, 1, 2, 3] {
        within(producer.send(key)).await;
    }
    producer.finish(Evidence::new()).await;
}

#[test]
fn send_dropped_at_each_poll() {
    each_send(async |producer: &Producer, message| {
        producer.dispatcher.send(message).await.map_err(drop)
    });
}

#[test]
fn submit_dropped_at_each_poll() {
    each_send(async |producer: &Producer, message| {
        producer
            .dispatcher
            .submit(message)
            .await
            .map(drop)
            .map_err(drop)
    });
}

#[test]
fn reserve_and_send_dropped_at_each_poll() {
    each_send(async |producer: &Producer, message| {
        let permit = producer.dispatcher.reserve().await.map_err(drop)?;
        // A lane that is full says so to a permit; then the message was not accepted.
        permit.send(message).map_err(drop)
    });
}

fn each_send(send: impl AsyncFn(&Producer, Message) -> Result<(), ()>) {
    for obstacle in OBSTACLES {
        for polls in 0..5 {
            // When the way is cleared: before, between or after the polls.
            for cleared in 0..6 {
                paused().block_on(async {
                    let (producer, gate) = obstructed(obstacle).await;
                    let (message, sending) = producer.next(1);
                    let id = message.id;
                    let answer = drop_after_polls(polls, send(&producer, message), async |poll| {
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
                    let before = producer.dispatcher.stats();
                    quiet().await;
                    let after = producer.dispatcher.stats();
                    assert!(after.accepted - before.accepted <= u64::from(accepted));
                    assert_eq!(
                        after.accepted,
                        id - u64::from(!accepted),
                        "{obstacle:?} {polls}"
                    );
                    all_is_well(producer, &gate).await;
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
                    let (producer, gate) = obstructed(obstacle).await;
                    let mut sends = Vec::new();
                    for _ in 0..3 {
                        let (message, sending) = producer.next(1);
                        let dispatcher = producer.dispatcher.clone();
                        let mut send = Box::pin(async move { dispatcher.send(message).await });
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
                    all_is_well(producer, &gate).await;
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
                let (producer, gate) = obstructed(Obstacle::Capacity).await;
                let permit = drop_after_polls(polls, producer.dispatcher.reserve(), async |poll| {
                    if poll == cleared {
                        gate.release(1);
                        quiet().await;
                    }
                })
                .await;
                drop(permit);
                all_is_well(producer.clone(), &gate).await;
            });
        }
    }
}

#[test]
fn a_receipt_dropped_or_left_at_each_poll() {
    for polls in 0..4 {
        for cleared in 0..5 {
            paused().block_on(async {
                let (producer, gate) = obstructed(Obstacle::None).await;
                let mut receipt = producer.submit(1).await;
                let between = async |poll| {
                    if poll == cleared {
                        gate.release(1);
                        quiet().await;
                    }
                };
                // Left by reference, it can be taken up again: the answer is not lost.
                let answer = drop_after_polls(polls, &mut receipt, between).await;
                if answer.is_none() && polls % 2 == 0 {
                    gate.release(1);
                    assert_eq!(within(receipt).await.unwrap(), 1);
                }
                all_is_well(producer, &gate).await;
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
                    let (producer, gate) = obstructed(Obstacle::LaneAndCapacity).await;
                    let ending = match end {
                        0 => producer.dispatcher.drain(),
                        1 => producer.dispatcher.close(),
                        2 => producer.dispatcher.abort(),
                        _ => producer.dispatcher.drain().within(SECOND),
                    };
                    let first = drop_after_polls(polls, ending.into_future(), async |poll| {
                        if poll == cleared {
                            gate.open();
                        }
                        quiet().await;
                    })
                    .await;
                    assert!(producer.dispatcher.is_closed());
                    gate.open();
                    let second = within(async { producer.dispatcher.drain().await }).await;
                    // One of the two reports has the messages, and no message is in both.
                    let back = second.handed_back as usize;
                    let returned = first.map_or(0, |report| report.returned.len());
                    assert_eq!(returned + second.returned.len(), back);
                    let ids: Vec<_> = (1..=4).collect();
                    let done: Vec<_> = history_done(&producer);
                    let evidence = Evidence::new()
                        .handed_back(ids.into_iter().filter(|id| !done.contains(id)));
                    producer.judge(&second, evidence);
                    assert_eq!(producer.dispatcher.stats().capacity_left, CAPACITY);
                });
            }
        }
    }
}

/// The ids whose handlers ended well.
fn history_done(producer: &Producer) -> Vec<u64> {
    use keylane_testkit::{Event, Outcome};
    let records = producer.history.records();
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
                .spawn(boxed(move |ctx, n| async move {
                    let told = drop_after_polls(polls, ctx.cancelled(), async |_| {
                        tokio::task::yield_now().await;
                    })
                    .await;
                    assert!(told.is_none());
                    ctx.cancelled().await;
                    Ok(n)
                }))
                .unwrap();
            let receipt = orders.submit(7).await.unwrap();
            quiet().await;
            assert_eq!(orders.close().await.done, 1);
            assert_eq!(receipt.await, Ok(7));
        });
    }
}
