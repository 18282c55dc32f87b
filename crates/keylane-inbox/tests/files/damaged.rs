//! Files that are cut, whose bits have changed, and that are something else: an error that names
//! the file, or all that was there; never a panic, and never an inbox with less in it.

use std::fs;
use std::path::Path;

use keylane_inbox::error::OpenError;
use keylane_inbox::store::{EmbeddedStore, InboxStore, Settings, Settled};
use keylane_inbox::{LetterKind, NewMessage};
use keylane_testkit::scenario::seed;

/// What was stored, in a form that can be compared.
type Contents = Vec<(u64, usize)>;

async fn open(directory: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(directory, Settings::default()).await
}

async fn fill(directory: &Path) -> Contents {
    let store = open(directory).await.unwrap();
    for n in 0..40 {
        let messages = (0..10).map(|m| {
            let message = NewMessage::new(format!("key-{m}"), vec![n as u8; 100 + 37 * m]);
            message.id(format!("{n}-{m}"))
        });
        store.accept(messages.collect()).await.unwrap();
    }
    let dead = (5..15).map(|sequence| Settled::DeadLetter {
        sequence,
        attempts: 1,
        kind: LetterKind::Failed,
        error: "no".into(),
    });
    store.settle(dead.collect()).await.unwrap();
    let contents = contents(&store).await.unwrap();
    store.close().await.unwrap();
    contents
}

async fn contents(store: &EmbeddedStore) -> Result<Contents, keylane_inbox::error::StoreError> {
    let waiting = store.scan(0, usize::MAX, usize::MAX).await?;
    let letters = store.letters(0, usize::MAX).await?;
    let letters = letters.into_iter().map(|letter| letter.message);
    let all = waiting.into_iter().chain(letters);
    Ok(all
        .map(|message| (message.sequence, message.payload.len()))
        .collect())
}

