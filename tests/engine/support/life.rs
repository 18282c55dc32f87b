//! A whole life of a dispatcher at random: settings, messages, handlers, senders, end.
//!
//! One number decides all of it, so a life that goes wrong can be lived again (on one thread to the
//! letter). What the receipts say is held against what the report counts, and the history checker
//! judges both.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use keylane::error::{BoxError, Failure, ReceiptError, SendError, TrySendError};
use keylane::{DeadLetter, DeadLetterSink, OnExhausted, Overflow, Report, Retry};
use keylane_testkit::scenario::{
    MS, Message, Producer, Random, ScriptedReceipt, assert_report_adds_up, dispatcher,
    drop_after_polls, scripted, within,
};
use keylane_testkit::{Act, Evidence, History, Id, Key, LetterBox, Rule, Script, ScriptError};
use tokio::task::JoinSet;

/// Messages in one life, over all senders.
const MESSAGES: u64 = 96;
const SENDERS: u64 = 3;

/// How it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Drain,
    Close,
    Abort,
    DrainWithin(Duration),
    CloseWithin(Duration),
}

impl End {
    pub(crate) fn random(dice: &mut Random) -> Self {
        match dice.below(5) {
            0 => Self::Drain,
            1 => Self::Close,
            2 => Self::Abort,
            3 => Self::DrainWithin(MS * dice.below(20) as u32),
            _ => Self::CloseWithin(MS * dice.below(20) as u32),
        }
    }
}

/// A dispatcher with random settings, and its senders.
pub(crate) struct Life {
    pub(crate) seed: u64,
    pub(crate) producer: Producer,
    capacity: usize,
    max_attempts: u32,
    keys: u64,
    halts: bool,
    sink: Arc<Moody>,
    receipts: Arc<Mutex<Vec<(Id, ScriptedReceipt)>>>,
}

