//! Random steps against a naive model, with the store opened again in between; shrunk when one
//! fails.

use std::collections::BTreeMap;

use keylane_inbox::store::{Accepted, EmbeddedStore, InboxStore, Settings, Settled};
use keylane_inbox::{LetterKind, NewMessage};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// Key, bytes, and the number of an id.
    Accept(Vec<(u8, usize, Option<u8>)>),
    Done(Vec<u64>),
    Dead(Vec<u64>),
    Redrive(Vec<u64>),
    Purge(Vec<u64>),
    Version(u8, u64),
    Compact,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sizes = prop_oneof![0..50_usize, 0..5_000_usize, 60_000..70_000_usize];
    let message = (0..3_u8, sizes, prop::option::of(0..8_u8));
    let some = || prop::collection::vec(0..40_u64, 0..8);
    let step = prop_oneof![
        6 => prop::collection::vec(message, 0..6).prop_map(Step::Accept),
        4 => some().prop_map(Step::Done),
        2 => some().prop_map(Step::Dead),
        2 => some().prop_map(Step::Redrive),
        1 => some().prop_map(Step::Purge),
        1 => (0..3_u8, 0..9_u64).prop_map(|(key, version)| Step::Version(key, version)),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..25)
}

#[derive(Default)]
struct Model {
    last: u64,
    waiting: BTreeMap<u64, NewMessage>,
    letters: BTreeMap<u64, NewMessage>,
    ids: BTreeMap<u8, u64>,
    versions: BTreeMap<u8, u64>,
}

impl Model {
    fn accept(&mut self, parts: &[(u8, usize, Option<u8>)]) -> (Vec<NewMessage>, Vec<Accepted>) {
        let one = |(key, bytes, id): &(u8, usize, Option<u8>)| {
            let mut message = NewMessage::new(vec![*key], vec![*key; *bytes]);
            if let Some(id) = id {
                message = message.id(vec![*id]);
                if let Some(known) = self.ids.get(id) {
                    return (message, Accepted::Duplicate(*known));
                }
            }
            self.last += 1;
            id.map(|id| self.ids.insert(id, self.last));
            self.waiting.insert(self.last, message.clone());
            (message, Accepted::Stored(self.last))
        };
        parts.iter().map(one).unzip()
    }
}

async fn open(directory: &tempfile::TempDir) -> EmbeddedStore {
    EmbeddedStore::open(directory.path(), Settings::default())
        .await
        .unwrap()
}

async fn run(steps: Vec<Step>) {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&directory).await;
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Accept(parts) => {
                let (messages, expected) = model.accept(&parts);
                assert_eq!(store.accept(messages).await.unwrap(), expected);
            }
            Step::Done(sequences) => {
                sequences.iter().for_each(|n| drop(model.waiting.remove(n)));
                let done = sequences.into_iter().map(Settled::Done);
                store.settle(done.collect()).await.unwrap();
            }
            Step::Dead(sequences) => {
                for sequence in &sequences {
                    let message = model.waiting.remove(sequence);
                    message.map(|message| model.letters.insert(*sequence, message));
                }
                let dead = sequences.into_iter().map(|sequence| Settled::DeadLetter {
                    sequence,
                    attempts: 1,
                    kind: LetterKind::Other,
                    error: String::new(),
                });
                store.settle(dead.collect()).await.unwrap();
            }
            Step::Redrive(sequences) => {
                let mut found = Vec::new();
                for sequence in &sequences {
                    if let Some(message) = model.letters.remove(sequence) {
                        model.waiting.insert(*sequence, message);
                        found.push(*sequence);
                    }
                }
                assert_eq!(store.redrive(sequences).await.unwrap(), found);
            }
            Step::Purge(sequences) => {
                let found = sequences
                    .iter()
                    .filter(|n| model.letters.remove(n).is_some());
                let found = Vec::from_iter(found.copied());
                assert_eq!(store.purge_letters(sequences).await.unwrap(), found);
            }
            Step::Version(key, version) => {
                let last = model.versions.entry(key).or_insert(version);
                *last = version.max(*last);
                store.record_version(&[key], version).await.unwrap();
                assert_eq!(store.version(&[key]).await.unwrap(), Some(*last));
            }
            Step::Compact => {
                store.compact().await.unwrap();
            }
            Step::Reopen => {
                store.close().await.unwrap();
                store = open(&directory).await;
            }
        }
        compare(&store, &model).await;
    }
    // The numbers that are kept are those that a count would give.
    let kept = store.stats().await.unwrap();
    let all = store.scan(0, usize::MAX, usize::MAX).await.unwrap();
    store
        .settle(all.iter().map(|m| Settled::Done(m.sequence)).collect())
        .await
        .unwrap();
    let letters = model.letters.keys().copied().collect();
    store.purge_letters(letters).await.unwrap();
    let empty = store.stats().await.unwrap();
    assert_eq!(
        (empty.waiting_bytes, empty.letters_bytes),
        (0, 0),
        "it was {kept:?}"
    );
}

async fn compare(store: &EmbeddedStore, model: &Model) {
    let found = store.scan(0, usize::MAX, usize::MAX).await.unwrap();
    let found = found.into_iter().map(|m| (m.sequence, m.into_new()));
    assert!(found.eq(model.waiting.clone()), "what waits");
    let found = store.letters(0, usize::MAX).await.unwrap();
    let found = found
        .into_iter()
        .map(|l| (l.message.sequence, l.message.into_new()));
    assert!(found.eq(model.letters.clone()), "the letters");
    let stats = store.stats().await.unwrap();
    assert_eq!(
        (stats.tail, stats.known),
        (model.last, model.ids.len() as u64)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: keylane_testkit::scenario::cases(60), ..ProptestConfig::default() })]

    #[test]
    fn as_a_naive_model(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(run(steps));
    }
}
