//! What the replicas of a server have of its data.

use std::iter;
use std::thread;
use std::time::{Duration, Instant};

use crate::ServerError;
use crate::daemon::{PROBE_PAUSE, on_thread};
use crate::redis::server::PATIENCE;
use crate::redis::{Redis, resp};

impl Redis {
    /// Waits until each connected replica, and one at least, has confirmed all that the server took
    /// before the call, at most 4 minutes.
    ///
    /// `WAIT` does not do that when it is [executed](Self::execute) on a connection of its own: it
    /// waits for the writes of its own connection only.
    ///
    /// # Errors
    ///
    /// [`NotReady`](ServerError::NotReady) with the state of the replicas if they are late, and
    /// [`System`](ServerError::System) if the server cannot be reached.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing happens.
    pub async fn replicated(&self) -> Result<(), ServerError> {
        let began = Instant::now();
        let written = offset(&self.replication(Duration::ZERO).await?);
        loop {
            let info = self.replication(PROBE_PAUSE).await?;
            if all_have(&info, written) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(ServerError::NotReady {
                    seconds: PATIENCE.as_secs(),
                    log: info,
                });
            }
        }
    }

    /// Asks after a pause. It is not one of Tokio's clock, which a test may pause.
    async fn replication(&self, pause: Duration) -> Result<String, ServerError> {
        let server = self.share();
        on_thread(move || {
            thread::sleep(pause);
            server.execute_within(PATIENCE, &["INFO", "replication"])
        })
        .await
    }
}

/// How much a server has written for its replicas, as it says in reply to `INFO replication`.
fn offset(info: &str) -> Option<u64> {
    resp::field(info, "master_repl_offset")?.parse().ok()
}

/// Returns whether the server has a replica, and each has confirmed so much. The line of one is
/// `slave0:ip=127.0.0.1,port=6380,state=online,offset=14,lag=0`.
fn all_have(info: &str, written: Option<u64>) -> bool {
    let confirmed = |replica: &str| {
        let mut fields = replica.split(',').filter_map(|field| field.split_once('='));
        let offset = fields.find_map(|(name, value)| (name == "offset").then_some(value));
        offset?.parse().ok()
    };
    let mut replicas = (0..).map_while(|at| resp::field(info, &format!("slave{at}")));
    let Some(first) = replicas.next() else {
        return false;
    };
    written.is_some()
        && iter::once(first)
            .chain(replicas)
            .all(|replica| confirmed(replica) >= written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_replica_has_confirmed_it() {
        let info = "role:master\n\
                    connected_slaves:2\n\
                    slave0:ip=127.0.0.1,port=2,state=online,offset=14,lag=0\n\
                    slave1:ip=127.0.0.1,port=3,state=wait_bgsave,offset=0,lag=0\n\
                    master_repl_offset:14\n";
        assert_eq!(offset(info), Some(14));
        assert!(!all_have(info, Some(14)));
        assert!(all_have(&info.replace("offset=0", "offset=14"), Some(14)));
        assert!(!all_have(&info.replace("offset=0", "offset=13"), Some(14)));
        assert!(!all_have(&info.replace("offset=0", "offset=?"), Some(14)));
    }

    #[test]
    fn a_server_without_a_replica_has_confirmed_nothing() {
        let info = "role:master\nconnected_slaves:0\nmaster_repl_offset:0\n";
        assert!(!all_have(info, offset(info)));
        assert!(!all_have("slave0:offset=1\n", None));
    }
}
