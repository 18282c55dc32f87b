//! A service as the handler of a dispatcher.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};

use keylane::{Context, Handler};
use tower_service::Service;

/// Lets a [`Dispatcher`](keylane::Dispatcher) handle its messages with a service, and so with a stack of
/// tower's middleware.
///
/// For each attempt a clone of the service is made ready and called. While it is not ready the attempt
/// is in flight: it uses one of the dispatcher's `concurrency`, and once all of that is used, messages
/// wait in their lanes, and then senders wait. So `poll_ready` is felt by those who send.
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
    /// Only to clone it: a service need not be `Sync`.
    service: Mutex<S>,
}

/// A message with the context of its attempt, for services that want both.
#[derive(Clone, Debug)]
pub struct Delivery<K, M> {
    /// The key, the number of the attempt, its deadline.
    pub context: Context<K>,
    /// What was sent.
    pub message: M,
}

/// The same as [`ServiceHandler`] for a service whose requests are [`Delivery`]s.
pub struct ContextHandler<S>(ServiceHandler<S>);

impl<S> ServiceHandler<S> {
    /// A handler of this service's requests.
    pub fn new(service: S) -> Self {
        Self {
            service: Mutex::new(service),
        }
    }

    /// For a service that wants to know the key, or which attempt it is.
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
