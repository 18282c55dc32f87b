//! Attempts whose starts are noted while the connection breaks.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keylane::consume::{Intake, IntakeSettings};
use keylane::source::{RawMessage, Source};
use keylane::{OnExhausted, Retry};
use keylane_testkit::scenario::{boxed, by_key, until_async as until};
use testkit_servers::Redis;
use testkit_servers::proxy::Proxy;

/// How many attempts a message has.
pub(crate) const ATTEMPTS: u32 = 4;

/// A handler that always fails, and whose connection to the server loses the answer to the next
/// start. The message `ready` succeeds.
pub(crate) struct Starts {
    proxy: Arc<Proxy>,
    runs: Arc<AtomicU32>,
}

impl Starts {
    pub(crate) async fn at(server: &Redis) -> Self {
        let proxy = Proxy::to((Ipv4Addr::LOCALHOST, server.port()).into());
        Self {
            proxy: Arc::new(proxy.await.unwrap()),
            runs: Arc::default(),
        }
    }

    /// The address of the proxy.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.proxy.port())
    }

    /// Consumes a source. The first value is the dispatcher.
    pub(crate) fn consume<S: Source<Message = RawMessage>>(
        &self,
        source: S,
    ) -> (impl Sized + use<S>, Intake) {
        let (runs, cuts) = (Arc::clone(&self.runs), Arc::clone(&self.proxy));
        let handler = move |raw: RawMessage| {
            if raw.payload == "ready" {
                return std::future::ready(Ok(()));
            }
            if runs.fetch_add(1, Ordering::SeqCst) + 1 < ATTEMPTS {
                cuts.cut_to_client();
            }
            std::future::ready(Err("no".into()))
        };
        let dispatcher = by_key()
            .retry(Retry::fixed(Duration::from_millis(20)).max_attempts(ATTEMPTS))
            .on_exhausted(OnExhausted::AtSource)
            .spawn(boxed(handler))
            .unwrap();
        let settings = IntakeSettings::new().longest_pause(Duration::from_millis(50));
        let intake = dispatcher.consume_with(source, settings).unwrap();
        (dispatcher, intake)
    }

    /// Breaks the connection each time when the server has counted a start and the answer is not
    /// there. `counted`: whether the server has counted so many.
    pub(crate) async fn are_noted_again(&self, counted: impl AsyncFn(u32) -> bool) {
        for attempt in 2..=ATTEMPTS {
            until("the server has counted it", async || counted(attempt).await).await;
            assert_eq!(self.runs(), attempt - 1);
            self.proxy.reset();
            self.proxy.heal();
            until("it is tried again", async || self.runs() == attempt).await;
        }
    }

    /// How many attempts there were.
    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}
