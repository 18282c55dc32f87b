//! `OnExhausted::DeadLetter`: the letter is durable before the next message of its key starts.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use keylane::error::{BoxError, Failure, ReceiptError};
use keylane::watching::LaneState;
use keylane::{DeadLetter, DeadLetterSink, OnExhausted, Overflow, Retry};
use keylane_testkit::scenario::{
    MS, Message, Producer, SECOND, ScriptedReceipt, dispatcher, on_both, paused, quiet, scripted,
    within,
};
use keylane_testkit::{Act, Evidence, Gate, History, Key, LetterBox, Rule, Script, ScriptError};
use tokio::time::Instant;

type Letter = DeadLetter<Key, Message, ScriptError>;

/// Keeps the letters whole, when they came, and does before each what it is told to.
#[derive(Clone)]
struct Shelf {
    history: History,
    letters: Arc<Mutex<Vec<(Instant, Letter)>>>,
    asked: Arc<AtomicU32>,
    mood: Mood,
}

#[derive(Clone)]
enum Mood {
    /// Panics so many times.
    Panics(u32),
    /// Says no so many times.
    Refuses(u32),
    /// Waits until it is let go.
    Waits(Gate),
}

impl Shelf {
    fn new(history: &History, mood: Mood) -> Self {
        let (letters, asked) = Default::default();
        Self {
            history: history.clone(),
            letters,
            asked,
            mood,
        }
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }
}

#[keylane::async_trait]
impl DeadLetterSink<Key, Message, ScriptError> for Shelf {
    async fn accept(&self, letter: &Letter) -> Result<(), BoxError> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        match &self.mood {
            Mood::Panics(times) if asked < *times => {
                std::panic::resume_unwind(Box::new("the sink panics"))
            }
            Mood::Refuses(times) if asked < *times => return Err("the shelf\nis full".into()),
            Mood::Waits(gate) => gate.pass().await,
            _ => {}
        }
        self.letters
            .lock()
            .unwrap()
            .push((Instant::now(), letter.clone()));
        self.history.dead(letter.message.id);
        Ok(())
    }
}

/// The first message of key 1 fails; a second one is behind it.
async fn fail_one(history: &History, shelf: &Shelf) -> (Producer, ScriptedReceipt) {
    let script = Script::new(history).message(1, Act::error());
    let orders = dispatcher()
        .on_exhausted(OnExhausted::dead_letter(shelf.clone()))
        .spawn(scripted(script))
        .unwrap();
    let producer = Producer::new(history, orders);
    let receipt = producer.submit(1).await;
    producer.send(1).await;
    quiet().await;
    (producer, receipt)
}

#[test]
fn a_letter_says_all_there_is_to_know() {
    paused().block_on(async {
        let history = History::new();
        let shelf = Shelf::new(&history, Mood::Refuses(0));
        let script = Script::new(&history)
            .message(1, Act::error())
            .message(2, Act::panic())
            .message(3, Act::never());
        let orders = dispatcher()
            .attempt_timeout(SECOND)
            .retry(Retry::fixed(MS).max_attempts(3))
            .on_exhausted(OnExhausted::dead_letter(shelf.clone()))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send(7).await;
        producer.send(None).await;
        producer.send(8).await;
        producer.finish(Evidence::new().max_attempts(3)).await;
        let mut letters: Vec<_> = shelf
            .letters
            .lock()
            .unwrap()
            .iter()
            .map(|(_, letter)| letter.clone())
            .collect();
        letters.sort_by_key(|letter| letter.message.id);
        let facts: Vec<_> = letters
            .iter()
            .map(|l| (l.key, l.attempts, l.failure.clone()))
            .collect();
        let expected = [
            (Some(7), 3, Failure::Error(ScriptError::Error(1))),
            (
                None,
                3,
                Failure::Panicked("scripted panic of id 2".to_owned()),
            ),
            (Some(8), 3, Failure::TimedOut(SECOND)),
        ];
        assert_eq!(facts, expected);
        assert_eq!(
            letters[0].message,
            Message {
                key: Some(7),
                id: 1
            }
        );
    });
}

