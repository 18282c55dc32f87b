//! The dead letters of a list, one by one: read, redriven, purged.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylane_source::RawMessage;
use redis::Cmd;

use super::queue::{List, ListQueue};
use super::record::decode_letter;
use super::script::{PAGE, REMOVE, run};
use crate::error::RedisError;
use crate::link::Link;

/// How many letters a step moves or removes: the server does nothing else meanwhile.
const STEP: usize = 100;

/// The dead letters of a [`ListQueue`], for an operator who chooses among them.
/// [`ListQueue::letters`] and [`ListQueue::redrive`] are for the oldest ones. Cheap to clone.
///
/// Each letter has a number, which is higher than those of all letters before it. It is in the
/// header `keylane.letter` of the letter. Elements that another program puts into the list of the
/// letters have none, and are not here.
///
/// A redriven letter goes to the end of the list, as it was when it was pushed. It is added there
/// and removed from the letters in one step, so a crash, a lost answer, or another operator at the
/// same time neither lose it nor add it twice.
///
/// # Examples
///
/// ```no_run
/// use keylane_redis::{ListLetters, ListQueue, Redis};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = ListQueue::builder(&Redis::at("redis://localhost")?, "orders").build()?;
/// let letters = ListLetters::new(&queue);
/// for letter in letters.list(None, 100).await? {
///     println!("{}: {:?}: {}", letter.number, letter.message.key, letter.error);
///     if letter.cause == "timed out" {
///         letters.redrive(&[letter.number]).await?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ListLetters {
    list: Arc<List>,
}

/// A dead letter of a list.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListLetter {
    /// Its number: higher than those of all letters before it.
    pub number: u64,
    /// The original message.
    pub message: RawMessage,
    /// How many attempts its handler had.
    pub attempts: u32,
    /// Why it was given up: `failed`, `panicked`, `timed out`, `undecodable`, `skipped`, …
    pub cause: String,
    /// The text of the error, 2,000 characters at most.
    pub error: String,
}

impl ListLetter {
    /// Returns when it became a letter, by the clock of the server. If that clock was set back, it
    /// is later, by as much at most. `None` for a time that the system does not have.
    pub fn time(&self) -> Option<SystemTime> {
        // A token is the time in microseconds, or one more than the token before it.
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(self.number))
    }

    fn decode(letter: Bytes) -> Option<Self> {
        let (mut message, headers) = decode_letter(letter)?;
        message.attempt = 1;
        let number = text(&headers, "keylane.letter").parse().ok()?;
        Some(Self {
            number,
            message,
            attempts: text(&headers, "keylane.attempts")
                .parse()
                .unwrap_or_default(),
            cause: text(&headers, "keylane.cause"),
            error: text(&headers, "keylane.error"),
        })
    }
}

fn text(headers: &[(String, Option<Bytes>)], name: &str) -> String {
    let header = headers.iter().find(|(of, _)| of == name);
    let value = header.and_then(|(_, value)| value.as_deref());
    String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
}

impl ListLetters {
    /// Returns the letters of this queue. They share its connection.
    pub fn new(queue: &ListQueue) -> Self {
        Self {
            list: Arc::clone(&queue.list),
        }
    }

    /// Returns at most `most` letters behind the one with the number `after`, or the oldest ones,
    /// in the order in which they became letters. They are read as a whole, so `most` also bounds
    /// the memory that this takes.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`].
    ///
    /// # Cancel safety
    ///
    /// This changes nothing in the server.
    pub async fn list(
        &self,
        after: Option<u64>,
        most: usize,
    ) -> Result<Vec<ListLetter>, RedisError> {
        let list = &self.list;
        let mut all: Vec<ListLetter> = Vec::new();
        while all.len() < most {
            let after = all.last().map(|letter| letter.number).or(after);
            let after = after.map(|number| number.to_string()).unwrap_or_default();
            let arguments = |command: &mut Cmd| {
                command.arg(&after).arg(most - all.len());
                command.arg(list.settings.most_bytes);
            };
            let read = async |link: Link| run(&PAGE, &link, list.keys.all(), &arguments).await;
            let page: Vec<Vec<u8>> = list.link.repeat(read).await?;
            let page = page.into_iter();
            let page = Vec::from_iter(page.filter_map(|one| ListLetter::decode(one.into())));
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        Ok(all)
    }

    /// Returns the letter with this number; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`].
    ///
    /// # Cancel safety
    ///
    /// This changes nothing in the server.
    pub async fn show(&self, number: u64) -> Result<Option<ListLetter>, RedisError> {
        let mut next = self.list(Some(number.saturating_sub(1)), 1).await?;
        Ok(next.pop().filter(|letter| letter.number == number))
    }

    /// Moves letters to the end of the list, in this order and as they were. Returns how many of
    /// them were letters. If the connection breaks, this goes on with a new one, and the number may
    /// be too low by up to 100.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`]: some of the letters may be redriven.
    ///
    /// # Cancel safety
    ///
    /// The letters move in steps of up to 100: each step is done as a whole or not at all.
    pub async fn redrive(&self, numbers: &[u64]) -> Result<u64, RedisError> {
        self.remove(true, numbers).await
    }

    /// Removes letters for ever. Returns how many of them were letters, with the limit that
    /// [`redrive`](Self::redrive) describes.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`]: some of the letters may be gone.
    ///
    /// # Cancel safety
    ///
    /// As [`redrive`](Self::redrive).
    pub async fn purge(&self, numbers: &[u64]) -> Result<u64, RedisError> {
        self.remove(false, numbers).await
    }

    async fn remove(&self, is_redrive: bool, numbers: &[u64]) -> Result<u64, RedisError> {
        let list = &self.list;
        let mut all = 0;
        for numbers in numbers.chunks(STEP) {
            let arguments = |command: &mut Cmd| {
                command.arg(u8::from(is_redrive)).arg(numbers);
            };
            // A letter that is gone is not moved again.
            let step = async |link: Link| run(&REMOVE, &link, list.keys.all(), arguments).await;
            let removed: u64 = list.link.repeat(step).await?;
            all += removed;
        }
        Ok(all)
    }
}

impl fmt::Debug for ListLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ListLetters").field(&self.list).finish()
    }
}
