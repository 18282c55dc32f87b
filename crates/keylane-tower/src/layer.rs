//! The layer.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use keylane_semaphore::KeyedSemaphore;
use tower_layer::Layer;

use crate::on_drop::{Cancel, Finish};
use crate::service::KeyedService;

/// A layer that calls the inner service with one request per key at a time, in the order of the
/// `call`s. Requests of different keys run concurrently.
///
/// All services that one layer makes, and all its clones, share a [`KeyedSemaphore`]: order holds
/// per key across the routes of a router and the connections of a server. Two layers share nothing,
/// unless they are given the same semaphore.
///
/// # Examples
///
/// ```
/// use keylane_tower::{KeyedLayer, KeyedSemaphore};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// struct Order { user: u64, item: &'static str }
///
/// let semaphore = KeyedSemaphore::builder().concurrency(512).lane_capacity(32).build()?;
/// let mut shop = ServiceBuilder::new()
///     .layer(KeyedLayer::with_semaphore(semaphore, |order: &Order| Some(order.user)))
///     .service(service_fn(|order: Order| async move {
///         Ok::<_, std::io::Error>(format!("{} for {}", order.item, order.user))
///     }));
///
/// let response = shop.ready().await?.call(Order { user: 7, item: "tea" }).await?;
/// assert_eq!(response, "tea for 7");
/// # Ok(())
/// # }
/// ```
pub struct KeyedLayer<F, K, D = Cancel> {
    key: F,
    semaphore: KeyedSemaphore<K>,
    on_drop: PhantomData<fn() -> D>,
}

impl<F, K> KeyedLayer<F, K> {
    /// Returns a layer with the default limits: 1,024 requests that run, 65,536 that wait or run,
    /// and a quarter of that per key.
    ///
    /// Requests for which `key` returns `None` wait for no other request, but count for the limits.
    pub fn by_key<R>(key: F) -> Self
    where
        F: Fn(&R) -> Option<K>,
        K: Hash + Eq + Clone,
    {
        Self::with_semaphore(KeyedSemaphore::default(), key)
    }

    /// Returns a layer with the limits of this semaphore, which other layers may share.
    pub fn with_semaphore<R>(semaphore: KeyedSemaphore<K>, key: F) -> Self
    where
        F: Fn(&R) -> Option<K>,
    {
        Self {
            key,
            semaphore,
            on_drop: PhantomData,
        }
    }

    /// Finishes a request in a separate task if its response future is dropped after the call. The
    /// request keeps its permit until then.
    ///
    /// Without this setting, the request is dropped with its response future. The setting costs one
    /// allocation for each request. A request that is called outside a Tokio runtime is dropped
    /// with its response future in any case.
    pub fn finish_dropped(self) -> KeyedLayer<F, K, Finish> {
        KeyedLayer {
            key: self.key,
            semaphore: self.semaphore,
            on_drop: PhantomData,
        }
    }
}

impl<F, K, D> KeyedLayer<F, K, D> {
    /// Returns the semaphore, to see how much of it is used, and to close it.
    pub fn semaphore(&self) -> &KeyedSemaphore<K> {
        &self.semaphore
    }
}

impl<S, F: Clone, K, D> Layer<S> for KeyedLayer<F, K, D> {
    type Service = KeyedService<S, F, K, D>;

    fn layer(&self, inner: S) -> Self::Service {
        KeyedService::new(inner, self.key.clone(), self.semaphore.clone())
    }
}

impl<F: Clone, K, D> Clone for KeyedLayer<F, K, D> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            semaphore: self.semaphore.clone(),
            on_drop: PhantomData,
        }
    }
}

impl<F, K, D> fmt::Debug for KeyedLayer<F, K, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLayer")
            .field("semaphore", &self.semaphore)
            .finish_non_exhaustive()
    }
}