#[test]
fn a_sink_that_refuses_is_asked_again_with_growing_waits() {
    paused().block_on(async {
        let history = History::new();
        let shelf = Shelf::new(&history, Mood::Refuses(12));
        let began = Instant::now();
        let (producer, receipt) = fail_one(&history, &shelf).await;

        // Visible, with the reason, and the key waits for it; others do not.
        let view = producer.dispatcher.inspect(&1).expect("the key waits");
        let LaneState::DeadLettering {
            refusals,
            due_in,
            why,
        } = &view.state
        else {
            panic!("{view:?}")
        };
        assert_eq!(
            (view.depth, *refusals, &why[..]),
            (2, 1, "the shelf\\nis full")
        );
        assert!(*due_in <= 100 * MS, "{due_in:?}");
        assert_eq!(producer.dispatcher.stats().letter_failures, 1);
        producer.send(2).await;
        quiet().await;
        assert_eq!(producer.dispatcher.stats().done, 1);

        tokio::time::sleep(SECOND).await;
        let LaneState::DeadLettering { refusals, .. } =
            producer.dispatcher.inspect(&1).unwrap().state
        else {
            panic!("{view:?}")
        };
        // At 0, 100, 300, 700 ms.
        assert_eq!(refusals, 4);
        let told = receipt.await.unwrap_err();
        assert_eq!(
            told,
            ReceiptError::DeadLettered(Failure::Error(ScriptError::Error(1)))
        );
        // 100 ms, doubled eight times, then half a minute each.
        let took = (shelf.letters.lock().unwrap()[0].0 - began).as_millis();
        assert!((141_100..141_200).contains(&took), "{took} ms");
        assert_eq!(producer.dispatcher.stats().letter_failures, 12);
        let report = producer.finish(Evidence::new().max_attempts(1)).await;
        assert_eq!((report.done, report.dead_lettered), (2, 1));
    });
}

#[test]
fn a_sink_that_panics_has_refused() {
    paused().block_on(async {
        let history = History::new();
        let shelf = Shelf::new(&history, Mood::Panics(2));
        let (producer, receipt) = fail_one(&history, &shelf).await;
        let LaneState::DeadLettering { why, .. } = producer.dispatcher.inspect(&1).unwrap().state
        else {
            panic!("it waits for the sink")
        };
        assert_eq!(why, "the sink panics");
        assert!(matches!(receipt.await, Err(ReceiptError::DeadLettered(_))));
        assert_eq!(producer.dispatcher.stats().letter_failures, 2);
        producer.finish(Evidence::new().max_attempts(1)).await;
    });
}

/// Before or after a handler that waited itself; both keep the lane for the letter.
#[test]
fn a_sink_that_waits_holds_its_key_and_no_other() {
    on_both(|| async {
        for handler_waits in [0, 2] {
            let history = History::new();
            let gate = Gate::new();
            let shelf = Shelf::new(&history, Mood::Waits(gate.clone()));
            let script = Script::new(&history)
                .key(1, Act::error().yields(handler_waits))
                .message(4, Act::error().yields(handler_waits));
            let orders = dispatcher()
                .concurrency(4)
                .on_exhausted(OnExhausted::dead_letter(shelf.clone()))
                .spawn(scripted(script))
                .unwrap();
            let producer = Producer::new(&history, orders);
            producer.send_all(1, 3).await;
            producer.send(None).await;
            within(gate.arrivals(2)).await;
            for key in 2..20 {
                within(producer.submit(key).await).await.unwrap();
            }
            let view = producer.dispatcher.inspect(&1).unwrap();
            assert!(
                matches!(view.state, LaneState::Running { attempt: 1, .. }),
                "{view:?}"
            );
            assert_eq!((view.depth, shelf.asked()), (3, 2));
            gate.open();
            let report = producer.finish(Evidence::new().max_attempts(1)).await;
            assert_eq!((report.done, report.dead_lettered), (18, 4));
        }
    });
}

#[test]
fn a_drain_waits_for_the_sink_and_a_deadline_hands_the_letter_back() {
    paused().block_on(async {
        let history = History::new();
        let shelf = Shelf::new(&history, Mood::Refuses(3));
        let (producer, _receipt) = fail_one(&history, &shelf).await;
        let report = producer.finish(Evidence::new().max_attempts(1)).await;
        assert_eq!((report.done, report.dead_lettered), (1, 1));

        for mood in [Mood::Refuses(u32::MAX), Mood::Waits(Gate::new())] {
            let history = History::new();
            let shelf = Shelf::new(&history, mood);
            let (producer, receipt) = fail_one(&history, &shelf).await;
            drop(receipt);
            let report = producer.dispatcher.drain().within(SECOND).await;
            assert!(report.deadline_reached);
            let back: Vec<_> = report
                .returned
                .iter()
                .map(|back| (back.key, back.message.as_ref().unwrap().id, back.attempts))
                .collect();
            // The second never got its turn.
            assert_eq!(back, [(Some(1), 1, 1), (Some(1), 2, 0)]);
            let verdict = producer.judge(&report, Evidence::new().handed_back([1, 2]));
            verdict.assert_judged(&[Rule::NoLoss, Rule::Drain]);
        }
    });
}

