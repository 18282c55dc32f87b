//! The letters in a topic of Kafka.

use std::time::Duration;

use keylane::async_trait;
use keylane::error::BoxError;
use keylane_kafka::{KafkaLetter, KafkaLetters, LetterId};

use super::id::{id, ids};
use super::raw::message;
use super::store::{LetterStore, StoredLetter};

#[async_trait]
impl LetterStore for KafkaLetters {
    async fn list(&self, after: Option<&str>, most: usize) -> Result<Vec<StoredLetter>, BoxError> {
        let after = after.map(id).transpose()?;
        let letters = Self::list(self, after, most).await?;
        Ok(letters.into_iter().map(of_topic).collect())
    }

    async fn show(&self, one: &str) -> Result<Option<StoredLetter>, BoxError> {
        Ok(Self::show(self, id(one)?).await?.map(of_topic))
    }

    async fn redrive(&self, these: &[String]) -> Result<u64, BoxError> {
        Ok(Self::redrive(self, &ids::<LetterId>(these)?).await?)
    }

    async fn purge(&self, these: &[String]) -> Result<u64, BoxError> {
        Ok(Self::purge(self, &ids::<LetterId>(these)?).await?)
    }
}

fn of_topic(letter: KafkaLetter) -> StoredLetter {
    StoredLetter {
        id: letter.id.to_string(),
        attempts: letter.attempts,
        cause: letter.cause,
        error: letter.error,
        // The last moment of its millisecond: a job takes no letter that is newer than itself.
        at: letter.at.map(|at| at + Duration::from_nanos(999_999)),
        ..message(letter.message)
    }
}
