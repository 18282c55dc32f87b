//! A handler whose versions are recorded in a store.

use std::future::Future;

use keylane_rt::Arc;
use keylane_source::VersionStore;

use crate::error::Failure;
use crate::handler::{Context, Handler};

/// Records the version of a message once its handler has succeeded, as part of the attempt.
pub(crate) struct Recorded<K, H> {
    pub(crate) handler: H,
    pub(crate) store: Arc<dyn VersionStore<K>>,
}

impl<K, M, H, A> Handler<K, M, A> for Recorded<K, H>
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
        // Of the message that was sent, whatever an operator has put in its place.
        let version = context.version();
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
