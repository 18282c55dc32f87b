//! The proxies of a server of several nodes.

use std::net::Ipv4Addr;

use tokio::runtime::{Builder, Runtime};

use crate::ServerError;
use crate::proxy::Proxy;

/// A proxy for each port, on a runtime of its own: tests that share a cluster have separate
/// runtimes, a test may block the only thread of its runtime in a client, and it may pause its
/// clock.
#[derive(Debug)]
pub(crate) struct Proxies {
    proxies: Vec<Proxy>,
    /// `None` only during the drop.
    runtime: Option<Runtime>,
}

impl Proxies {
    /// Starts proxies in front of these ports. Not inside a runtime that runs other tasks on this
    /// thread.
    pub(crate) fn to(ports: impl IntoIterator<Item = u16>) -> Result<Self, ServerError> {
        let system = || ServerError::system("start the proxies of the server");
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("keylane-proxies")
            .enable_io()
            .enable_time()
            .build()
            .map_err(system())?;
        let proxy = |port| runtime.block_on(Proxy::to((Ipv4Addr::LOCALHOST, port).into()));
        let proxies = ports.into_iter().map(proxy);
        let proxies = proxies.collect::<Result<_, _>>().map_err(system())?;
        Ok(Self {
            proxies,
            runtime: Some(runtime),
        })
    }

    pub(crate) fn all(&self) -> &[Proxy] {
        &self.proxies
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        self.proxies.clear();
        if let Some(runtime) = self.runtime.take() {
            // A test drops this in a task, which may not wait for a runtime.
            runtime.shutdown_background();
        }
    }
}
