//! Decoding: a source in memory, a sink that can refuse, and a driver that can drop every call.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::IntakeSettings;
use keylane::{Dispatcher, OnExhausted};
use keylane_source::{
    BoxError, Decoded, DecodedPosition, Deliveries, Delivery, Features, Generation, Outcome,
    RawLetter, RawLetterSink, RawMessage, Received, Settlement, Source, SourceError, SourceLetter,
    async_trait,
};
use proptest::prelude::*;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

const FIRST: Generation = Generation(1);
const SECOND: Generation = Generation(2);

/// What the test and its source and sink have in common.
#[derive(Default)]
struct Seen {
    /// What the source has: the message, and its generation. The index is the position.
    log: Vec<(RawMessage, Generation)>,
    /// The next one to be handed over.
    next: usize,
    /// What it says when it has handed over everything.
    news: VecDeque<Received<usize>>,
    features: Features,
    settled: Vec<(usize, Outcome)>,
    extended: Vec<Vec<usize>>,
    released: Vec<Generation>,
    opened: u32,
    /// The room that the source was asked with last.
    room: usize,
    /// Calls that must not be dropped halfway.
    begun: u32,
    finished: u32,
    letters: Vec<String>,
    refusals: u32,
    happened: Vec<Event>,
    fails: bool,
}

/// What has happened, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    HandedOver(usize),
    Settled(usize),
    Offered(usize),
    Kept(usize),
}

use Event::{HandedOver, Kept, Offered, Settled};

#[derive(Clone, Default)]
struct World {
    seen: Arc<Mutex<Seen>>,
    changed: Arc<Notify>,
}

impl World {
    fn new(messages: &[(&str, &str)]) -> Self {
        let world = Self::default();
        messages
            .iter()
            .for_each(|(key, payload)| world.add(key, payload.to_string()));
        world
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Adds a message; an empty key is none.
    fn add(&self, key: &str, payload: impl Into<Bytes>) {
        self.add_of(FIRST, key, payload);
    }

    fn add_of(&self, generation: Generation, key: &str, payload: impl Into<Bytes>) {
        let mut seen = self.seen();
        let mut raw = RawMessage::new(payload);
        if !key.is_empty() {
            raw = raw.key(key.to_owned());
        }
        raw.version = Some(seen.log.len() as u64);
        seen.log.push((raw, generation));
        drop(seen);
        self.changed.notify_one();
    }

    fn tell(&self, news: Received<usize>) {
        self.seen().news.push_back(news);
        self.changed.notify_one();
    }

    fn happened(&self, event: Event) {
        self.seen().happened.push(event);
    }

    fn decoded(&self) -> Numbers {
        self.raw().letters(self.clone())
    }

    fn raw(&self) -> Numbers {
        self.clone().decode(number as Decode)
    }

    fn outcomes(&self) -> Vec<(usize, Outcome)> {
        std::mem::take(&mut self.seen().settled)
    }

    /// A call that notes whether it was dropped halfway.
    async fn whole(&self) {
        self.seen().begun += 1;
        yield_now().await;
        yield_now().await;
        self.seen().finished += 1;
    }

    /// Whether each key is in order, and everything has come to its end once.
    fn check(&self) {
        let seen = self.seen();
        let mut keys: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (at, (raw, _)) in seen.log.iter().enumerate() {
            let count = |event| {
                seen.happened
                    .iter()
                    .filter(|happened| **happened == event)
                    .count()
            };
            let expected = match number(raw).is_ok() {
                true => (1, 1, 0),
                false => (0, 0, 1),
            };
            let counts = (count(HandedOver(at)), count(Settled(at)), count(Kept(at)));
            assert_eq!(counts, expected, "message {at}");
            if let Some(key) = &raw.key {
                keys.entry(key).or_default().push(at);
            }
        }
        let when = |event| seen.happened.iter().position(|happened| *happened == event);
        for (behind, line) in keys.values().flat_map(|line| {
            line.iter()
                .enumerate()
                .map(move |(index, at)| (*at, &line[..index]))
        }) {
            for before in line {
                let (handed, kept) = (when(HandedOver(behind)), when(Kept(*before)));
                let settled = when(Settled(*before)).max(kept);
                let is_after = |later: Option<usize>, earlier| later.is_none() || later > earlier;
                assert!(is_after(handed, when(HandedOver(*before)).max(kept)));
                assert!(
                    is_after(when(Offered(behind)), settled),
                    "{before} before {behind}"
                );
            }
        }
        assert_eq!(seen.begun, seen.finished, "a call was dropped halfway");
    }
}

type Decode = fn(&RawMessage) -> Result<u32, BoxError>;
type Numbers = Decoded<World, u32, Decode>;
type At = DecodedPosition<usize>;

/// What starts with a digit is a number, and then padding.
fn number(raw: &RawMessage) -> Result<u32, BoxError> {
    let text = std::str::from_utf8(&raw.payload)?;
    assert!(text != "bomb", "it is a bomb");
    Ok(text.trim_end().parse()?)
}

impl Source for World {
    type Message = RawMessage;
    type Position = usize;

    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn features(&self) -> Features {
        self.seen().features
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        let mut seen = self.seen();
        seen.opened += 1;
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, usize>,
    ) -> Result<Received<usize>, SourceError> {
        loop {
            let changed = self.changed.notified();
            let mut pushed = false;
            loop {
                {
                    let mut seen = self.seen();
                    seen.room = into.room();
                    if std::mem::take(&mut seen.fails) {
                        return Err(SourceError::failed("as asked"));
                    }
                    let at = seen.next;
                    let Some((raw, generation)) =
                        seen.log.get(at).filter(|_| into.room() > 0).cloned()
                    else {
                        break;
                    };
                    seen.next += 1;
                    into.push(Delivery::new(raw, at).generation(generation).attempts(1));
                    pushed = true;
                }
                // Dropped here, what was pushed stays.
                yield_now().await;
            }
            if pushed {
                return Ok(Received::Messages);
            }
            {
                let mut seen = self.seen();
                let all = seen.next == seen.log.len();
                if let Some(news) = all.then(|| seen.news.pop_front()).flatten() {
                    return Ok(news);
                }
            }
            tokio::select! {
                () = changed => {}
                () = sleep_until(into.until()) => return Ok(Received::Idle),
            }
        }
    }

