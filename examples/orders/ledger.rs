//! What the orders have brought about: a log of effects, in which each payment is made once.
//!
//! It stands for the database of a real shop. What matters is that *one* write holds both the effect and
//! the record that it was made: an order that comes again finds its own line, and makes no second payment.
//! A line counts when it is synced, and only then is the order done. So nothing is lost between the two
//! files: if the process dies after the line and before the inbox knows, the order comes again, and its
//! payment does not.
//!
//! The lines that say that an attempt has started, or that the bank declined, are there for the judge of
//! the demo. They may repeat.
//!
//! All ids are kept in memory, and the file only grows. A database would have a unique index.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::order::Order;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Record<'a> {
    /// A process has opened the ledger: what comes from here on is its doing.
    Opened { at_us: u64 },
    /// An attempt has started.
    Started {
        #[serde(borrow)]
        id: Cow<'a, str>,
        attempt: u32,
    },
    /// The bank has declined.
    Declined {
        #[serde(borrow)]
        id: Cow<'a, str>,
    },
    /// The effect: it is there once for each id.
    Paid {
        #[serde(borrow)]
        id: Cow<'a, str>,
        #[serde(borrow)]
        user: Cow<'a, str>,
        /// The how-manyeth payment of this user it is.
        number: u64,
        cents: u64,
        at_us: u64,
    },
    /// An order has come again whose payment was made.
    Again {
        #[serde(borrow)]
        id: Cow<'a, str>,
    },
}

/// Why the ledger cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerError {
    #[error("the ledger {} cannot be used", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("line {line} of the ledger {} is no record: restore it from a backup", path.display())]
    Damaged {
        path: PathBuf,
        line: u64,
        source: serde_json::Error,
    },
    #[error("the id of this order is that of an order of another user")]
    ForeignId,
}

/// A payment that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Payment {
    pub(crate) user: Arc<str>,
    pub(crate) cents: u64,
    pub(crate) number: u64,
}

/// The log, and what is known from it. Clones are the same ledger.
#[derive(Debug, Clone)]
pub(crate) struct Ledger(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    book: Mutex<Book>,
    /// A second handle of the same file, for syncs beside writes.
    file: Arc<File>,
    /// Its holder syncs for all that have written by then.
    syncing: tokio::sync::Mutex<()>,
    /// Bytes of the file that are synced. Stored with release after the sync; partner: the acquire load in
    /// `Ledger::synced`, which then says so to its caller.
    synced: AtomicU64,
}

#[derive(Debug)]
struct Book {
    file: File,
    length: u64,
    payments: HashMap<Arc<str>, Payment>,
    /// How often the bank has declined an order.
    declines: HashMap<String, u32>,
    /// The number of each user's last payment.
    last: HashMap<Arc<str>, u64>,
}

impl Ledger {
    /// Opens the ledger, or begins one, and reads all of it. A line that a death has cut is removed: it
    /// was never synced, and no answer has spoken of it.
    pub(crate) fn open(path: impl Into<PathBuf>) -> Result<Self, LedgerError> {
        let path = path.into();
        let failed = |source| LedgerError::Io {
            path: path.clone(),
            source,
        };
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map_err(failed)?;
        let mut book = Book {
            file,
            length: 0,
            payments: HashMap::new(),
            declines: HashMap::new(),
            last: HashMap::new(),
        };
        book.length = read(&path, |record| book.learn(&record))?;
        book.file.set_len(book.length).map_err(failed)?;
        book.append(&Record::Opened { at_us: now_us() })
            .map_err(failed)?;
        // Also what was there before: it may be in the page cache of a machine that goes on.
        book.file.sync_all().map_err(failed)?;
        let file = Arc::new(book.file.try_clone().map_err(failed)?);
        let synced = AtomicU64::new(book.length);
        Ok(Self(Arc::new(Shared {
            path,
            book: Mutex::new(book),
            file,
            syncing: tokio::sync::Mutex::new(()),
            synced,
        })))
    }

    /// An attempt starts.
    pub(crate) fn started(&self, order: &Order, attempt: u32) -> Result<(), LedgerError> {
        let id = Cow::Borrowed(&*order.id);
        self.append(&Record::Started { id, attempt })
    }