#[test]
fn close_hands_back_the_letters_that_wait_for_the_sink() {
    paused().block_on(async {
        let history = History::new();
        let shelf = Shelf::new(&history, Mood::Refuses(u32::MAX));
        let (producer, receipt) = fail_one(&history, &shelf).await;
        let report = producer.dispatcher.close().await;
        let told = receipt.await;
        assert!(matches!(
            told,
            Err(ReceiptError::HandedBack {
                message: Message { id: 1, .. },
                attempts: 1,
            })
        ));
        assert_eq!((report.handed_back, report.returned.len()), (2, 1));
        producer.judge(&report, Evidence::new().handed_back([1, 2]));
    });
}

/// A letter of a full lane is beside its lane, which goes on. Its key is not lost, whatever happens.
#[test]
fn a_letter_of_a_full_lane_keeps_its_key() {
    paused().block_on(async {
        for (mood, closes) in [
            (Mood::Refuses(1), false),
            (Mood::Refuses(u32::MAX), true),
            (Mood::Waits(Gate::new()), true),
        ] {
            let history = History::new();
            let shelf = Shelf::new(&history, mood);
            let gate = Gate::new();
            let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
            let orders = dispatcher()
                .lane_capacity(1, Overflow::DeadLetter)
                .overflow_sink(shelf.clone())
                .spawn(scripted(script))
                .unwrap();
            let producer = Producer::new(&history, orders);
            producer.send_all(5, 2).await;
            quiet().await;
            assert_eq!(shelf.asked(), 1);
            if closes {
                let report = producer.dispatcher.abort().await;
                let back: Vec<_> = report
                    .returned
                    .iter()
                    .map(|back| (back.key, back.attempts))
                    .collect();
                assert_eq!(back, [(Some(5), 1), (Some(5), 0)]);
                let evidence = Evidence::new().overflow_letters().handed_back([1, 2]);
                producer.judge(&report, evidence);
            } else {
                tokio::time::sleep(SECOND).await;
                let (_, letter) = shelf.letters.lock().unwrap()[0].clone();
                assert_eq!((letter.key, letter.attempts), (Some(5), 0));
                assert_eq!(letter.failure, Failure::LaneFull);
                gate.open();
                producer
                    .finish(Evidence::new().overflow_letters().max_attempts(1))
                    .await;
            }
        }
    });
}

/// `Halt` has no letters of its own. Those of a full lane are delivered all the same.
#[test]
fn a_drain_under_halt_waits_for_the_letter_of_a_full_lane() {
    paused().block_on(async {
        let history = History::new();
        let shelf = Shelf::new(&history, Mood::Refuses(2));
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        let orders = dispatcher()
            .on_exhausted(OnExhausted::Halt)
            .lane_capacity(1, Overflow::DeadLetter)
            .overflow_sink(shelf.clone())
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send_all(5, 2).await;
        quiet().await;
        assert_eq!(shelf.asked(), 1);
        gate.open();
        let evidence = Evidence::new().overflow_letters().max_attempts(1);
        producer.finish(evidence).await;
        assert_eq!(shelf.letters.lock().unwrap().len(), 1);
    });
}

/// One sink for many dispatchers: an `Arc` of a sink is a sink.
#[test]
fn a_sink_may_be_shared() {
    paused().block_on(async {
        let history = History::new();
        let letters = LetterBox::new(&history);
        let shared: Arc<dyn DeadLetterSink<Key, Message, ScriptError>> =
            Arc::new(letters.sink(|message: &Message| message.id));
        let script = Script::new(&history).otherwise(Act::error());
        for policy in [
            OnExhausted::DeadLetter(Arc::clone(&shared)),
            OnExhausted::dead_letter(shared),
        ] {
            let orders = dispatcher()
                .on_exhausted(policy)
                .spawn(scripted(script.clone()))
                .unwrap();
            orders
                .send(Message {
                    key: Some(1),
                    id: 1,
                })
                .await
                .unwrap();
            assert_eq!(orders.drain().await.dead_lettered, 1);
        }
        assert_eq!(letters.letters().len(), 2);
    });
}
