//! G7: a key with nothing to do costs nothing. (The bytes are counted in the test binary `memory`.)

use keylane::{Exhausted, LaneState, Overflow, Retry};
use keylane_testkit::{Act, Evidence, Gate, History, Script};

use crate::rig::{Desk, MS, SECOND, assert_empty, mails, on_both, paused, quiet, scripted, within};

#[test]
fn a_lane_is_there_only_while_it_holds_or_runs_something() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history)
            .key(1, Act::ok().waits(&gate))
            .message(3, Act::error())
            .attempt(4, 1, Act::error());
        let orders = mails()
            .retry(Retry::custom(|attempt, _| (attempt == 1).then_some(SECOND)))
            .on_exhausted(Exhausted::Halt)
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        assert_eq!(desk.mails.inspect(&1), None);

        // In flight, and parked.
        desk.send_all(1, 2).await;
        quiet().await;
        assert_eq!(desk.mails.inspect(&1).map(|view| view.depth), Some(2));
        gate.release(1);
        quiet().await;
        assert_eq!(desk.mails.inspect(&1).map(|view| view.depth), Some(1));
        gate.release(1);
        quiet().await;
        assert_eq!(desk.mails.inspect(&1), None);

        // Backing off, and halted.
        desk.send(2).await;
        desk.send(3).await;
        quiet().await;
        assert!(matches!(
            desk.mails.inspect(&2).unwrap().state,
            LaneState::Backoff { .. }
        ));
        assert_eq!(desk.mails.stats().lanes, 2);
        tokio::time::sleep(2 * SECOND).await;
        assert!(matches!(
            desk.mails.inspect(&2).unwrap().state,
            LaneState::Halted { .. }
        ));
        assert_eq!(desk.mails.inspect(&3), None);
        desk.mails.lane(&2).skip().unwrap();
        assert_eq!(desk.mails.inspect(&2), None);
        assert_eq!(desk.mails.stats().lanes, 0);

        // Keyless messages have none at all.
        desk.send(None).await;
        assert_eq!(desk.mails.stats().lanes, 0);
        desk.finish(Evidence::new().discarded([3])).await;
    });
}

#[test]
fn ten_thousand_keys_leave_no_lane_behind() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| match cue.id % 5 {
            0 if cue.attempt == 1 => Act::error(),
            1 => Act::ok().yields(1),
            _ => Act::ok(),
        });
        let orders = mails()
            .lane_capacity(2, Overflow::Wait)
            .retry(Retry::fixed(MS))
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        for key in 0..10_000 {
            desk.send(key).await;
            if key % 50 == 0 {
                desk.send_all(key, 3).await;
            }
        }
        // Without an end: a dispatcher that lives on must be as empty as one that was drained.
        within(async {
            while desk.mails.stats().lanes > 0 {
                quiet().await;
            }
        })
        .await;
        assert_empty(&desk.mails);
        desk.finish(Evidence::new()).await;
    });
}