/// Opens what may be damaged. Whether it was found out.
async fn is_found_out(directory: &Path, whole: &Contents, what: &str) -> bool {
    let store = match open(directory).await {
        Ok(store) => store,
        Err(error) => {
            assert!(
                matches!(
                    error,
                    OpenError::Damaged { .. } | OpenError::Newer { .. } | OpenError::Behind { .. }
                ),
                "{what}: {error:?}"
            );
            assert!(
                error.to_string().contains("messages.redb"),
                "{what}: {error}"
            );
            return true;
        }
    };
    let found = contents(&store).await;
    let _ = store.close().await;
    match found {
        Ok(found) => {
            assert_eq!(found, *whole, "{what}");
            false
        }
        Err(error) => {
            assert!(error.to_string().contains("is damaged"), "{what}: {error}");
            true
        }
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

struct Random(u64);

impl Random {
    fn new(number: u64) -> Self {
        Self((number ^ seed() << 8).max(1))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Changes the bytes of a whole database, and opens it, over and over. How often it was found out.
async fn changed(times: usize, mut change: impl FnMut(usize, &mut Vec<u8>) -> String) -> usize {
    let whole = tempfile::tempdir().unwrap();
    let contents = fill(whole.path()).await;
    let bytes = fs::read(whole.path().join("messages.redb")).unwrap();
    let mut found_out = 0;
    for time in 0..times {
        let directory = tempfile::tempdir().unwrap();
        copy(whole.path(), directory.path());
        let mut changed = bytes.clone();
        let what = change(time, &mut changed);
        fs::write(directory.path().join("messages.redb"), changed).unwrap();
        found_out += usize::from(is_found_out(directory.path(), &contents, &what).await);
    }
    found_out
}

#[tokio::test]
async fn cut_at_many_lengths() {
    let mut random = Random::new(1);
    let times = 60;
    let found_out = changed(times, |time, bytes| {
        let length = match time {
            0..8 => [0, 1, 63, 64, 319, 320, 4_095, 4_096][time],
            8 => bytes.len() - 1,
            9 => bytes.len() - 4_096,
            _ => random.below(bytes.len()),
        };
        bytes.truncate(length);
        format!("cut to {length}")
    });
    assert_eq!(found_out.await, times, "none of them is whole");
}

#[tokio::test]
async fn random_bits() {
    let mut random = Random::new(2);
    let found_out = changed(250, |time, bytes| {
        // The header and the first pages more often than the rest.
        let end = if time % 2 == 0 { 8_192 } else { bytes.len() };
        let (at, bit) = (random.below(end), random.below(8));
        bytes[at] ^= 1 << bit;
        format!("bit {bit} of byte {at}")
    });
    let found_out = found_out.await;
    // A bit in a page that is free does no harm.
    assert!(found_out > 20, "{found_out}");
}

#[tokio::test]
async fn pages_of_something_else() {
    let mut random = Random::new(3);
    changed(60, |_, bytes| {
        let at = random.below(bytes.len() / 4_096) * 4_096;
        let byte = [0, 0xff, random.below(256) as u8][random.below(3)];
        bytes[at..at + 4_096].fill(byte);
        format!("page at {at} filled with {byte}")
    })
    .await;
}

#[tokio::test]
async fn other_files() {
    let mut others: Vec<Vec<u8>> = vec![
        b"SQLite format 3\0".repeat(1_000),
        b"text".to_vec(),
        vec![0; 100_000],
        vec![0xff; 100_000],
        fs::read(std::env::current_exe().unwrap()).unwrap()[..1 << 20].to_vec(),
    ];
    // A database of redb's, and not of an inbox.
    let other = tempfile::NamedTempFile::new().unwrap();
    let database = redb::Database::create(other.path()).unwrap();
    let write = database.begin_write().unwrap();
    let table = redb::TableDefinition::<&str, &str>::new("recipes");
    write
        .open_table(table)
        .unwrap()
        .insert("bread", "flour")
        .unwrap();
    write.commit().unwrap();
    drop(database);
    others.push(fs::read(other.path()).unwrap());
    let times = others.len();
    let found_out = changed(times, |time, bytes| {
        *bytes = others[time].clone();
        format!("another file {time}")
    });
    assert_eq!(found_out.await, times);
}

#[tokio::test]
async fn the_file_of_starts() {
    let directory = tempfile::tempdir().unwrap();
    let contents = fill(directory.path()).await;
    let starts = directory.path().join("starts");
    fs::write(&starts, "something else").unwrap();
    let error = open(directory.path()).await.unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains("starts"), "{error}");
    // Any bytes behind the right beginning are read, and what is no mark is none.
    let mut random = Random::new(4);
    for length in [8, 100, 4_096, 4_100, 9_999] {
        let bytes = (0..length).map(|_| random.below(256) as u8);
        let bytes = b"klstart1".iter().copied().chain(bytes).collect::<Vec<_>>();
        fs::write(&starts, bytes).unwrap();
        assert!(!is_found_out(directory.path(), &contents, "starts").await);
    }
}

#[tokio::test]
async fn the_marker() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path()).await;
    let marker = directory.path().join("keylane-inbox");
    for text in [
        "",
        "keylane-inbox",
        "keylane-inbox 0",
        "keylane-inbox -1",
        "hello",
        "\u{ff}",
    ] {
        fs::write(&marker, text).unwrap();
        let error = open(directory.path()).await.unwrap_err();
        assert!(
            matches!(error, OpenError::Damaged { .. }),
            "{text:?}: {error:?}"
        );
    }
    fs::write(&marker, vec![b'x'; 1 << 20]).unwrap();
    assert!(open(directory.path()).await.is_err());
}

/// Without the check when it is opened, records still are what was written, or an error.
#[tokio::test]
async fn bits_that_are_found_when_they_are_read() {
    let whole = tempfile::tempdir().unwrap();
    let store = open(whole.path()).await.unwrap();
    let messages = (0..50).map(|_| NewMessage::new("key", b"payload".repeat(30)));
    store.accept(messages.collect()).await.unwrap();
    store.close().await.unwrap();
    let bytes = fs::read(whole.path().join("messages.redb")).unwrap();
    let at = bytes
        .windows(7)
        .position(|window| window == b"payload")
        .unwrap();
    let mut changed = bytes.clone();
    changed[at] = b'P';
    fs::write(whole.path().join("messages.redb"), changed).unwrap();
    let mut settings = Settings::default();
    settings.check_on_open = false;
    let store = EmbeddedStore::open(whole.path(), settings).await.unwrap();
    let error = store.scan(0, usize::MAX, usize::MAX).await.unwrap_err();
    assert!(
        error.to_string().contains("checksum of the record"),
        "{error}"
    );
}
