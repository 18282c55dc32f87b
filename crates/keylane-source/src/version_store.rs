//! The store of the versions of keys.

use std::sync::Arc;

use async_trait::async_trait;

use crate::BoxError;

/// Keeps the last handled version of each key outside the process: a table, a file.
///
/// # Examples
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use keylane::error::BoxError;
/// use keylane::source::VersionStore;
///
/// /// Stands for a table with a row for each key.
/// #[derive(Default)]
/// struct Table(Mutex<HashMap<u64, u64>>);
///
/// #[keylane::async_trait]
/// impl VersionStore<u64> for Table {
///     async fn last(&self, account: &u64) -> Result<Option<u64>, BoxError> {
///         let rows = self.0.lock().map_err(|_| "the table is broken")?;
///         Ok(rows.get(account).copied())
///     }
///
///     async fn record(&self, account: &u64, version: u64) -> Result<(), BoxError> {
///         let mut rows = self.0.lock().map_err(|_| "the table is broken")?;
///         rows.insert(*account, version);
///         Ok(())
///     }
/// }
/// ```
///
/// # Cancel safety
///
/// `abort`, a deadline that passes and the time-out of an attempt drop the futures of both methods.
/// A version that was recorded, and not confirmed, is handled once more.
#[async_trait]
pub trait VersionStore<K>: Send + Sync {
    /// Returns the last version that was recorded for this key. After an error it is called again,
    /// with growing waits; meanwhile only this key waits.
    async fn last(&self, key: &K) -> Result<Option<u64>, BoxError>;

    /// Records a version; it must be durable when this returns. Versions of one key come in order,
    /// one at a time.
    async fn record(&self, key: &K, version: u64) -> Result<(), BoxError>;
}

#[async_trait]
impl<K, T> VersionStore<K> for Arc<T>
where
    K: Send + Sync,
    T: VersionStore<K> + ?Sized,
{
    async fn last(&self, key: &K) -> Result<Option<u64>, BoxError> {
        (**self).last(key).await
    }

    async fn record(&self, key: &K, version: u64) -> Result<(), BoxError> {
        (**self).record(key, version).await
    }
}
