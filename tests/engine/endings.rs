//! G9: `drain`, `close` and `abort` return a report in which every accepted message is, once.

use keylane::error::Failure;
use keylane::{OnExhausted, Report, Retry};
use keylane_testkit::scenario::{
    MS, Message, Producer, SECOND, assert_report_adds_up, dispatcher, paused, quiet, scripted,
};
use keylane_testkit::{Act, Evidence, Gate, History, Id, Key, Rule, Script, ScriptError};

/// A dispatcher with a message in every state there is.
///
/// | key | its messages |
/// | --- | --- |
/// | 1 | 1 in flight, 2 and 3 behind it, 14 in the channel |
/// | 2 | 4 backs off after one attempt, 5 behind it |
/// | 3 | 6 halted after one attempt, 7 behind it |
/// | - | 8 backs off after one attempt |
/// | 5 | 9 done |
/// | - | 10 in flight |
/// | 4 | 11 ready, but both permits are taken; 12 behind it |
/// | 6 | 13 in the channel |
struct Scene {
    producer: Producer,
    gate: Gate,
}

impl Scene {
    async fn set() -> Self {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history)
            .message(1, Act::ok().waits(&gate))
            .attempt(4, 1, Act::error())
            .message(6, Act::fatal())
            .attempt(8, 1, Act::error())
            .message(10, Act::ok().waits(&gate));
        let retry = Retry::fixed(SECOND).retry_if(
            |failure| !matches!(failure, Failure::Error(error) if ScriptError::is_fatal(error)),
        );
        let orders = dispatcher()
            .concurrency(2)
            .retry(retry)
            .on_exhausted(OnExhausted::Halt)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        for key in [1, 1, 1, 2, 2, 3, 3, 0, 5, 0, 4, 4] {
            producer.send(Some(key).filter(|key| *key > 0)).await;
            quiet().await;
        }
        let stats = producer.dispatcher.stats();
        assert_eq!(
            (stats.in_flight, stats.ready, stats.done),
            (2, 1, 1),
            "{stats:?}"
        );
        assert_eq!((stats.backing_off, stats.halted), (2, 1), "{stats:?}");
        // No await between these and the ending: the dispatcher has not seen them.
        producer.try_send(6).unwrap();
        producer.try_send(1).unwrap();
        Self { producer, gate }
    }

    /// Lets the handlers go on once the ending has begun.
    fn open_later(&self) {
        let gate = self.gate.clone();
        tokio::spawn(async move {
            tokio::time::sleep(10 * MS).await;
            gate.open();
        });
    }

    /// The report against the scene: who is handed back after how many attempts.
    #[track_caller]
    fn judge(&self, report: &Report<Key, Message>, handed_back: &[(Id, u32)]) {
        assert_report_adds_up(report);
        assert_eq!(report.accepted, 14);
        assert_eq!(report.done, 14 - handed_back.len() as u64);
        // In the order of acceptance, whenever it was that they came back.
        let returned: Vec<_> = report
            .returned
            .iter()
            .map(|back| {
                let message = back.message.as_ref().expect("it was kept for a retry");
                assert_eq!(back.key, message.key);
                (message.id, back.attempts)
            })
            .collect();
        assert_eq!(returned, handed_back);
        let evidence = Evidence::new().handed_back(handed_back.iter().map(|(id, _)| *id));
        let verdict = self.producer.judge(report, evidence.max_attempts(5));
        verdict.assert_judged(&[Rule::Drain, Rule::NoLoss, Rule::Duplicates]);
    }
}

#[test]
fn drain_handles_all_but_what_is_halted() {
    paused().block_on(async {
        let scene = Scene::set().await;
        scene.open_later();
        let report = scene.producer.dispatcher.drain().await;
        scene.judge(&report, &[(6, 1), (7, 0)]);
        assert_eq!((report.interrupted, report.deadline_reached), (0, false));
    });
}

#[test]
fn close_finishes_what_is_in_flight_and_hands_back_the_rest() {
    paused().block_on(async {
        let scene = Scene::set().await;
        scene.open_later();
        let report = scene.producer.dispatcher.close().await;
        let parked = [2, 3, 5, 7, 11, 12, 13, 14].map(|id| (id, 0));
        let tried = [4, 6, 8].map(|id| (id, 1));
        let mut handed_back = [&parked[..], &tried[..]].concat();
        handed_back.sort_unstable();
        scene.judge(&report, &handed_back);
        assert_eq!((report.interrupted, report.deadline_reached), (0, false));
    });
}

/// Every message that an abort hands back, with its attempts.
fn all_but_the_ninth() -> Vec<(Id, u32)> {
    let tried = [1, 4, 6, 8, 10];
    (1..=14)
        .filter(|id| *id != 9)
        .map(|id| (id, u32::from(tried.contains(&id))))
        .collect()
}

#[test]
fn abort_hands_back_everything_and_counts_the_interrupted() {
    paused().block_on(async {
        let scene = Scene::set().await;
        let report = scene.producer.dispatcher.abort().await;
        scene.judge(&report, &all_but_the_ninth());
        assert_eq!((report.interrupted, report.deadline_reached), (2, false));
    });
}

#[test]
fn a_deadline_turns_a_drain_into_an_abort() {
    paused().block_on(async {
        let scene = Scene::set().await;
        let began = tokio::time::Instant::now();
        let report = scene.producer.dispatcher.drain().within(100 * MS).await;
        assert!(began.elapsed() >= 100 * MS);
        // Handled to their end until then: nothing, as both permits are taken.
        scene.judge(&report, &all_but_the_ninth());
        assert_eq!((report.interrupted, report.deadline_reached), (2, true));
    });
}

#[test]
fn a_deadline_that_is_not_reached_changes_nothing() {
    paused().block_on(async {
        let scene = Scene::set().await;
        scene.open_later();
        let report = scene.producer.dispatcher.drain().within(60 * SECOND).await;
        scene.judge(&report, &[(6, 1), (7, 0)]);
        assert!(!report.deadline_reached);
    });
}

#[test]
fn a_dispatcher_that_never_had_a_message_ends_at_once() {
    paused().block_on(async {
        for end in 0..3 {
            let orders = dispatcher()
                .spawn(scripted(Script::new(&History::new())))
                .unwrap();
            let report = match end {
                0 => orders.drain().await,
                1 => orders.close().await,
                _ => orders.abort().await,
            };
            assert_eq!((report.accepted, report.handed_back), (0, 0));
        }
    });
}
