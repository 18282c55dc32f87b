//! The layer.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use keylane::Turnstile;
use tower_layer::Layer;

use crate::on_drop::{Cancel, Finish};
use crate::service::KeyedService;

/// Puts lanes in front of services: requests of one key reach them one at a time, in the order of
/// their `call`s; requests of different keys run beside each other.
///
/// All services that one layer makes, and all its clones, share the lanes: order holds per key across
/// the routes of a router and the connections of a server. Two layers have nothing to do with each
/// other.
///
/// # Examples
///
/// ```
/// use keylane_tower::{KeyedLayer, Turnstile};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// struct Order { user: u64, item: &'static str }
///
/// let lanes = Turnstile::builder().concurrency(512).lane_capacity(32).build()?;
/// let mut shop = ServiceBuilder::new()
///     .layer(KeyedLayer::with_turnstile(lanes, |order: &Order| Some(order.user)))
///     .service(service_fn(|order: Order| async move {
///         Ok::<_, std::io::Error>(format!("{} for {}", order.item, order.user))
///     }));
///
/// let answer = shop.ready().await?.call(Order { user: 7, item: "tea" }).await?;
/// assert_eq!(answer, "tea for 7");
/// # Ok(())
/// # }
/// ```
pub struct KeyedLayer<F, K, D = Cancel> {
    key: F,
    turnstile: Turnstile<K>,
    on_drop: PhantomData<fn() -> D>,
}

impl<F, K> KeyedLayer<F, K> {
    /// A layer with the default limits: 1,024 requests beside each other, 65,536 in all, and a quarter
    /// of that per key.
    ///
    /// Requests for which `key` returns `None` wait for nobody, but count.
    pub fn by_key<R>(key: F) -> Self
    where
        F: Fn(&R) -> Option<K>,
        K: Hash + Eq + Clone,
    {
        Self::with_turnstile(Turnstile::default(), key)
    }

    /// A layer with limits of its own, or one that shares its lanes with others.
    pub fn with_turnstile<R>(turnstile: Turnstile<K>, key: F) -> Self
    where
        F: Fn(&R) -> Option<K>,
    {
        Self {
            key,
            turnstile,
            on_drop: PhantomData,
        }
    }

    /// Requests whose response future is dropped after they have started go on in a task of their own,
    /// and hold their key until they have finished.
    ///
    /// Without this they are dropped with it. It costs a box for each request. Outside of a Tokio runtime
    /// a request is dropped with its future all the same.
    pub fn finish_dropped(self) -> KeyedLayer<F, K, Finish> {
        KeyedLayer {
            key: self.key,
            turnstile: self.turnstile,
            on_drop: PhantomData,
        }
    }
}

impl<F, K, D> KeyedLayer<F, K, D> {
    /// The lanes: to see how full they are, and to close them.
    pub fn turnstile(&self) -> &Turnstile<K> {
        &self.turnstile
    }
}

impl<S, F: Clone, K, D> Layer<S> for KeyedLayer<F, K, D> {
    type Service = KeyedService<S, F, K, D>;

    fn layer(&self, inner: S) -> Self::Service {
        KeyedService::new(inner, self.key.clone(), self.turnstile.clone())
    }
}

impl<F: Clone, K, D> Clone for KeyedLayer<F, K, D> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            turnstile: self.turnstile.clone(),
            on_drop: PhantomData,
        }
    }
}

impl<F, K, D> fmt::Debug for KeyedLayer<F, K, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLayer")
            .field("turnstile", &self.turnstile)
            .finish_non_exhaustive()
    }
}
