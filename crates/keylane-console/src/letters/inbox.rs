//! The letters of an inbox, on disk or in SQL.

use keylane::error::BoxError;
use keylane::{Bytes, async_trait};
use keylane_inbox::{Header, Letter, Letters};

use super::id::{id, ids};
use super::store::{LetterStore, StoredLetter};

#[async_trait]
impl LetterStore for Letters {
    async fn list(&self, after: Option<&str>, most: usize) -> Result<Vec<StoredLetter>, BoxError> {
        let after = after.map_or(Ok(0), id)?;
        let letters = Self::list(self, after, most).await?;
        Ok(letters.into_iter().map(stored).collect())
    }

    async fn show(&self, one: &str) -> Result<Option<StoredLetter>, BoxError> {
        Ok(Self::show(self, id(one)?).await?.map(stored))
    }

    async fn redrive(&self, these: &[String]) -> Result<u64, BoxError> {
        Ok(Self::redrive(self, ids::<u64>(these)?).await?.len() as u64)
    }

    async fn purge(&self, these: &[String]) -> Result<u64, BoxError> {
        Ok(Self::purge(self, ids::<u64>(these)?).await?.len() as u64)
    }
}

fn stored(letter: Letter) -> StoredLetter {
    let message = letter.message;
    StoredLetter {
        id: message.sequence.to_string(),
        key: Some(message.key),
        payload: message.payload,
        headers: message.headers.into_iter().map(pair).collect(),
        attempts: letter.attempts,
        cause: letter.kind.to_string(),
        error: letter.error,
        at: Some(letter.dead_lettered_at),
        accepted_at: Some(message.accepted_at),
        message_id: message.id.map(|id| Bytes::copy_from_slice(id.as_bytes())),
        version: message.version,
    }
}

fn pair(header: Header) -> (String, Bytes) {
    (header.name, header.value)
}
