//! The handle that users hold.
//!
//! The modules `send`, `permit`, `lane`, `watching` and `shutdown` hold the methods of the handle,
//! each beside the type that they return.

use std::fmt;

use keylane_rt::{Arc, mpsc};

use super::address::Address;
use crate::engine::{Accepted, Engine};
use crate::types::Of;

/// A handle to a dispatcher, which takes messages, keeps the order of each key, and runs the
/// handler.
///
/// A handle is cheap to clone, and all clones feed the same lanes. When the last one is dropped,
/// the dispatcher closes: it takes no more messages, and still handles the accepted ones, unless
/// the runtime stops. There is no report then, and halted messages without a receipt are dropped.
/// To wait for the end and get a report, call [`drain`](Self::drain), [`close`](Self::close) or
/// [`abort`](Self::abort). A clone inside the handler keeps the dispatcher open.
///
/// The dispatcher runs on the runtime on which it was started. Its functions may be called from any
/// thread, inside that runtime, inside another one, or outside all; where they read a clock, it is
/// the clock of the dispatcher's runtime.
///
/// The type parameters are the key, the message, the handler's answer and the handler's error. A
/// field of your own type is a `Dispatcher<AccountId, Payment, Booked, PayError>`; the defaults fit
/// only a handler that answers nothing and cannot fail.
///
/// # Examples
///
/// ```
/// use keylane::Dispatcher;
///
/// struct Order { user: u64, cents: u64 }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = Dispatcher::builder(|order: &Order| order.user)
///     .spawn(|order: Order| async move { Ok::<u64, std::io::Error>(order.cents * 2) })?;
///
/// orders.send(Order { user: 7, cents: 100 }).await?;
/// let receipt = orders.submit(Order { user: 7, cents: 250 }).await?;
/// assert_eq!(receipt.await?, 500);
///
/// let report = orders.drain().await;
/// assert_eq!((report.accepted, report.done), (2, 2));
/// # Ok(())
/// # }
/// ```
pub struct Dispatcher<K, M, O = (), E = std::convert::Infallible> {
    pub(crate) engine: Arc<Engine<Of<K, M, O, E>>>,
    /// With the striped intake nothing goes through it: it tells the router when the last handle is
    /// gone.
    pub(super) channel: mpsc::UnboundedSender<Accepted<Of<K, M, O, E>>>,
    pub(super) address: Arc<Address<K, M>>,
}

impl<K, M, O, E> Clone for Dispatcher<K, M, O, E> {
    fn clone(&self) -> Self {
        Self {
            engine: Arc::clone(&self.engine),
            channel: self.channel.clone(),
            address: Arc::clone(&self.address),
        }
    }
}

impl<K, M, O, E> fmt::Debug for Dispatcher<K, M, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}
