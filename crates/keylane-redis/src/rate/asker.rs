//! The task that asks the server, for all callers of a process.

use std::future::pending;
use std::sync::Arc;

use futures::future::BoxFuture;
use keylane_connector::ErrorKind;
use tokio::time::{Instant, sleep_until, timeout};

use super::shared::{Next, Shared};
use crate::error::RedisError;

type Answers = Result<Vec<(u32, std::time::Duration)>, RedisError>;

/// Asks until there is nothing more to ask for, or until another task has replaced it.
pub(super) async fn run(shared: Arc<Shared>, number: u64) {
    let mut asker = Asker {
        shared: &shared,
        number,
        is_done: false,
    };
    // While each process uses its share: a probe whether the server is back.
    let mut probe: Option<BoxFuture<'_, Answers>> = None;
    loop {
        if probe.is_none() && shared.is_probe_due() {
            probe = Some(Box::pin(ask(&shared, &[])));
        }
        let at = match shared.next(number, probe.is_some()) {
            Next::End => break,
            Next::Ask(asked) => {
                let sent = Instant::now();
                let answer = ask(&shared, &asked).await;
                shared.answered(number, &asked, sent, answer);
                shared.show();
                continue;
            }
            Next::Wait(at) => at,
        };
        let probed = async {
            match &mut probe {
                Some(probe) => probe.await,
                None => pending().await,
            }
        };
        tokio::select! {
            answer = probed => {
                probe = None;
                shared.answered(number, &[], Instant::now(), answer);
                shared.show();
            }
            () = shared.wake.notified() => {}
            () = sleep_until(at) => {}
        }
    }
    shared.show();
    asker.is_done = true;
}

/// Asks the server. An answer that comes later than permits are kept is of no use.
async fn ask(shared: &Shared, asked: &[(bytes::Bytes, u32)]) -> Answers {
    let limit = shared.borrowing.keep;
    match timeout(limit, shared.server.take(asked)).await {
        Ok(answer) => answer,
        Err(_) => {
            let words = format!("no answer within {limit:?}");
            let error = RedisError::new(ErrorKind::Unreachable, words);
            Err(error.at(&shared.server.place()))
        }
    }
}

/// Dropped before the end if its runtime is dropped.
struct Asker<'a> {
    shared: &'a Shared,
    number: u64,
    is_done: bool,
}

impl Drop for Asker<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.shared.asker_is_gone(self.number);
        }
    }
}
