//! The thread that serves the sessions of a store.
//!
//! A session belongs to no runtime of its users: it goes on while one of them is blocked or ends,
//! and calls may come from any.

use std::future::Future;
use std::io;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::timeout;
use zookeeper_client::StateWatcher;

/// How long the end of a session may take.
const ENDING: Duration = Duration::from_secs(2);

/// A thread with a runtime of its own. It ends after this is dropped.
pub(crate) struct Worker {
    runtime: Handle,
    /// `None` only during the drop.
    end: Option<oneshot::Sender<StateWatcher>>,
    /// The session that is closed before the thread ends.
    last: Option<StateWatcher>,
}

impl Worker {
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<StateWatcher>();
        let serve = move || {
            runtime.block_on(async {
                if let Ok(mut session) = ended.await {
                    // The client tells the server that the session is over.
                    let closed = async {
                        while !session.peek_state().is_terminated() {
                            session.changed().await;
                        }
                    };
                    let _ = timeout(ENDING, closed).await;
                }
            });
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("keylane-zookeeper".to_owned());
        thread.spawn(serve)?;
        Ok(Self {
            runtime: handle,
            end: Some(end),
            last: None,
        })
    }

    /// Runs a task on the thread. Its answer is lost if the thread has ended.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (send, receive) = oneshot::channel();
        self.runtime.spawn(async move {
            let _ = send.send(task.await);
        });
        receive
    }

    /// Sets the session to wait for at the end.
    pub(crate) fn serves(&mut self, session: StateWatcher) {
        self.last = Some(session);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let (Some(end), Some(session)) = (self.end.take(), self.last.take()) {
            let _ = end.send(session);
        }
    }
}