    async fn settle(&mut self, settled: &[Settlement<usize>]) -> Result<(), SourceError> {
        self.whole().await;
        let settled = settled
            .iter()
            .map(|settled| (settled.position, settled.outcome));
        self.seen().settled.extend(settled);
        Ok(())
    }

    async fn release(&mut self, generations: &[Generation]) -> Result<(), SourceError> {
        self.seen().released.extend(generations);
        Ok(())
    }

    async fn extend(&mut self, held: &[usize]) -> Result<(), SourceError> {
        self.whole().await;
        let mut held = held.to_vec();
        held.sort_unstable();
        self.seen().extended.push(held);
        Ok(())
    }

    async fn dead_letter(&mut self, letter: SourceLetter<usize>) -> Result<(), SourceError> {
        self.happened(Offered(letter.position));
        self.whole().await;
        let mut seen = self.seen();
        if seen.refusals > 0 {
            seen.refusals -= 1;
            return Err(SourceError::failed("not now"));
        }
        assert_eq!(letter.attempts, 1);
        seen.letters.push(letter.why);
        seen.happened.push(Kept(letter.position));
        Ok(())
    }
}

#[async_trait]
impl RawLetterSink for World {
    async fn accept(&self, letter: &RawLetter) -> Result<(), BoxError> {
        let at = letter.raw.version.unwrap() as usize;
        self.happened(Offered(at));
        yield_now().await;
        let mut seen = self.seen();
        assert_eq!(letter.source, "memory");
        if seen.refusals > 0 {
            seen.refusals -= 1;
            return Err("not now".into());
        }
        seen.letters.push(letter.error.to_string());
        seen.happened.push(Kept(at));
        Ok(())
    }
}

/// What a driver does, without lanes.
struct Hand {
    source: Numbers,
    room: usize,
    held: Vec<Delivery<u32, At>>,
    dead_lettered: u64,
}

impl Hand {
    async fn new(source: Numbers) -> Self {
        source.validate().unwrap();
        let mut hand = Self {
            source,
            room: 100,
            held: Vec::new(),
            dead_lettered: 0,
        };
        hand.source.open().await.unwrap();
        hand
    }