    /// The bank has declined.
    pub(crate) fn declined(&self, order: &Order) -> Result<(), LedgerError> {
        let id = Cow::Borrowed(&*order.id);
        self.append(&Record::Declined { id })
    }

    /// How often the bank has declined this order.
    pub(crate) fn declines(&self, order: &Order) -> u32 {
        let book = self.book();
        book.declines.get(&order.id).copied().unwrap_or_default()
    }

    /// The payment of the order with this id, if it was made.
    pub(crate) fn payment(&self, id: &str) -> Option<Payment> {
        self.book().payments.get(id).cloned()
    }

    /// Makes the payment of an order, unless it was made. Answers the number that it has among those of its
    /// user. It is durable when this returns.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the payment may be made. Made again, it is made once.
    pub(crate) async fn pay(&self, order: &Order) -> Result<u64, LedgerError> {
        let (number, length) = {
            let mut book = self.book();
            let number = book.pay(order).map_err(|error| match error {
                Refused::Foreign => LedgerError::ForeignId,
                Refused::Io(source) => self.failed(source),
            })?;
            (number, book.length)
        };
        self.synced(length).await?;
        Ok(number)
    }

    /// Waits until so many bytes of the file are synced. One sync is for all that wait.
    async fn synced(&self, length: u64) -> Result<(), LedgerError> {
        let shared = &self.0;
        let _syncing = shared.syncing.lock().await;
        if shared.synced.load(Ordering::Acquire) >= length {
            return Ok(());
        }
        let length = self.book().length;
        let file = Arc::clone(&shared.file);
        let synced = spawn_blocking(move || file.sync_data()).await;
        let synced = synced.unwrap_or_else(|ended| Err(io::Error::other(ended)));
        synced.map_err(|source| self.failed(source))?;
        shared.synced.store(length, Ordering::Release);
        Ok(())
    }

    fn append(&self, record: &Record<'_>) -> Result<(), LedgerError> {
        let mut book = self.book();
        book.append(record).map_err(|source| self.failed(source))?;
        book.learn(record);
        Ok(())
    }

