//! A lane that halts while the number of lanes changes can be named by its number.

use std::num::NonZeroUsize;
use std::pin::pin;

use futures::FutureExt;
use keylane::routing::{HashLane, HashLanes};
use keylane::watching::LaneState;
use keylane::{Dispatcher, OnExhausted};
use keylane_testkit::ScriptError;
use keylane_testkit::scenario::{Message, settle, within};

#[tokio::test(start_paused = true)]
async fn an_old_lane_that_is_halted_is_found_by_its_number() {
    let two = NonZeroUsize::new(2).unwrap();
    let lanes: HashLanes<Message, u64, ScriptError> =
        Dispatcher::hash_lanes(two, |job: &Message| job.key)
            .on_exhausted(OnExhausted::Halt)
            .spawn(|job: Message| async move {
                if job.id == 0 {
                    Err(ScriptError::Error(0))
                } else {
                    Ok(job.id)
                }
            })
            .unwrap();
    let moves = (0..).find(|key| lanes.lane_of(&Some(*key)).index() == 1);
    let key = moves.unwrap();
    lanes.send(Message::new(key, 0)).await.unwrap();
    settle().await;
    let mut resized = pin!(lanes.resize(1));
    assert!(resized.as_mut().now_or_never().is_none());
    lanes.send(Message::new(key, 1)).await.unwrap();
    settle().await;
    // The key belongs to the new lane, and waits for the old one.
    assert_eq!(lanes.lane_of(&Some(key)).index(), 0);
    assert!(resized.as_mut().now_or_never().is_none());
    let halted: Vec<_> = (0..2)
        .map(|index| lanes.lane(&HashLane::numbered(index)))
        .filter(|lane| {
            let state = lane.inspect().map(|view| view.state);
            matches!(state, Some(LaneState::Halted { .. }))
        })
        .collect();
    assert_eq!(halted.len(), 1);
    assert_eq!(halted[0].key().index(), 1);
    halted[0].skip().unwrap();
    within(resized).await.unwrap();
    let report = within(async { lanes.drain().await }).await;
    assert_eq!((report.done, report.discarded), (1, 1));
}
