//! The power fails at every sync of a workload, and between them: unsynced writes are lost, come in
//! any order, and are torn.
//!
//! After each the store must open, with everything that was confirmed: messages that were accepted
//! wait, those that were done do not, letters are letters. What was under way may be there or not,
//! call by call as a whole.
//!
//! A sample that takes some seconds; all of it with `KEYLANE_INBOX_POWER=all`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use keylane_inbox::store::{EmbeddedStore, InboxStore, Settings, Settled};
use keylane_inbox::{LetterKind, NewMessage};
use keylane_testkit::scenario::seed;

use crate::disk::{Disk, Event, Fate, Platter, syncs};

const OPERATIONS: u64 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Waiting,
    Letter,
}

/// What the store holds.
type Contents = BTreeMap<u64, Place>;

/// One call of the workload.
struct Call {
    /// How many events the disk had seen when the call was confirmed.
    confirmed: usize,
    after: Contents,
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.compact_above = 64 << 10;
    settings.compact_after = Duration::ZERO;
    settings
}

fn open(disk: Disk) -> Result<EmbeddedStore, keylane_inbox::error::OpenError> {
    EmbeddedStore::open_with_backend(move || Ok(disk.clone()), settings())
}

fn payload(sequence: u64) -> Vec<u8> {
    // Some in a page with others, some in pages of their own.
    let bytes = [40, 300, 900, 5_000, 20_000][(sequence % 5) as usize];
    vec![sequence as u8; bytes]
}

/// Runs the workload. Answers with what the store held after each call.
async fn workload(disk: &Disk) -> Vec<Call> {
    let store = open(disk.clone()).unwrap();
    let mut contents = Contents::new();
    let mut calls = vec![Call {
        confirmed: disk.events().len(),
        after: Contents::new(),
    }];
    let mut next = 1;
    let mut random = 88_172_645_463_325_252 ^ seed();
    for operation in 0..OPERATIONS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let some = |place: Place| {
            let of = contents.iter().filter(move |(_, at)| **at == place);
            Vec::from_iter(
                of.map(|(sequence, _)| *sequence)
                    .take(1 + (random % 6) as usize),
            )
        };
        // A backlog in the first half, less in the second, so that the file is compacted.
        let turn = if operation < OPERATIONS / 2 { 3 } else { 6 };
        match random % 10 {
            n if n >= turn => {
                let count = 1 + random % 3;
                let messages = (next..next + count).map(|sequence| {
                    let message = NewMessage::new("key", payload(sequence));
                    message.id(sequence.to_string())
                });
                store.accept(messages.collect()).await.unwrap();
                contents.extend((next..next + count).map(|n| (n, Place::Waiting)));
                next += count;
            }
            0 => {
                let dead = some(Place::Waiting);
                contents.extend(dead.iter().map(|sequence| (*sequence, Place::Letter)));
                let dead = dead.into_iter().map(|sequence| Settled::DeadLetter {
                    sequence,
                    attempts: 1,
                    kind: LetterKind::Failed,
                    error: "no".into(),
                });
                store.settle(dead.collect()).await.unwrap();
            }
            1 => {
                let letters = some(Place::Letter);
                contents.extend(letters.iter().map(|sequence| (*sequence, Place::Waiting)));
                store.redrive(letters).await.unwrap();
            }
            _ => {
                let done = some(Place::Waiting);
                contents.retain(|sequence, _| !done.contains(sequence));
                let done = done.into_iter().map(Settled::Done);
                store.settle(done.collect()).await.unwrap();
            }
        }
        calls.push(Call {
            confirmed: disk.events().len(),
            after: contents.clone(),
        });
    }
    assert!(
        store.stats().await.unwrap().compactions > 0,
        "the workload compacts"
    );
    store.close().await.unwrap();
    calls
}

/// What is in a store that was opened from what a power failure has left.
async fn contents(store: &EmbeddedStore) -> Contents {
    let mut contents = Contents::new();
    for message in store.scan(0, usize::MAX, usize::MAX).await.unwrap() {
        assert_eq!(message.payload, payload(message.sequence));
        contents.insert(message.sequence, Place::Waiting);
    }
    for letter in store.letters(0, usize::MAX).await.unwrap() {
        assert_eq!(letter.message.payload, payload(letter.message.sequence));
        let twice = contents.insert(letter.message.sequence, Place::Letter);
        assert_eq!(twice, None, "it is both");
    }
    contents
}