impl Life {
    /// Inside the runtime in which it is to be lived.
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Random::new(seed);
        let history = History::new();
        let letters = LetterBox::new(&history).refuses(dice.below(3) as usize);
        let sink = Arc::new(Moody {
            letters,
            dice: Mutex::new(dice.clone()),
            wrong: Mutex::default(),
        });
        let max_attempts = 1 + dice.below(3) as u32;
        let capacity = 1 + dice.below(64) as usize;
        let overflow = [
            Overflow::Wait,
            Overflow::Reject,
            Overflow::DropOldest,
            Overflow::DeadLetter,
        ][dice.below(4) as usize];
        let halts = dice.one_in(3);
        let exhausted = match dice.below(2) {
            _ if halts => OnExhausted::Halt,
            0 => OnExhausted::Discard,
            _ => OnExhausted::DeadLetter(sink.clone()),
        };
        let orders = dispatcher()
            .concurrency(1 + dice.below(12) as usize)
            .capacity(capacity)
            .stalled_capacity(1 + dice.below(64) as usize)
            .lane_capacity(1 + dice.below(8) as usize, overflow)
            .overflow_sink(Arc::clone(&sink))
            .shards(2 << dice.below(3))
            .quantum(1 + dice.below(4) as u32)
            .attempt_timeout(8 * MS)
            .retry(Retry::fixed(MS).max_attempts(max_attempts).retry_if(
                |failure| !matches!(failure, Failure::Error(error) if ScriptError::is_fatal(error)),
            ))
            .on_exhausted(exhausted)
            .spawn(scripted(script(&history, seed)))
            .expect("random settings are valid ones");
        Self {
            seed,
            producer: Producer::new(&history, orders),
            capacity,
            max_attempts,
            keys: 1 + dice.below(10),
            halts,
            sink,
            receipts: Arc::default(),
        }
    }

    /// Starts the senders, and an operator where lanes halt.
    pub(crate) fn begin(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for sender in 0..SENDERS {
            let (producer, receipts) = (self.producer.clone(), Arc::clone(&self.receipts));
            let (seed, keys) = (self.seed, self.keys);
            tasks.spawn(async move {
                let mut dice = Random::new(seed ^ (sender << 32));
                for _ in 0..MESSAGES / SENDERS {
                    // Keys of its own, so that the order of the sends is the order of acceptance.
                    let key = Some(sender * 100 + dice.below(keys)).filter(|_| !dice.one_in(10));
                    if !send(&producer, key, &mut dice, &receipts).await {
                        break;
                    }
                    if dice.one_in(4) {
                        tokio::task::yield_now().await;
                    }
                    if dice.one_in(16) {
                        tokio::time::sleep(MS * dice.below(5) as u32).await;
                    }
                }
            });
        }
        if self.halts {
            let producer = self.producer.clone();
            let keys = (0..SENDERS).flat_map(|s| (0..self.keys).map(move |k| s * 100 + k));
            let keys: Vec<Key> = keys.collect();
            let mut dice = Random::new(!self.seed);
            tasks.spawn(async move {
                while !producer.dispatcher.is_closed() {
                    let key = keys[dice.below(keys.len() as u64) as usize];
                    let lane = producer.dispatcher.lane(&key);
                    let _ = if dice.one_in(2) {
                        lane.resume()
                    } else {
                        lane.skip()
                    };
                    tokio::time::sleep(MS).await;
                }
            });
        }
        tasks
    }

    /// Whether all senders have ended, or were dropped.
    pub(crate) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.receipts) == 1
    }

    /// Lives until so many events are recorded, or nothing is sent any more.
    pub(crate) async fn go_on(&self, tasks: &mut JoinSet<()>, events: usize) {
        let history = &self.producer.history;
        let mut idle = 0;
        while history.position() < events && !tasks.is_empty() && idle < 200 {
            let before = history.position();
            if let Some(ended) = tasks.try_join_next() {
                ended.expect("no sender panics");
            }
            // Now and then time itself has to move.
            if idle % 8 == 7 {
                tokio::time::sleep(MS).await;
            } else {
                tokio::task::yield_now().await;
            }
            idle = if history.position() == before {
                idle + 1
            } else {
                0
            };
        }
    }

    /// Ends the dispatcher.
    pub(crate) async fn end(&self, end: End) -> Report<Key, Message> {
        let dispatcher = &self.producer.dispatcher;
        let handed_back = dispatcher.stats().handed_back;
        assert_eq!(
            handed_back, 0,
            "life {}: handed back before the end",
            self.seed
        );
        within(async {
            match end {
                End::Drain => dispatcher.drain().await,
                End::Close => dispatcher.close().await,
                End::Abort => dispatcher.abort().await,
                End::DrainWithin(limit) => dispatcher.drain().within(limit).await,
                End::CloseWithin(limit) => dispatcher.close().within(limit).await,
            }
        })
        .await
    }

    /// Judges what was recorded, what the report counts and what the receipts say.
    #[track_caller]
    pub(crate) fn judge(&self, report: &Report<Key, Message>) {
        let seed = self.seed;
        let told = self.told();
        let counts = told.counts();
        assert_report_adds_up(report);
        let reported = [
            report.done,
            report.dead_lettered,
            report.discarded,
            report.handed_back,
        ];
        assert_eq!(
            reported, counts,
            "life {seed}: the report, and the receipts"
        );
        assert_eq!(
            report.returned.len(),
            0,
            "life {seed}: every receipt is held"
        );
        let wrong = self.sink.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "life {seed}: {wrong:?}");
        let stats = self.producer.dispatcher.stats();
        assert_eq!(
            stats.capacity_left, self.capacity,
            "life {seed}: all room is back"
        );

        let verdict = self.producer.judge(report, self.evidence(&told));
        if counts.iter().sum::<u64>() > 0 {
            verdict.assert_judged(&[Rule::NoLoss, Rule::NoInvention]);
        }
    }

    /// What the receipts say, all of which must have been resolved.
    #[track_caller]
    pub(crate) fn told(&self) -> Told {
        let mut told = Told::default();
        for (id, mut receipt) in std::mem::take(&mut *self.receipts.lock().unwrap()) {
            let answer = (&mut receipt).now_or_never();
            let answer = answer.unwrap_or_else(|| {
                panic!("life {}: the receipt of id {id} never resolves", self.seed)
            });
            told.tell(id, &answer);
        }
        told
    }

    pub(crate) fn evidence(&self, told: &Told) -> Evidence {
        let evidence = Evidence::new()
            .max_attempts(self.max_attempts)
            .overflow_letters()
            .discarded(told.discarded.keys().copied())
            .handed_back(told.handed_back.keys().copied());
        if self.halts {
            evidence.resumed(1..=MESSAGES)
        } else {
            evidence
        }
    }
}

/// What became of each message, by its receipt.
#[derive(Default)]
pub(crate) struct Told {
    done: BTreeMap<Id, ()>,
    dead: BTreeMap<Id, ()>,
    discarded: BTreeMap<Id, ()>,
    handed_back: BTreeMap<Id, ()>,
    pub(crate) stopped: BTreeMap<Id, ()>,
}

