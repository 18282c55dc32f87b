//! What a server and its clients are to the scenarios.

use std::net::SocketAddr;
use std::time::Duration;

use keylane_testkit::{Id, Key};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::Support;

/// A kind of server with the layer in front of its handlers.
pub(crate) trait Front {
    type Client: Ask;

    /// Serves until `stop`, and then shuts down as gracefully as it can.
    fn serve(
        listener: TcpListener,
        support: Support,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static;

    /// Clients whose requests can all be under way at once.
    fn connect(address: SocketAddr, count: usize) -> impl Future<Output = Vec<Self::Client>>;
}

/// A client with one request at a time. If it is dropped with its request, it has hung up.
pub(crate) trait Ask: Send + 'static {
    fn ask(
        &mut self,
        key: impl Into<Option<Key>> + Send,
        id: Id,
    ) -> impl Future<Output = Answer> + Send;
}

/// What a client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    LaneFull,
    Closed,
    /// Nothing: the connection or the call broke off.
    Broken,
}

/// A server that runs.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    heard: oneshot::Receiver<()>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start<F: Front>(support: &Support) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let (hears, heard) = oneshot::channel();
        let signal = async {
            stopped.await.expect("the test stops it");
            hears.send(()).expect("the test waits for it");
        };
        let task = tokio::spawn(F::serve(listener, support.clone(), signal));
        Self {
            address,
            stop,
            heard,
            task,
        }
    }

    /// Tells it to stop, and waits until it has heard that. The task is the server.
    pub(crate) async fn stop(self) -> JoinHandle<()> {
        self.stop.send(()).expect("it listens for that");
        self.heard.await.expect("it says so");
        self.task
    }
}

/// Runs a test on two threads. What never comes is a failure, and not a test that hangs: the limit
/// is far more than any machine needs.
pub(crate) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            let limit = Duration::from_secs(120);
            tokio::time::timeout(limit, test).await.expect("it ends");
        });
}

/// Each scenario as a test of this front.
macro_rules! scenarios {
    ($front:ty) => {
        $crate::front::scenarios! { $front:
            many_keys_over_many_connections_are_served_in_order,
            a_slow_key_delays_no_other,
            a_client_that_disconnects_leaves_the_lane,
            a_client_that_disconnects_while_it_runs_frees_its_key,
            a_handler_that_panics_frees_its_key,
            a_full_lane_refuses_at_once,
            a_graceful_shutdown_finishes_what_is_in,
            a_close_fails_requests_that_wait,
        }
    };
    ($front:ty: $($scenario:ident,)*) => {
        $(
            #[test]
            fn $scenario() {
                $crate::front::run($crate::scenarios::$scenario::<$front>());
            }
        )*
    };
}
pub(crate) use scenarios;
