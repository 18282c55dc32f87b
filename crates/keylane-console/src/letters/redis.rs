//! The letters of a list or a stream of Redis.

use std::time::Duration;

use keylane::async_trait;
use keylane::error::BoxError;
use keylane_redis::{EntryId, ListLetter, ListLetters, StreamLetter, StreamLetters};

use super::id::{id, ids};
use super::raw::message;
use super::store::{LetterStore, StoredLetter};

#[async_trait]
impl LetterStore for StreamLetters {
    async fn list(&self, after: Option<&str>, most: usize) -> Result<Vec<StoredLetter>, BoxError> {
        let after = after.map(id).transpose()?;
        let letters = Self::list(self, after, most).await?;
        Ok(letters.into_iter().map(of_stream).collect())
    }

    async fn show(&self, one: &str) -> Result<Option<StoredLetter>, BoxError> {
        Ok(Self::show(self, id(one)?).await?.map(of_stream))
    }

    async fn redrive(&self, these: &[String]) -> Result<u64, BoxError> {
        Ok(Self::redrive(self, &ids::<EntryId>(these)?).await?)
    }

    async fn purge(&self, these: &[String]) -> Result<u64, BoxError> {
        Ok(Self::purge(self, &ids::<EntryId>(these)?).await?)
    }
}

#[async_trait]
impl LetterStore for ListLetters {
    async fn list(&self, after: Option<&str>, most: usize) -> Result<Vec<StoredLetter>, BoxError> {
        let after = after.map(id).transpose()?;
        let letters = Self::list(self, after, most).await?;
        Ok(letters.into_iter().map(of_list).collect())
    }

    async fn show(&self, one: &str) -> Result<Option<StoredLetter>, BoxError> {
        Ok(Self::show(self, id(one)?).await?.map(of_list))
    }

    async fn redrive(&self, these: &[String]) -> Result<u64, BoxError> {
        Ok(Self::redrive(self, &ids::<u64>(these)?).await?)
    }

    async fn purge(&self, these: &[String]) -> Result<u64, BoxError> {
        Ok(Self::purge(self, &ids::<u64>(these)?).await?)
    }
}

fn of_stream(letter: StreamLetter) -> StoredLetter {
    StoredLetter {
        id: letter.id.to_string(),
        attempts: letter.attempts,
        cause: letter.cause,
        error: letter.error,
        // The last moment of its millisecond: a job takes no letter that is newer than itself.
        at: letter
            .id
            .time()
            .map(|at| at + Duration::from_nanos(999_999)),
        ..message(letter.message)
    }
}

fn of_list(letter: ListLetter) -> StoredLetter {
    StoredLetter {
        id: letter.number.to_string(),
        at: letter.time(),
        attempts: letter.attempts,
        cause: letter.cause,
        error: letter.error,
        ..message(letter.message)
    }
}
