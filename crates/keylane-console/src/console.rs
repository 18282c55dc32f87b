//! The console of one service.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;

use crate::routes::routes;
use crate::state::State;

/// A console: a router to nest, or a server of its own.
///
/// It works only while a viewer looks: then one task for each kind of page looks once a second, and
/// all viewers share what it sees. A clone is the same console.
///
/// It holds a handle of each dispatcher. A dispatcher that closes when its last handle is dropped
/// stays open until the console and its routers are dropped; `drain`, `close` and `abort` are not
/// held up.
///
/// # Examples
///
/// ```
/// use axum::Router;
/// use keylane::Dispatcher;
/// use keylane_console::Console;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = Dispatcher::builder(|user: &String| user.clone())
///     .spawn(|_user: String| async { Ok::<(), String>(()) })?;
/// let console = Console::builder().dispatcher("orders", &orders).build()?;
/// let app: Router = Router::new().nest("/console", console.router());
/// # drop(app);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Console {
    pub(crate) state: Arc<State>,
}

impl Console {
    /// Returns a router to nest at any path, or to merge at the root.
    ///
    /// Unless [`Builder::remote`](crate::Builder::remote) is set, it must know who asks: serve it
    /// with `into_make_service_with_connect_info::<SocketAddr>()`. Otherwise it refuses all
    /// requests with `unknown_peer`. Layers around it must not buffer bodies, nor end requests
    /// after a time: the feeds are endless.
    pub fn router(&self) -> Router {
        routes(Arc::clone(&self.state))
    }

    /// Serves the console alone, at the root, until [`close`](Self::close).
    ///
    /// # Errors
    ///
    /// [`ServeError::NotLoopback`] at once, if others could reach the listener and
    /// [`Builder::remote`](crate::Builder::remote) is not set. [`ServeError::Io`] if the listener
    /// fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the server and drops its connections.
    pub async fn serve(&self, listener: TcpListener) -> Result<(), ServeError> {
        let address = listener.local_addr()?;
        if self.state.rules.hosts.is_empty() && !address.ip().to_canonical().is_loopback() {
            return Err(ServeError::NotLoopback { address });
        }
        let service = self
            .router()
            .into_make_service_with_connect_info::<SocketAddr>();
        let closed = self.state.closed.clone();
        let server = axum::serve(listener, service);
        server
            .with_graceful_shutdown(closed.cancelled_owned())
            .await?;
        Ok(())
    }

    /// Ends all feeds, and [`serve`](Self::serve). Call it when the service stops: a graceful
    /// shutdown of axum waits for all responses, and a feed has no end of its own.
    pub fn close(&self) {
        self.state.closed.cancel();
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("allowed", &self.state.allowed)
            .finish_non_exhaustive()
    }
}

/// Why [`Console::serve`] has ended.
#[non_exhaustive]
#[derive(thiserror::Error)]
pub enum ServeError {
    /// Other machines could reach this address.
    #[error(
        "{address} is not a loopback address: listen on 127.0.0.1, or set a token and `remote`"
    )]
    NotLoopback {
        /// The address of the listener.
        address: SocketAddr,
    },
    /// The listener has failed.
    #[error("the listener of the console failed: {0}")]
    Io(#[from] std::io::Error),
}

keylane_rt::text_in_debug! { ServeError: NotLoopback, Io }