    fn failed(&self, source: io::Error) -> LedgerError {
        let path = self.0.path.clone();
        LedgerError::Io { path, source }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Refused {
    Foreign,
    Io(io::Error),
}

impl Book {
    fn pay(&mut self, order: &Order) -> Result<u64, Refused> {
        let id = Cow::Borrowed(&*order.id);
        if let Some(payment) = self.payments.get(&*order.id) {
            if *payment.user != *order.user {
                return Err(Refused::Foreign);
            }
            let number = payment.number;
            self.append(&Record::Again { id }).map_err(Refused::Io)?;
            return Ok(number);
        }
        let number = self.last.get(&*order.user).map_or(1, |last| last + 1);
        let record = Record::Paid {
            id,
            user: Cow::Borrowed(&order.user),
            number,
            cents: order.cents,
            at_us: now_us(),
        };
        self.append(&record).map_err(Refused::Io)?;
        self.learn(&record);
        Ok(number)
    }

    /// Writes a whole line, or nothing: what follows half a line would be lost with it.
    fn append(&mut self, record: &Record<'_>) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        if let Err(error) = self.file.write_all(&line) {
            self.file.set_len(self.length)?;
            return Err(error);
        }
        self.length += line.len() as u64;
        Ok(())
    }

    fn learn(&mut self, record: &Record<'_>) {
        match record {
            Record::Declined { id } => *self.declines.entry(id.to_string()).or_default() += 1,
            Record::Paid {
                id,
                user,
                number,
                cents,
                ..
            } => {
                let user = match self.last.get_key_value(&**user) {
                    Some((user, _)) => Arc::clone(user),
                    None => Arc::from(&**user),
                };
                self.last.insert(Arc::clone(&user), *number);
                let payment = Payment {
                    user,
                    cents: *cents,
                    number: *number,
                };
                self.payments.insert(Arc::from(&**id), payment);
                self.declines.remove(&**id);
            }
            Record::Opened { .. } | Record::Started { .. } | Record::Again { .. } => {}
        }
    }
}

/// Shows every whole line of a ledger, and answers how many bytes they are.
pub(crate) fn read(path: &Path, mut each: impl FnMut(Record<'_>)) -> Result<u64, LedgerError> {
    let failed = |source| LedgerError::Io {
        path: path.to_owned(),
        source,
    };
    let mut lines = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?);
    let (mut number, mut length, mut line) = (0, 0, Vec::new());
    loop {
        line.clear();
        let bytes = lines.read_until(b'\n', &mut line).map_err(failed)?;
        if bytes == 0 || !line.ends_with(b"\n") {
            return Ok(length);
        }
        number += 1;
        length += bytes as u64;
        let record = serde_json::from_slice(&line);
        each(record.map_err(|source| LedgerError::Damaged {
            path: path.to_owned(),
            line: number,
            source,
        })?);
    }
}

/// Microseconds of the wall clock.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(id: &str, user: &str) -> Order {
        Order {
            id: id.to_owned(),
            user: user.to_owned(),
            cents: 100,
            takes_ms: 0,
            declined: 1,
        }
    }

    fn records(path: &Path) -> Vec<String> {
        let mut records = Vec::new();
        read(path, |record| match record {
            Record::Opened { .. } => records.push("opened".to_owned()),
            Record::Started { id, attempt } => records.push(format!("started {id} {attempt}")),
            Record::Declined { id } => records.push(format!("declined {id}")),
            Record::Paid { id, number, .. } => records.push(format!("paid {id} {number}")),
            Record::Again { id } => records.push(format!("again {id}")),
        })
        .unwrap();
        records
    }

    #[tokio::test]
    async fn a_payment_is_made_once_however_often_its_order_comes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("effects.log");
        let ledger = Ledger::open(&path).unwrap();
        ledger.started(&order("a", "ann"), 1).unwrap();
        ledger.declined(&order("a", "ann")).unwrap();
        assert_eq!(ledger.declines(&order("a", "ann")), 1);
        assert_eq!(ledger.pay(&order("a", "ann")).await.unwrap(), 1);
        assert_eq!(ledger.pay(&order("b", "ann")).await.unwrap(), 2);
        assert_eq!(ledger.pay(&order("c", "bob")).await.unwrap(), 1);
        assert_eq!(ledger.pay(&order("a", "ann")).await.unwrap(), 1);
        drop(ledger);

        let ledger = Ledger::open(&path).unwrap();
        assert_eq!(ledger.pay(&order("b", "ann")).await.unwrap(), 2);
        assert_eq!(ledger.pay(&order("d", "ann")).await.unwrap(), 3);
        assert_eq!(ledger.payment("c").unwrap().number, 1);
        let foreign = ledger.pay(&order("c", "ann")).await;
        assert!(matches!(foreign, Err(LedgerError::ForeignId)));
        let expected = "opened,started a 1,declined a,paid a 1,paid b 2,paid c 1,again a,\
                        opened,again b,paid d 3";
        assert_eq!(records(&path).join(","), expected);
    }

    #[tokio::test]
    async fn a_line_that_was_cut_is_as_if_it_had_not_been_begun() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("effects.log");
        let ledger = Ledger::open(&path).unwrap();
        ledger.pay(&order("a", "ann")).await.unwrap();
        drop(ledger);
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(br#"{"what":"paid","id":"b","us"#).unwrap();

        let ledger = Ledger::open(&path).unwrap();
        assert_eq!(ledger.payment("b"), None);
        assert_eq!(ledger.pay(&order("b", "ann")).await.unwrap(), 2);
        assert_eq!(records(&path).join(","), "opened,paid a 1,opened,paid b 2");
    }

    #[test]
    fn a_line_that_is_no_record_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("effects.log");
        std::fs::write(&path, "{\"what\":\"opened\",\"at_us\":1}\nnonsense\n").unwrap();
        let error = Ledger::open(&path).unwrap_err();
        assert!(matches!(error, LedgerError::Damaged { line: 2, .. }));
        assert!(error.to_string().contains("effects.log"), "{error}");
    }
}
