//! Letters that are sent and marked, step by step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keylane_source::RawMessage;
use tokio::sync::oneshot;

use super::back::{Failed, send_back};
use super::client::{Client, id_of};
use super::error::KafkaLettersError;
use crate::link::Spot;
use crate::producer::Producer;

/// How many letters are read, sent and marked in one step.
const STEP: usize = 100;

/// How long to try to mark letters that were sent.
const MARK_WITHIN: Duration = Duration::from_secs(20);

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// What is done to letters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Redrive,
    Purge,
}

pub(super) struct Round {
    pub(super) client: Client,
    pub(super) producer: Producer,
    pub(super) to: Option<Arc<str>>,
    pub(super) act: Act,
    pub(super) caller: Caller,
}

type Caller = oneshot::Sender<Result<u64, KafkaLettersError>>;

/// The letters of a step, which have been sent or need no sending.
#[derive(Default)]
struct Passed {
    spots: Vec<Spot>,
    /// The letter behind them, which could not be sent.
    failed: Option<(Spot, Failed)>,
}

impl Round {
    pub(super) async fn run(self, spots: Vec<Spot>) {
        let acted = self.act(spots).await;
        // An error of a caller that is gone may say that letters were sent and are not marked.
        if let Err(Err(error)) = self.caller.send(acted) {
            tracing::warn!(
                target: "keylane",
                %error,
                "letters were not redriven or purged, and the caller has not waited for the error"
            );
        }
    }

    async fn act(&self, spots: Vec<Spot>) -> Result<u64, KafkaLettersError> {
        let _alone = self.client.act_alone().await;
        if self.caller.is_closed() {
            return Ok(0);
        }
        let open = self.client.ask(move |log| log.markable_ones(&spots));
        let open = open.await?;
        let mut done = 0;
        for step in open.chunks(STEP) {
            let records = self.read(step).await?;
            let passed = self.pass(step, records).await;
            let letters = passed.spots.len() as u64;
            self.mark(passed.spots).await?;
            done += letters;
            if let Some((spot, failed)) = passed.failed {
                return Err(of_failed(spot, failed, done));
            }
            if self.caller.is_closed() {
                break;
            }
        }
        Ok(done)
    }

    async fn read(&self, step: &[Spot]) -> Result<BTreeMap<Spot, RawMessage>, KafkaLettersError> {
        let (step, copier) = (step.to_vec(), self.client.copier());
        let read = self.client.ask(move |log| {
            let (mut records, mut copier) = (BTreeMap::new(), copier);
            log.read(&step, |spot, record| {
                records.insert(spot, copier.copy(spot, record));
            })?;
            Ok(records)
        });
        read.await
    }

    /// Sends the letters of a step, until one fails or the caller is gone.
    async fn pass(&self, step: &[Spot], mut records: BTreeMap<Spot, RawMessage>) -> Passed {
        let mut passed = Passed::default();
        for spot in step {
            if self.caller.is_closed() {
                break;
            }
            // A gap of the log. Or the broker is a new leader that does not know yet how far the
            // log is written: so this is not marked.
            let Some(record) = records.remove(spot) else {
                continue;
            };
            if self.act == Act::Redrive {
                let to = self.to.as_deref();
                if let Err(failed) = send_back(&self.producer, to, &record).await {
                    passed.failed = Some((*spot, failed));
                    break;
                }
            }
            passed.spots.push(*spot);
        }
        passed
    }

    /// Marks letters as done. Tries it several times if they were sent.
    async fn mark(&self, spots: Vec<Spot>) -> Result<(), KafkaLettersError> {
        let (since, letters) = (Instant::now(), spots.len() as u64);
        loop {
            let marked = spots.clone();
            let Err(error) = self.client.ask(move |log| log.mark(&marked)).await else {
                return Ok(());
            };
            if self.act == Act::Purge || letters == 0 {
                return Err(error);
            }
            if !error.is_passing() || since.elapsed() >= MARK_WITHIN {
                return Err(KafkaLettersError::Unmarked {
                    unmarked: letters,
                    why: error.to_string(),
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn of_failed(spot: Spot, failed: Failed, redriven: u64) -> KafkaLettersError {
    let id = id_of(spot);
    match failed {
        Failed::NoTopic(_) => KafkaLettersError::NoOrigin { id, redriven },
        Failed::Send(error) => KafkaLettersError::NotSent {
            id,
            redriven,
            error,
        },
    }
}