impl Told {
    fn tell(&mut self, id: Id, answer: &Result<Id, ReceiptError<Message, ScriptError>>) {
        let kind = match answer {
            Ok(answered) => {
                assert_eq!(*answered, id, "the answer of another message");
                &mut self.done
            }
            Err(ReceiptError::DeadLettered(_)) => &mut self.dead,
            Err(ReceiptError::Failed(_)) => &mut self.discarded,
            Err(ReceiptError::Dropped(message)) => {
                assert_eq!(message.id, id, "the receipt of another message");
                &mut self.discarded
            }
            Err(ReceiptError::HandedBack { message, .. }) => {
                assert_eq!(message.id, id, "the receipt of another message");
                &mut self.handed_back
            }
            Err(ReceiptError::Interrupted(_)) => &mut self.handed_back,
            Err(ReceiptError::Stopped) => &mut self.stopped,
            Err(other) => panic!("unheard of: {other:?}"),
        };
        kind.insert(id, ());
    }

    /// Done, dead-lettered, discarded, handed back.
    pub(crate) fn counts(&self) -> [u64; 4] {
        [&self.done, &self.dead, &self.discarded, &self.handed_back].map(|kind| kind.len() as u64)
    }
}

/// A sink that takes its time, or panics, before it passes a letter on.
struct Moody {
    letters: LetterBox,
    dice: Mutex<Random>,
    /// Letters that name a key which is not their message's.
    wrong: Mutex<Vec<DeadLetter<Key, Message, ScriptError>>>,
}

#[keylane::async_trait]
impl DeadLetterSink<Key, Message, ScriptError> for Moody {
    async fn accept(&self, letter: &DeadLetter<Key, Message, ScriptError>) -> Result<(), BoxError> {
        let mood = self.dice.lock().unwrap().below(6);
        match mood {
            0 => tokio::task::yield_now().await,
            1 => tokio::time::sleep(2 * MS).await,
            2 => resume_unwind(Box::new("the sink panics")),
            _ => {}
        }
        if letter.key != letter.message.key {
            self.wrong.lock().unwrap().push(letter.clone());
        }
        let failure = letter.failure.to_string();
        Ok(self
            .letters
            .accept(letter.message.id, letter.attempts, failure)
            .await?)
    }
}

/// What handlers do in a life: one in ten is too slow, one in ten panics at some poll.
fn script(history: &History, seed: u64) -> Script {
    Script::new(history).choose(move |cue| {
        let mut dice = Random::new(seed ^ (cue.id << 16) ^ (u64::from(cue.attempt) << 48));
        let act = match dice.below(20) {
            0..6 => Act::ok(),
            6..8 => Act::ok().yields(1 + dice.below(4) as u32),
            8..11 => Act::ok()
                .sleeps(MS * dice.below(4) as u32)
                .yields(dice.below(3) as u32),
            11..13 => Act::error(),
            13 => Act::error().yields(2),
            14 => Act::error().sleeps(MS),
            15 => Act::fatal().yields(dice.below(2) as u32),
            16..18 => Act::panic_at_poll(1 + dice.below(5) as u32),
            18 => Act::never(),
            _ => Act::never().yields(3),
        };
        if dice.one_in(10) {
            act.panics_in_drop()
        } else {
            act
        }
    })
}

/// One send, in one of the ways there are. False when the dispatcher is closed.
async fn send(
    producer: &Producer,
    key: Option<Key>,
    dice: &mut Random,
    receipts: &Mutex<Vec<(Id, ScriptedReceipt)>>,
) -> bool {
    let (message, sending) = producer.next(key);
    let id = message.id;
    let receipt = match dice.below(5) {
        // Given up after the first poll: by what is promised, it was not accepted then.
        0 => {
            let submit = producer.dispatcher.submit(message);
            let Some(answer) = drop_after_polls(1, submit, async |_| {}).await else {
                sending.fail();
                return true;
            };
            answer.map_err(TrySendError::from)
        }
        1 => producer.dispatcher.try_submit(message),
        2 => match producer.dispatcher.reserve().await {
            Ok(permit) => permit.submit(message),
            Err(_) => Err(TrySendError::Closed(message)),
        },
        _ => producer
            .dispatcher
            .submit(message)
            .await
            .map_err(|error: SendError<Message>| error.into()),
    };
    match receipt {
        Ok(receipt) => {
            receipts.lock().unwrap().push((id, receipt));
            sending.ok();
            true
        }
        Err(refusal) => {
            sending.fail();
            assert_eq!(
                match &refusal {
                    TrySendError::Full(message)
                    | TrySendError::LaneFull(message)
                    | TrySendError::TooLarge(message)
                    | TrySendError::Closed(message) => message.id,
                    other => panic!("unheard of: {other:?}"),
                },
                id,
                "the refusal gives back another message"
            );
            !matches!(refusal, TrySendError::Closed(_))
        }
    }
}
