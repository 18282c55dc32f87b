//! The inbox as the version store of a dispatcher.

use async_trait::async_trait;
use keylane_source::{BoxError, VersionStore};

use crate::inbox::Inbox;

/// Keeps the last handled version of each key beside the messages. It is durable when `record`
/// returns, and takes one row for each key that ever had a version.
///
/// A version below the last recorded one changes nothing.
#[async_trait]
impl<K: AsRef<[u8]> + Send + Sync> VersionStore<K> for Inbox {
    async fn last(&self, key: &K) -> Result<Option<u64>, BoxError> {
        Ok(self.store().version(key.as_ref()).await?)
    }

    async fn record(&self, key: &K, version: u64) -> Result<(), BoxError> {
        Ok(self.store().record_version(key.as_ref(), version).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_recorded_is_the_last() {
        let directory = tempfile::tempdir().unwrap();
        let inbox = Inbox::open(directory.path()).await.unwrap();
        let key = String::from("user-7");
        assert_eq!(inbox.last(&key).await.unwrap(), None);
        inbox.record(&key, 3).await.unwrap();
        inbox.record(&key, 2).await.unwrap();
        assert_eq!(inbox.last(&key).await.unwrap(), Some(3));
        assert_eq!(inbox.last(&b"user-8".to_vec()).await.unwrap(), None);
    }
}
