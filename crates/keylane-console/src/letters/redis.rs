//! The letters in a stream of Redis.

use keylane::error::BoxError;
use keylane::{Bytes, async_trait};
use keylane_redis::{EntryId, StreamLetter, StreamLetters};

use super::store::{LetterStore, StoredLetter};

/// The key and the payload are in the fields `key` and `payload`, as by default.
#[async_trait]
impl LetterStore for StreamLetters {
    async fn list(&self, after: Option<&str>, most: usize) -> Result<Vec<StoredLetter>, BoxError> {
        let after = after.map(str::parse).transpose()?;
        let letters = Self::list(self, after, most).await?;
        Ok(letters.iter().map(stored).collect())
    }

    async fn show(&self, id: &str) -> Result<Option<StoredLetter>, BoxError> {
        Ok(Self::show(self, id.parse()?).await?.as_ref().map(stored))
    }

    async fn redrive(&self, ids: &[String]) -> Result<u64, BoxError> {
        Ok(Self::redrive(self, &entries(ids)?).await?)
    }

    async fn purge(&self, ids: &[String]) -> Result<u64, BoxError> {
        Ok(Self::purge(self, &entries(ids)?).await?)
    }
}

fn entries(ids: &[String]) -> Result<Vec<EntryId>, BoxError> {
    ids.iter()
        .map(|id| id.parse().map_err(BoxError::from))
        .collect()
}

fn stored(letter: &StreamLetter) -> StoredLetter {
    let text = |name: &str| {
        let value = letter
            .field(name)
            .map(|value| String::from_utf8_lossy(value));
        value.unwrap_or_default().into_owned()
    };
    let original = letter.original();
    let headers = original.filter(|(name, _)| !matches!(&**name, b"key" | b"payload"));
    StoredLetter {
        id: letter.id.to_string(),
        key: letter.field("key").cloned(),
        payload: letter.field("payload").cloned().unwrap_or_default(),
        headers: headers.map(pair).collect(),
        attempts: text("keylane.attempts").parse().unwrap_or_default(),
        cause: text("keylane.cause"),
        error: text("keylane.error"),
        at: letter.id.time(),
    }
}

fn pair((name, value): &(Bytes, Bytes)) -> (String, Bytes) {
    (String::from_utf8_lossy(name).into_owned(), value.clone())
}