async fn check(platter: Platter, at: usize, calls: &[Call]) {
    // The last call that was confirmed, and the one that was under way.
    let first_open = calls.partition_point(|call| call.confirmed <= at);
    let store = match open(platter.into_disk()) {
        Ok(store) => store,
        // Before the very first commit there is no store; nothing was confirmed.
        Err(_) if first_open == 0 => return,
        Err(error) => panic!("{error}"),
    };
    let found = contents(&store).await;
    let (before, under_way) = (first_open.checked_sub(1), calls.get(first_open));
    let before = before.map(|call| &calls[call].after);
    let is_before = before.map_or(found.is_empty(), |before| found == *before);
    let is_after = under_way.is_some_and(|call| found == call.after);
    assert!(
        is_before || is_after,
        "{found:?}\nis neither before\n{before:?}\nnor after"
    );
    // It takes messages, under numbers that are new, and absorbs what it knows.
    let last = store.tail().borrow().sequence;
    assert!(found.keys().all(|sequence| *sequence <= last));
    let new = store
        .accept(vec![NewMessage::new("key", payload(last + 1))])
        .await
        .unwrap();
    assert_eq!(new[0].sequence(), last + 1);
    if let Some(waiting) = found.keys().next() {
        let again = NewMessage::new("key", payload(*waiting)).id(waiting.to_string());
        let again = store.accept(vec![again]).await.unwrap();
        assert!(again[0].is_duplicate() && again[0].sequence() == *waiting);
    }
    store.close().await.unwrap();
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }

    fn fate(&mut self, event: &Event) -> Fate {
        let bytes = match event {
            Event::Write { bytes, .. } => bytes.len(),
            _ => 0,
        };
        // A disk writes sectors of 512 bytes whole, and within a page in any order.
        let sectors = bytes / 512;
        match self.below(8) {
            0..=2 => Fate::Lost,
            3..=5 => Fate::Whole,
            6 => Fate::Torn(self.below(sectors + 1) * 512),
            _ => Fate::TornAtStart(self.below(sectors + 1) * 512),
        }
    }
}

#[tokio::test]
async fn at_every_sync_and_between() {
    let all = std::env::var("KEYLANE_INBOX_POWER").is_ok_and(|value| value == "all");
    let disk = Disk::default();
    let calls = workload(&disk).await;
    let events = disk.events().clone();
    let syncs = syncs(&events);
    let until = Instant::now() + Duration::from_secs(15);
    let mut random = Random(0x2545_f491_4f6c_dd1d ^ seed());
    let mut checked = 0;
    let mut synced = Platter::default();
    let mut from = 0;
    for (number, sync) in syncs.iter().copied().enumerate() {
        let unsynced = &events[from..sync];
        // In the sample every eighth sync, and the first ones, where the store is made.
        let is_looked_at = all || number < 8 || number % 8 == 0;
        if is_looked_at && (all || Instant::now() < until) {
            for cut in cuts(unsynced, &mut random, all) {
                for platter in variants(&synced, &unsynced[..cut], &mut random, all) {
                    check(platter, from + cut, &calls).await;
                    checked += 1;
                }
            }
        }
        unsynced
            .iter()
            .for_each(|event| synced.apply(event, Fate::Whole));
        from = (sync + 1).min(events.len());
    }
    check(synced, events.len(), &calls).await;
    println!(
        "{} events, {} syncs, {checked} power failures",
        events.len(),
        syncs.len()
    );
    assert!(checked > 100, "{checked} are too few to say anything");
}

/// After how many of the writes the power fails: right before the sync, and somewhere before.
fn cuts(unsynced: &[Event], random: &mut Random, all: bool) -> Vec<usize> {
    let between = if all { 3 } else { 1 };
    let mut cuts = vec![unsynced.len()];
    cuts.extend((0..between).map(|_| random.below(unsynced.len() + 1)));
    cuts
}

/// Nothing of it, all of it, and some of it.
fn variants(synced: &Platter, unsynced: &[Event], random: &mut Random, all: bool) -> Vec<Platter> {
    let mut variants = Vec::new();
    for fate in [Fate::Lost, Fate::Whole] {
        let mut platter = synced.clone();
        unsynced.iter().for_each(|event| platter.apply(event, fate));
        variants.push(platter);
    }
    for _ in 0..if all { 6 } else { 1 } {
        let mut platter = synced.clone();
        for event in unsynced {
            platter.apply(event, random.fate(event));
        }
        variants.push(platter);
    }
    variants
}