    fn seen(&self) -> Vec<u32> {
        self.held.iter().map(|held| held.message).collect()
    }

    /// Receives once, and drops the call when it was polled so often.
    async fn receive_within(
        &mut self,
        time: Duration,
        polls: usize,
    ) -> Option<Result<Received<At>, SourceError>> {
        let room = self.room - self.held.len();
        let mut into = Deliveries::new(room, Instant::now() + time);
        let received = {
            let mut receive = pin!(self.source.receive(&mut into));
            let mut left = polls;
            poll_fn(|cx| match receive.as_mut().poll(cx) {
                Poll::Ready(received) => Poll::Ready(Some(received)),
                Poll::Pending if left <= 1 => Poll::Ready(None),
                Poll::Pending => {
                    left -= 1;
                    Poll::Pending
                }
            })
            .await
        };
        self.dead_lettered += into.take_dead_lettered();
        let deliveries = into.take();
        assert!(deliveries.len() <= room, "no more than there is room for");
        self.held.extend(deliveries);
        received
    }

    /// Receives for so long, or until there is other news.
    async fn receive_for(&mut self, ms: u64) -> Received<At> {
        let until = Instant::now() + Duration::from_millis(ms);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let received = self
                .receive_within(left, usize::MAX)
                .await
                .unwrap()
                .unwrap();
            if received != Received::Messages {
                return received;
            }
        }
    }

    /// Settles the held message with this number.
    async fn settle(&mut self, message: u32) {
        self.settle_as(message, Outcome::Done).await;
    }

    async fn settle_as(&mut self, message: u32, outcome: Outcome) {
        let at = self.held.iter().position(|held| held.message == message);
        let held = self.held.remove(at.unwrap());
        let settlement = Settlement::new(held.position, outcome);
        self.source.settle(&[settlement]).await.unwrap();
    }
}

