//! A handler whose versions are recorded in a store.

use std::future::Future;

use super::sequence::Version;
use super::versions::VersionStore;
use crate::error::Failure;
use crate::handler::{Context, Handler};
use crate::rt::Arc;

/// Records the version of a message once its handler has succeeded, as part of the attempt.
pub(crate) struct Recorded<K, M, H> {
    pub(crate) handler: H,
    pub(crate) version: Arc<Version<M>>,
    pub(crate) store: Arc<dyn VersionStore<K>>,
}

impl<K, M, H, A> Handler<K, M, A> for Recorded<K, M, H>
where
    K: Send + Sync + 'static,
    M: Send + Sync + 'static,
    H: Handler<K, M, A>,
    A: 'static,
{
    type Output = H::Output;
    type Error = Failure<H::Error>;

    fn handle(
        &self,
        context: &Context<K>,
        message: M,
    ) -> impl Future<Output = Result<H::Output, Self::Error>> + Send {
        let version = (self.version)(&message);
        async move {
            let answer = self.handler.handle(context, message).await?;
            if let Some(key) = context.key() {
                let recorded = self.store.record(key, version).await;
                recorded.map_err(|error| Failure::NotRecorded(error.to_string()))?;
            }
            Ok(answer)
        }
    }
}
