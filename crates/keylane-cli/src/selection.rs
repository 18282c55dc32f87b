//! Selects the letters of a command.

use std::time::{Duration, SystemTime};

use keylane_inbox::{InboxStore, Letter, StoredMessage};

use crate::failure::Failure;
use crate::text::Bytes;

/// How many are read, or changed, at once.
pub(crate) const PAGE: usize = 500;
/// How many bytes are read at once.
pub(crate) const PAGE_BYTES: usize = 16 << 20;

pub(crate) enum Selection {
    These(Vec<u64>),
    All,
    OfKey(Bytes),
    OlderThan(Duration),
}

impl Selection {
    /// Returns their sequences.
    pub(crate) async fn find(self, store: &dyn InboxStore) -> Result<Vec<u64>, Failure> {
        match self {
            Self::These(sequences) => Ok(sequences),
            Self::All => find(store, |_| true).await,
            Self::OfKey(Bytes(key)) => {
                let found = find(store, |letter| letter.message.key == key).await?;
                match found.is_empty() {
                    // The key may be misspelt.
                    true => Err(Failure::Other(
                        "there are no dead letters with this key".to_owned(),
                    )),
                    false => Ok(found),
                }
            }
            Self::OlderThan(time) => {
                let until = SystemTime::now().checked_sub(time);
                let until = until.unwrap_or(SystemTime::UNIX_EPOCH);
                find(store, |letter| letter.dead_lettered_at < until).await
            }
        }
    }
}

async fn find(
    store: &dyn InboxStore,
    is_wanted: impl Fn(&Letter) -> bool,
) -> Result<Vec<u64>, Failure> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let page = store.letters(after, PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(found);
        };
        after = last.message.sequence;
        let page = page.iter().filter(|letter| is_wanted(letter));
        found.extend(page.map(|letter| letter.message.sequence));
    }
}

/// Returns the waiting messages above a sequence, page by page; `None` after the last.
pub(crate) async fn waiting_after(
    store: &dyn InboxStore,
    after: u64,
) -> Result<Option<Vec<StoredMessage>>, Failure> {
    let Some(from) = after.checked_add(1) else {
        return Ok(None);
    };
    let page = store.scan(from, PAGE, PAGE_BYTES).await?;
    Ok(Some(page).filter(|page| !page.is_empty()))
}
