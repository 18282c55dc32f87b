//! G3: who does not move from a lane waits for nothing while it drains, and a user that waits takes no
//! room from the others.

use keylane::Overflow;
use keylane::error::TrySendError;
use keylane_testkit::scenario::{MS, paused, quiet, scripted, within};
use keylane_testkit::{Act, Evidence, Gate, History, Script};

use super::support::{Producer, begin, finish, hashed, users};

/// The user whose handler does not end, of lane 0.
fn blocker() -> u64 {
    users(4, 0, 8, false).next().unwrap()
}

/// Lane 0 of four is blocked, and four become eight: every user of another lane goes on at once,
/// whether it moves or not. Then the lane is free again, and those that had to wait go first.
#[test]
fn a_blocked_lane_holds_up_its_own_users_alone() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).key(blocker(), Act::ok().waits(&gate));
        let producer = Producer::new(&history, hashed(4).spawn(scripted(script)).unwrap());
        producer.send(blocker()).await;
        quiet().await;
        let change = begin(&producer, 8).await;
        let mut others = 0;
        for lane in 1..4 {
            for moves in [false, true] {
                for user in users(4, lane, 8, moves).take(5) {
                    producer.send(user).await;
                    others += 1;
                }
            }
        }
        quiet().await;
        assert_eq!(producer.dispatcher.stats().done, others);
        // Nothing is settled of those that move from there, nor of those behind the blocked handler.
        for user in users(4, 0, 8, true).take(3) {
            producer.send(user).await;
        }
        producer.send(users(4, 0, 8, false).nth(1).unwrap()).await;
        quiet().await;
        assert_eq!(producer.dispatcher.stats().done, others);
        assert!(!change.is_finished());
        gate.open();
        within(change).await.unwrap().unwrap();
        finish(producer, Evidence::new()).await;
    });
}

/// With fewer lanes, only those that go have to drain.
#[test]
fn lanes_that_stay_need_not_drain() {
    paused().block_on(async {
        let history = History::new();
        let stays = users(4, 0, 2, false).next().unwrap();
        let script = Script::new(&history).key(stays, Act::never());
        let producer = Producer::new(&history, hashed(4).spawn(scripted(script)).unwrap());
        producer.send(stays).await;
        quiet().await;
        within(producer.dispatcher.resize(2)).await.unwrap();
        drop(producer.dispatcher.abort().await);
    });
}

/// A user that waits for its old lane has the limit of a lane, and then its sender waits: there is room
/// for all others.
#[test]
fn a_hot_user_that_waits_takes_no_room_from_others() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).key(blocker(), Act::ok().waits(&gate));
        let lanes = hashed(4)
            .capacity(20)
            .lane_capacity(5, Overflow::Wait)
            .stalled_capacity(0)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, lanes);
        producer.send(blocker()).await;
        quiet().await;
        let change = begin(&producer, 8).await;
        let hot = users(4, 0, 8, true).next().unwrap();
        let flood = {
            let producer = producer.clone();
            tokio::spawn(async move {
                for _ in 0..100 {
                    producer.send(hot).await;
                    tokio::time::sleep(MS).await;
                }
            })
        };
        tokio::time::sleep(MS * 200).await;
        assert!(!flood.is_finished());
        let room = producer.dispatcher.stats().capacity_left;
        assert!(room >= 20 - 1 - 5 - 1, "{room} left");
        // Its sender alone waits.
        for user in users(4, 1, 8, true).take(30) {
            within(producer.send(user)).await;
        }
        quiet().await;
        assert_eq!(producer.dispatcher.stats().done, 30);
        gate.open();
        within(change).await.unwrap().unwrap();
        within(flood).await.unwrap();
        finish(producer, Evidence::new()).await;
    });
}

/// At that limit the policies of a full lane hold.
#[test]
fn who_waits_for_its_old_lane_meets_the_policy_of_full_lanes() {
    for policy in [Overflow::Reject, Overflow::DropOldest] {
        paused().block_on(async {
            let history = History::new();
            let gate = Gate::new();
            let script = Script::new(&history).key(blocker(), Act::ok().waits(&gate));
            let lanes = hashed(4)
                .lane_capacity(3, policy)
                .spawn(scripted(script))
                .unwrap();
            let producer = Producer::new(&history, lanes);
            producer.send(blocker()).await;
            quiet().await;
            let change = begin(&producer, 8).await;
            let hot = users(4, 0, 8, true).next().unwrap();
            let mut discarded = Vec::new();
            for n in 0..5 {
                let (message, sending) = producer.next(hot);
                let id = message.id;
                match producer.dispatcher.try_send(message) {
                    Ok(()) => {
                        sending.ok();
                        if policy == Overflow::DropOldest && n < 2 {
                            discarded.push(id);
                        }
                    }
                    Err(TrySendError::LaneFull(_)) => {
                        assert!(policy == Overflow::Reject && n >= 3, "{n}");
                        sending.fail();
                    }
                    Err(other) => panic!("{other:?}"),
                }
                quiet().await;
            }
            assert_eq!(
                producer.dispatcher.stats().accepted,
                if policy == Overflow::Reject { 4 } else { 6 }
            );
            gate.open();
            within(change).await.unwrap().unwrap();
            let report = finish(producer, Evidence::new().discarded(discarded)).await;
            assert_eq!(report.done, 4);
        });
    }
}

/// Who waited at the gate of its old lane, and moves, waits there no longer than it must.
#[test]
fn a_sender_at_the_gate_of_its_old_lane_moves_with_its_user() {
    paused().block_on(async {
        let history = History::new();
        let (first, second) = (Gate::new(), Gate::new());
        let stays = users(4, 0, 8, false).nth(1).unwrap();
        let script = Script::new(&history)
            .key(blocker(), Act::ok().waits(&first))
            .key(stays, Act::ok().waits(&second));
        let lanes = hashed(4)
            .lane_capacity(2, Overflow::Wait)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, lanes);
        producer.send(blocker()).await;
        producer.send(blocker()).await;
        quiet().await;
        let moves = users(4, 0, 8, true).next().unwrap();
        let mut senders = tokio::task::JoinSet::new();
        for user in [stays, stays, stays, moves] {
            let producer = producer.clone();
            senders.spawn(async move { producer.send(user).await });
            quiet().await;
        }
        let change = begin(&producer, 8).await;
        // What was there goes, and another user blocks the lane again.
        for _ in 0..2 {
            first.release(1);
            quiet().await;
        }
        within(change).await.unwrap().unwrap();
        quiet().await;
        assert_eq!(producer.dispatcher.stats().done, 3, "the mover is done");
        second.open();
        while let Some(sender) = within(senders.join_next()).await {
            sender.unwrap();
        }
        finish(producer, Evidence::new()).await;
    });
}
