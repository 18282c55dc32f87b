//! A worker that is a process, and what sends messages to it.

use std::sync::Arc;
use std::time::Duration;

use keylane::consume::IntakeSettings;
use keylane::source::RawMessage;
use keylane::{OnExhausted, Retry};
use keylane_inbox::NewMessage;
use keylane_inbox::error::AcceptError;
use keylane_sql::{Claim, Database, Settings, SourceSettings, SqlInbox, Tables};
use keylane_testkit::scenario::{boxed, by_key};
use testkit_processes::{Answer, Trial, Workers, task, told_to_stop};
use tokio::time::sleep;

const KEYS: u64 = 12;
const WORKERS: usize = 3;

/// How long a dead worker keeps its keys.
const LEASE: Duration = Duration::from_secs(2);

/// How long a call may take that a lost server does not answer.
const CALL: Duration = Duration::from_secs(3);

/// Sends messages to the database at this address, and starts workers on it.
pub(crate) async fn trial(address: &str) -> Trial {
    let inbox = Arc::new(open(address).await.inbox());
    let send = move |key: u64, id: u64| {
        let inbox = Arc::clone(&inbox);
        async move {
            let message = NewMessage::new(key.to_string(), id.to_string());
            match inbox.accept_message(message).await {
                Ok(_) => Answer::Accepted,
                Err(AcceptError::Store(error, _)) if error.may_be_stored() => Answer::Unknown,
                Err(_) => Answer::Refused,
            }
        }
    };
    let workers = Workers {
        count: WORKERS,
        test: "worker::worker",
        task: address.to_owned(),
    };
    Trial::start(KEYS, send, workers)
}

/// Opens the inbox as soon as the server is there.
async fn open(address: &str) -> SqlInbox {
    loop {
        if let Ok(database) = Database::connect(address).await {
            let settings = Settings::new().call_limit(CALL);
            if let Ok(inbox) = SqlInbox::open(&database, &Tables::new(), settings).await {
                return inbox;
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// The worker: this program again. It leaves when its input ends.
#[test]
fn worker() {
    let Some((journal, address)) = task() else {
        return;
    };
    crate::site::show_log();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let handler = move |message: RawMessage| {
            let journal = journal.clone();
            async move {
                let number = |bytes| std::str::from_utf8(bytes).unwrap().parse().unwrap();
                let key = number(message.key.as_deref().unwrap());
                let (id, token) = (
                    number(&message.payload),
                    Claim::of(&message).unwrap().token(),
                );
                let takes = Duration::from_millis(id % 7);
                journal.attempt(key, id, token, takes).await;
                Ok(())
            }
        };
        // A message may be in flight at several faults.
        let dispatcher = by_key()
            .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(100_000))
            .on_exhausted(OnExhausted::Halt)
            .spawn(boxed(handler))
            .unwrap();
        let source = SourceSettings::new().lease(LEASE).keys(KEYS as usize / 2);
        let settings = IntakeSettings::new().longest_pause(Duration::from_millis(500));
        let inbox = open(&address).await;
        let intake = dispatcher.consume_with(inbox.source_with(source), settings);
        let intake = intake.unwrap();
        told_to_stop().await;
        intake.stop().within(Duration::from_secs(5)).await;
    });
}
