//! A service as the handler of a dispatcher.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};

use keylane::{Context, Handler};
use tower_service::Service;

/// A service as the handler of a [`Dispatcher`](keylane::Dispatcher), so that tower's middleware
/// applies to messages.
///
/// For each attempt, a clone of the service is made ready and called. While it is not ready, the
/// attempt is in flight and uses one of the dispatcher's `concurrency`. When all of that is used,
/// messages wait in their lanes, and at the capacity senders wait. So a service that is not ready
/// exerts backpressure on senders.
///
/// # Examples
///
/// ```
/// use keylane::Dispatcher;
/// use keylane_tower::ServiceHandler;
/// use tower::{ServiceBuilder, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let stack = ServiceBuilder::new()
///     .concurrency_limit(16)
///     .timeout(std::time::Duration::from_secs(5))
///     .service(service_fn(|user: u64| async move { Ok::<_, std::io::Error>(user + 1) }));
///
/// let users = Dispatcher::builder(|user: &u64| *user).spawn(ServiceHandler::new(stack))?;
/// assert_eq!(users.submit(7).await?.await?, 8);
/// # Ok(())
/// # }
/// ```
pub struct ServiceHandler<S> {
    /// Locked only to clone the service, which need not be `Sync`.
    service: Mutex<S>,
}

/// A message with the context of its attempt: the request of a [`ContextHandler`]'s service.
#[derive(Clone, Debug)]
pub struct Delivery<K, M> {
    /// The key, the number of the attempt, its deadline.
    pub context: Context<K>,
    /// The message.
    pub message: M,
}

/// A [`ServiceHandler`] whose service gets [`Delivery`]s.
pub struct ContextHandler<S>(ServiceHandler<S>);

impl<S> ServiceHandler<S> {
    /// Returns a handler that calls this service.
    pub fn new(service: S) -> Self {
        Self {
            service: Mutex::new(service),
        }
    }

    /// Passes the service a [`Delivery`] with the key, the attempt and the deadline, instead of the
    /// message alone.
    pub fn with_context(self) -> ContextHandler<S> {
        ContextHandler(self)
    }

    async fn call<R>(&self, request: R) -> Result<S::Response, S::Error>
    where
        S: Service<R> + Clone,
    {
        let mut service = {
            let service = self.service.lock();
            service.unwrap_or_else(PoisonError::into_inner).clone()
        };
        poll_fn(|cx| service.poll_ready(cx)).await?;
        service.call(request).await
    }
}

impl<K, M, S> Handler<K, M> for ServiceHandler<S>
where
    K: Send + Sync,
    M: Send,
    S: Service<M> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send + 'static,
    S::Error: fmt::Debug + Send + Sync + 'static,
{
    type Output = S::Response;
    type Error = S::Error;

    async fn handle(&self, _: &Context<K>, message: M) -> Result<S::Response, S::Error> {
        self.call(message).await
    }
}

impl<K, M, S> Handler<K, M> for ContextHandler<S>
where
    K: Clone + Send + Sync,
    M: Send,
    S: Service<Delivery<K, M>> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send + 'static,
    S::Error: fmt::Debug + Send + Sync + 'static,
{
    type Output = S::Response;
    type Error = S::Error;

    async fn handle(&self, context: &Context<K>, message: M) -> Result<S::Response, S::Error> {
        let context = context.clone();
        self.0.call(Delivery { context, message }).await
    }
}

impl<S> fmt::Debug for ServiceHandler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceHandler").finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for ContextHandler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextHandler").finish_non_exhaustive()
    }
}