const DONE: Outcome = Outcome::Done;
const DEAD: Outcome = Outcome::DeadLettered;
const BACK: Outcome = Outcome::Returned { attempts: 1 };

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_decoded_keeps_its_place_in_its_key() {
    let messages = [
        ("a", "1"),
        ("a", "no"),
        ("a", "2"),
        ("b", "3"),
        ("a", "nor"),
        ("a", "4"),
    ];
    let world = World::new(&messages);
    let mut hand = Hand::new(world.decoded()).await;
    assert_eq!(hand.receive_for(10).await, Received::Idle);
    assert_eq!(hand.seen(), [1, 3]);
    hand.settle(3).await;
    assert_eq!(hand.receive_for(1_000).await, Received::Idle);
    assert_eq!((hand.seen(), world.seen().letters.len()), (vec![1], 0));
    hand.settle(1).await;
    assert_eq!(hand.receive_for(10).await, Received::Idle);
    assert_eq!((hand.seen(), world.seen().letters.len()), (vec![2], 1));
    hand.settle(2).await;
    assert_eq!(hand.receive_for(10).await, Received::Idle);
    assert_eq!((hand.seen(), hand.dead_lettered), (vec![4], 2));
    assert_eq!(world.seen().letters[0], "invalid digit found in string");
    let outcomes = [(3, DONE), (0, DONE), (1, DEAD), (2, DONE), (4, DEAD)];
    assert_eq!(world.outcomes(), outcomes);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_refuses_holds_up_one_key_only() {
    let world = World::new(&[("a", "no"), ("a", "1"), ("b", "2")]);
    world.seen().refusals = 3;
    let mut hand = Hand::new(world.decoded()).await;
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    world.add("b", "3");
    // After 0, 100, 300 and 700 milliseconds.
    assert_eq!(hand.receive_for(640).await, Received::Idle);
    assert_eq!((hand.seen(), world.seen().refusals), (vec![2, 3], 0));
    assert_eq!(world.seen().happened, [Offered(0); 3]);
    assert_eq!(hand.receive_for(20).await, Received::Idle);
    assert_eq!((hand.seen(), hand.dead_lettered), (vec![2, 3, 1], 1));
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_does_not_answer_holds_up_one_key_only() {
    struct Silent;

    #[async_trait]
    impl RawLetterSink for Silent {
        async fn accept(&self, _: &RawLetter) -> Result<(), BoxError> {
            std::future::pending().await
        }
    }

    let world = World::new(&[("a", "no"), ("a", "1"), ("b", "2")]);
    let mut hand = Hand::new(world.raw().letters(Silent)).await;
    assert_eq!(hand.receive_for(60_000).await, Received::Idle);
    assert_eq!(hand.seen(), [2]);
    assert_eq!(world.seen().room, 97);
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_decoding_is_an_error_and_one_of_the_sink_is_a_refusal() {
    struct Nervous(World, Mutex<bool>);

    #[async_trait]
    impl RawLetterSink for Nervous {
        async fn accept(&self, letter: &RawLetter) -> Result<(), BoxError> {
            let first = std::mem::take(&mut *self.1.lock().unwrap());
            assert!(!first, "not ready");
            self.0.accept(letter).await
        }
    }

    let world = World::new(&[("a", "bomb"), ("a", "1")]);
    let sink = Nervous(world.clone(), Mutex::new(true));
    let mut hand = Hand::new(world.raw().letters(sink)).await;
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    assert_eq!(hand.seen(), []);
    assert_eq!(hand.receive_for(100).await, Received::Idle);
    assert_eq!(hand.seen(), [1]);
    assert_eq!(
        world.seen().letters,
        ["the decoding function panicked: it is a bomb"]
    );
}

#[tokio::test(start_paused = true)]
async fn messages_without_a_key_wait_for_nothing() {
    let world = World::new(&[("", "1"), ("", "no"), ("", "2"), ("", "nor"), ("", "3")]);
    world.seen().refusals = 1;
    let mut hand = Hand::new(world.decoded()).await;
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    assert_eq!((hand.seen(), hand.dead_lettered), (vec![1, 2, 3], 1));
    assert_eq!(hand.receive_for(100).await, Received::Idle);
    assert_eq!(hand.dead_lettered, 2);
}

#[tokio::test(start_paused = true)]
async fn an_empty_key_is_a_key() {
    let world = World::default();
    for payload in ["1", "no"] {
        world.add("", payload);
        world.seen().log.last_mut().unwrap().0.key = Some(Bytes::new());
    }
    let mut hand = Hand::new(world.decoded()).await;
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    assert_eq!((hand.seen(), hand.dead_lettered), (vec![1], 0));
}

#[tokio::test(start_paused = true)]
async fn a_payload_of_a_mebibyte_is_kept_whole() {
    struct Keeps(Mutex<Vec<Bytes>>);

    #[async_trait]
    impl RawLetterSink for Keeps {
        async fn accept(&self, letter: &RawLetter) -> Result<(), BoxError> {
            assert!(letter.raw.headers == [("kind".to_owned(), Some(Bytes::from("order")))]);
            self.0.lock().unwrap().push(letter.raw.payload.clone());
            Ok(())
        }
    }

    let world = World::default();
    let mut large = format!("7{}", " ".repeat((1 << 20) - 1)).into_bytes();
    world.add("a", large.clone());
    large[0] = 0xff;
    world.add("b", large.clone());
    for (raw, _) in &mut world.seen().log {
        raw.headers
            .push(("kind".to_owned(), Some(Bytes::from("order"))));
    }
    let sink = Arc::new(Keeps(Mutex::default()));
    let mut hand = Hand::new(world.raw().letters(Arc::clone(&sink))).await;
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    assert_eq!((hand.seen(), hand.dead_lettered), (vec![7], 1));
    assert_eq!(*sink.0.lock().unwrap(), [Bytes::from(large)]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_takes_room() {
    let world = World::new(&[("a", "1"), ("a", "no"), ("a", "2"), ("a", "3"), ("a", "4")]);
    let mut hand = Hand::new(world.decoded()).await;
    hand.room = 3;
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    assert_eq!((hand.seen(), world.seen().next), (vec![1], 3));
    hand.settle(1).await;
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    assert_eq!((hand.seen(), world.seen().next), (vec![2, 3, 4], 5));
    hand.room = 100;
    for message in [2, 3, 4] {
        hand.settle(message).await;
    }
    let source = format!("{:?}", hand.source);
    assert!(source.contains("waiting: 0, keys: 0"), "{source}");
}

#[tokio::test(start_paused = true)]
async fn a_revoke_gives_back_what_waits() {
    let world = World::new(&[
        ("a", "1"),
        ("a", "no"),
        ("a", "2"),
        ("b", "nor"),
        ("b", "3"),
    ]);
    world.add_of(SECOND, "c", "never");
    world.add_of(SECOND, "a", "4");
    // The letters of `b` and `c` are refused.
    world.seen().refusals = 2;
    world.tell(Received::Revoked(vec![FIRST]));
    let mut hand = Hand::new(world.decoded()).await;
    assert_eq!(hand.receive_for(50).await, Received::Revoked(vec![FIRST]));
    assert_eq!(hand.seen(), [1]);
    // `1` goes on, and so `4` could, but for its place behind what was just given back.
    assert_eq!(hand.receive_for(10).await, Received::Idle);
    assert_eq!(hand.seen(), [1, 4]);
    hand.settle(1).await;
    let mut outcomes = world.outcomes();
    assert_eq!(outcomes.pop(), Some((0, DONE)));
    outcomes.sort_unstable_by_key(|outcome| outcome.0);
    assert_eq!(outcomes, [(1, BACK), (2, BACK), (3, BACK), (4, BACK)]);
    hand.source.release(&[FIRST]).await.unwrap();
    assert_eq!(world.seen().released, [FIRST]);
    assert_eq!(hand.receive_for(1_000).await, Received::Idle);
    assert_eq!((hand.dead_lettered, world.outcomes()), (1, vec![(5, DEAD)]));
    // The answer to the first offer was not waited for.
    let offered = [Offered(3), Offered(5), Offered(5), Offered(5), Kept(5)];
    assert_eq!(world.seen().happened, offered);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_end_after_a_revoke_holds_nothing_up_once_it_is_released() {
    let world = World::new(&[("a", "1")]);
    world.add_of(SECOND, "a", "no");
    world.tell(Received::Revoked(vec![FIRST]));
    let mut hand = Hand::new(world.decoded()).await;
    assert_eq!(hand.receive_for(50).await, Received::Revoked(vec![FIRST]));
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    assert_eq!(hand.dead_lettered, 0);
    hand.source.release(&[FIRST]).await.unwrap();
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    assert_eq!(hand.dead_lettered, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_is_dropped_untold_and_holds_nothing_up() {
    let world = World::new(&[("a", "1"), ("a", "no"), ("a", "2"), ("b", "nor")]);
    world.add_of(SECOND, "a", "never");
    world.seen().refusals = 1;
    world.tell(Received::Lost(vec![FIRST]));
    let mut hand = Hand::new(world.decoded()).await;
    assert_eq!(hand.receive_for(50).await, Received::Lost(vec![FIRST]));
    assert_eq!(hand.seen(), [1]);
    assert_eq!(hand.receive_for(1_000).await, Received::Idle);
    assert_eq!(world.outcomes(), [(4, DEAD)]);
}

#[tokio::test(start_paused = true)]
async fn a_recall_takes_what_waits_and_names_what_was_handed_over() {
    let world = World::new(&[
        ("a", "1"),
        ("a", "no"),
        ("a", "2"),
        ("a", "3"),
        ("b", "nor"),
    ]);
    world.seen().refusals = 1;
    world.tell(Received::Recalled(vec![0, 1, 2, 4]));
    let mut hand = Hand::new(world.decoded()).await;
    // The letter of `nor` is being delivered.
    let Received::Recalled(wanted) = hand.receive_for(50).await else {
        panic!("it recalls");
    };
    assert_eq!(hand.seen(), [1]);
    assert!(wanted.contains(&hand.held[0].position));
    assert_eq!(wanted.len(), 2);
    assert_eq!(hand.receive_for(200).await, Received::Idle);
    // Nothing is before `3` that cannot be decoded.
    assert_eq!(hand.seen(), [1, 3]);
    assert_eq!(world.outcomes(), [(1, BACK), (2, BACK), (4, DEAD)]);
}

#[tokio::test(start_paused = true)]
async fn the_end_comes_after_what_waits() {
    let world = World::new(&[("a", "1"), ("a", "no"), ("a", "2")]);
    world.tell(Received::End);
    let mut hand = Hand::new(world.decoded()).await;
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    hand.settle(1).await;
    assert_eq!(hand.receive_for(50).await, Received::End);
    assert_eq!((hand.seen(), hand.dead_lettered), (vec![2], 1));
    assert_eq!(world.outcomes(), [(0, DONE), (1, DEAD)]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_closed_gets_back_what_waits() {
    let world = World::new(&[("a", "1"), ("a", "no"), ("a", "2")]);
    let mut hand = Hand::new(world.decoded()).await;
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    hand.settle_as(1, Outcome::Discarded).await;
    hand.source.confirm().await.unwrap();
    hand.source.close().await.unwrap();
    let outcomes = [(0, Outcome::Discarded), (1, BACK), (2, BACK)];
    assert_eq!(world.outcomes(), outcomes);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_opened_again_starts_from_nothing() {
    let world = World::new(&[("a", "1"), ("a", "no"), ("b", "nor")]);
    world.seen().refusals = 1;
    let mut hand = Hand::new(world.decoded()).await;
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    world.seen().fails = true;
    world.changed.notify_one();
    let failed = hand
        .receive_within(Duration::from_secs(1), usize::MAX)
        .await;
    assert!(failed.unwrap().is_err());
    hand.held.clear();
    hand.source.open().await.unwrap();
    assert_eq!(world.seen().opened, 2);
    // Not even the letter of `nor` is left.
    assert_eq!(hand.receive_for(1_000).await, Received::Idle);
    let source = format!("{:?}", hand.source);
    assert!(source.contains("waiting: 0"), "{source}");
    assert_eq!(hand.dead_lettered, 0);
    world.seen().next = 1;
    world.changed.notify_one();
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    let mut outcomes = world.outcomes();
    outcomes.sort_unstable_by_key(|outcome| outcome.0);
    assert_eq!(outcomes, [(1, DEAD), (2, DEAD)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_ends_when_the_source_is_opened_again() {
    let world = World::new(&[("a", "no")]);
    world.seen().features = Features::new().dead_letters();
    let mut hand = Hand::new(world.raw()).await;
    // The letter is being kept, and the call of the inner source is not finished.
    while world.seen().begun == 0 {
        hand.receive_within(Duration::from_secs(1), 1).await;
    }
    assert_eq!(world.seen().finished, 0);
    hand.source.open().await.unwrap();
    world.seen().next = 0;
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    assert_eq!((hand.dead_lettered, world.outcomes()), (1, vec![(0, DEAD)]));
}

#[tokio::test(start_paused = true)]
async fn without_a_place_for_letters_the_source_is_not_consumed() {
    let world = World::new(&[]);
    let error = world.raw().validate().unwrap_err().to_string();
    assert!(error.contains(".letters(sink)"), "{error}");
    assert!(world.decoded().validate().is_ok());
    world.seen().features = Features::new().dead_letters();
    assert!(world.raw().validate().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_keeps_dead_letters_keeps_these_too() {
    let world = World::new(&[("a", "1"), ("a", "no"), ("a", "2"), ("b", "3")]);
    world.seen().features = Features::new().dead_letters();
    world.seen().refusals = 2;
    let mut hand = Hand::new(world.raw()).await;
    assert_eq!(hand.receive_for(50).await, Received::Idle);
    assert_eq!(hand.seen(), [1, 3]);
    hand.settle(1).await;
    assert_eq!(hand.receive_for(250).await, Received::Idle);
    assert_eq!((hand.seen(), hand.dead_lettered), (vec![3], 0));
    assert_eq!(hand.receive_for(100).await, Received::Idle);
    assert_eq!((hand.seen(), hand.dead_lettered), (vec![3, 2], 1));
    assert_eq!(world.outcomes(), [(0, DONE), (1, DEAD)]);
    // One of a handler.
    let position = hand.held[0].position.clone();
    let letter = SourceLetter::new(
        position,
        1,
        keylane_source::LetterCause::Failed,
        "no luck".to_owned(),
    );
    hand.source.dead_letter(letter).await.unwrap();
    assert_eq!(
        world.seen().letters,
        ["invalid digit found in string", "no luck"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_what_waits_are_extended() {
    let world = World::new(&[("a", "1"), ("a", "no"), ("a", "2"), ("b", "nor")]);
    world.seen().features = Features::new().lease(Duration::from_secs(30));
    world.seen().refusals = u32::MAX;
    let mut hand = Hand::new(world.decoded()).await;
    assert_eq!(hand.receive_for(100).await, Received::Idle);
    let held = [hand.held[0].position.clone()];
    hand.source.extend(&held).await.unwrap();
    assert_eq!(world.seen().extended, [[0, 1, 2, 3]]);
    hand.settle(1).await;
    // The driver holds nothing, and extends nothing.
    assert_eq!(hand.receive_for(31_000).await, Received::Idle);
    assert_eq!(world.seen().extended[1..], [[1, 2, 3], [1, 2, 3]]);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_receive_may_be_dropped_at_every_await() {
    for polls in 1..12 {
        let world = mixed(40);
        let mut hand = Hand::new(world.decoded()).await;
        drive(&mut hand, &world, |_| polls).await;
        let world = mixed(40);
        world.seen().features = Features::new().dead_letters();
        let mut hand = Hand::new(world.raw()).await;
        drive(&mut hand, &world, |_| polls).await;
    }
}

proptest! {
    #![proptest_config(testkit_cases::cases(64))]

    /// As above, with a call that is dropped here and one that is not there.
    #[test]
    fn calls_may_be_dropped_at_any_await(
        polls in proptest::collection::vec(1..9_usize, 1..20),
        room in 1..12_usize,
        refusals in 0..5_u32,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let world = mixed(60);
            world.seen().refusals = refusals;
            let mut hand = Hand::new(world.decoded()).await;
            hand.room = room;
            drive(&mut hand, &world, |turn| polls[turn % polls.len()]).await;
        });
    }
}

/// Three keys and messages without one, every fifth of them undecodable.
fn mixed(count: usize) -> World {
    let world = World::default();
    for n in 0..count {
        let payload = match n % 5 {
            3 => "no".to_owned(),
            _ => n.to_string(),
        };
        world.add(["a", "b", "c", ""][n * 7 % 11 % 4], payload);
    }
    world.tell(Received::End);
    world
}

/// Receives everything, settles now and then, and looks at the order.
async fn drive(hand: &mut Hand, world: &World, mut polls: impl FnMut(usize) -> usize) {
    let refusals = world.seen().refusals as usize;
    for turn in 0.. {
        assert!(
            turn < 10_000,
            "it stands still: {:?}",
            world.seen().happened
        );
        let before = hand.held.len();
        let received = hand
            .receive_within(Duration::from_millis(20), polls(turn))
            .await;
        for held in &hand.held[before..] {
            world.happened(HandedOver(*held.position.inner()));
        }
        if let Some(Received::End) = received.map(Result::unwrap) {
            break;
        }
        // Whatever was woken runs, and the time goes on.
        tokio::time::sleep(Duration::from_millis(1)).await;
        if turn % 3 == 2 && !hand.held.is_empty() {
            let held = &hand.held[turn * 5 % hand.held.len()];
            world.happened(Settled(*held.position.inner()));
            hand.settle(held.message).await;
        }
    }
    for message in hand.seen() {
        let held = hand.held.iter().find(|held| held.message == message);
        world.happened(Settled(*held.unwrap().position.inner()));
        hand.settle(message).await;
    }
    world.check();
    let mut outcomes = world.outcomes();
    outcomes.sort_unstable_by_key(|outcome| outcome.0);
    assert_eq!(outcomes.len(), world.seen().log.len());
    assert!(
        outcomes
            .iter()
            .enumerate()
            .all(|(at, outcome)| at == outcome.0)
    );
    let offers = |event: &&Event| matches!(event, Offered(_));
    let offers = world.seen().happened.iter().filter(offers).count();
    let dead_lettered = outcomes.iter().filter(|outcome| outcome.1 == DEAD).count();
    assert_eq!(
        offers,
        dead_lettered + refusals,
        "a letter is offered until it is kept"
    );
    assert_eq!(hand.dead_lettered, dead_lettered as u64);
}

#[tokio::test(start_paused = true)]
async fn a_dispatcher_that_consumes_it_counts_everything() {
    let world = mixed(500);
    world.seen().refusals = 3;
    let handled = world.clone();
    let numbers = Dispatcher::builder(|number: &u32| number % 7)
        .on_exhausted(OnExhausted::Halt)
        .spawn(move |number: u32| {
            let handled = handled.clone();
            async move {
                handled.happened(HandedOver(number as usize));
                tokio::time::sleep(Duration::from_millis(u64::from(number % 3))).await;
                handled.happened(Settled(number as usize));
                Ok::<(), std::io::Error>(())
            }
        })
        .unwrap();
    let settings = IntakeSettings::new().held(50);
    let intake = numbers.consume_with(world.decoded(), settings).unwrap();
    let report = intake.ended().await;
    assert_eq!(
        (report.received, report.acked, report.dead_lettered),
        (500, 400, 100)
    );
    assert_eq!(
        (report.given_back, report.nacked, report.restarts),
        (0, 0, 0)
    );
    // The lanes have other keys than the source: only the letters are where they belong.
    let seen = world.seen();
    let when = |event| seen.happened.iter().position(|happened| *happened == event);
    for at in (3..500).step_by(5) {
        let of_key = (0..at).filter(|n| seen.log[*n].0.key == seen.log[at].0.key);
        for before in of_key.filter(|_| seen.log[at].0.key.is_some()) {
            let settled = when(Settled(before)).max(when(Kept(before)));
            assert!(
                settled.is_some() && settled < when(Offered(at)),
                "{before} before {at}"
            );
        }
    }
    drop(seen);
    assert_eq!(world.outcomes().len(), 500);
    let seen = world.seen();
    assert_eq!(seen.begun, seen.finished);
}

#[tokio::test(start_paused = true)]
async fn a_dispatcher_gives_back_what_waits_on_a_revoke_and_on_a_stop() {
    let world = World::new(&[("a", "1"), ("a", "no"), ("a", "2")]);
    let gate = Arc::new(Notify::new());
    let opened = Arc::clone(&gate);
    let numbers = Dispatcher::builder(|number: &u32| *number)
        .on_exhausted(OnExhausted::Halt)
        .spawn(move |_: u32| {
            let gate = Arc::clone(&opened);
            async move {
                gate.notified().await;
                Ok::<(), std::io::Error>(())
            }
        })
        .unwrap();
    let intake = numbers.consume(world.decoded()).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.tell(Received::Revoked(vec![FIRST]));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.outcomes(), [(1, BACK), (2, BACK)]);
    gate.notify_one();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(
        (world.outcomes(), &world.seen().released[..]),
        (vec![(0, DONE)], &[FIRST][..])
    );
    // They come again, and wait for a letter when the intake stops.
    world.seen().refusals = u32::MAX;
    world.add_of(SECOND, "a", "no");
    world.add_of(SECOND, "a", "2");
    world.add_of(SECOND, "b", "3");
    tokio::time::sleep(Duration::from_millis(100)).await;
    gate.notify_one();
    let report = intake.stop().await;
    assert_eq!(
        (report.received, report.acked, report.dead_lettered),
        (2, 2, 0)
    );
    assert_eq!(world.outcomes(), [(5, DONE), (3, BACK), (4, BACK)]);
}
