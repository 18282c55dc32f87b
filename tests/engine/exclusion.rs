//! G1: the handler never runs for two messages of one key at the same time.

use keylane::Retry;
use keylane_testkit::{Act, Evidence, History, Script};

use crate::rig::{Desk, Dice, MS, mails, on_both, scripted};

/// Every way in which a handler can take its time, mixed.
fn busy(history: &History, seed: u64) -> Script {
    Script::new(history).choose(move |cue| {
        match Dice::new(seed ^ (cue.id << 8) ^ u64::from(cue.attempt)).below(8) {
            0..3 => Act::ok(),
            3 => Act::ok().yields(1),
            4 => Act::ok().yields(3).sleeps(MS),
            5 => Act::ok().sleeps(2 * MS),
            6 if cue.attempt < 3 => Act::error().yields(1),
            7 if cue.attempt < 3 => Act::panic_at_poll(2),
            _ => Act::ok().yields(2),
        }
    })
}

#[test]
fn one_message_of_a_key_at_a_time() {
    on_both(|| async {
        let history = History::new();
        let orders = mails()
            .concurrency(32)
            .quantum(3)
            .retry(Retry::fixed(MS).max_attempts(3))
            .spawn(scripted(busy(&history, 1)))
            .unwrap();
        let desk = Desk::new(&history, orders);
        for n in 0..600 {
            desk.send(n % 7).await;
        }
        let report = desk.finish(Evidence::new()).await;
        assert_eq!(report.accepted, 600);
    });
}
