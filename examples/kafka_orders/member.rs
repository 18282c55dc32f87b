//! One member of the group: a source, a dispatcher with a lane for each customer, and what is seen of it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use keylane::consume::{Intake, IntakeReport};
use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_console::Console;
use keylane_kafka::{Control, KafkaSource};
use serde::{Deserialize, Serialize};

use crate::{Failure, mounted};

/// How many handlers run at once.
const HANDLERS: usize = 32;

/// How long what is in flight may take at the end.
const STOP_WITHIN: Duration = Duration::from_secs(10);

pub(crate) struct Member {
    lanes: Dispatcher<Bytes, RawMessage, (), BoxError>,
    intake: Intake,
    control: Control,
    /// The frontier of each partition, and since when it stands there.
    frontiers: HashMap<i32, (u64, Instant)>,
}

/// How far a member is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) handled: u64,
    pub(crate) lanes: usize,
    pub(crate) in_flight: usize,
    pub(crate) held: usize,
    pub(crate) restarts: u64,
    pub(crate) last_error: Option<String>,
    pub(crate) partitions: Vec<Partition>,
}

/// A partition that a member has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Partition {
    pub(crate) number: i32,
    /// The first offset that is not done.
    pub(crate) frontier: u64,
    /// How many milliseconds the frontier has stood there.
    pub(crate) stood: u64,
    pub(crate) open: usize,
    pub(crate) beyond: u64,
}

impl Member {
    pub(crate) fn start<F>(
        source: KafkaSource,
        handle: impl Fn(RawMessage) -> F + Send + Sync + 'static,
    ) -> Result<Self, Failure>
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let lanes = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
            .concurrency(HANDLERS)
            .retry(Retry::fixed(Duration::from_millis(50)).max_attempts(20))
            .on_exhausted(OnExhausted::Halt)
            .spawn(handle)?;
        let control = source.control();
        let intake = lanes.consume(source)?;
        Ok(Self {
            lanes,
            intake,
            control,
            frontiers: HashMap::new(),
        })
    }

    /// A console of its lanes and of its partitions.
    pub(crate) fn console(&self) -> Result<Console, Failure> {
        let console = Console::builder()
            .dispatcher("orders", &self.lanes)
            .intake("kafka", &self.intake)
            .partitions("kafka", self.control.clone())
            .allow(mounted::ALLOWED)
            .without_token();
        Ok(console.build()?)
    }

    /// To be asked regularly: it is measured between the calls how long a frontier stands.
    pub(crate) fn status(&mut self) -> Status {
        let (lanes, intake) = (self.lanes.stats(), self.intake.stats());
        let now = Instant::now();
        let partitions = self.control.partitions();
        let are_here = |number: &i32| partitions.iter().any(|one| one.partition == *number);
        self.frontiers.retain(|number, _| are_here(number));
        let mut status = Status {
            handled: lanes.done,
            lanes: lanes.lanes,
            in_flight: lanes.in_flight,
            held: intake.held,
            restarts: intake.restarts,
            last_error: intake.last_error,
            partitions: Vec::new(),
        };
        for one in partitions {
            let at = (one.position, now);
            let seen = self.frontiers.entry(one.partition).or_insert(at);
            if seen.0 != one.position || one.open == 0 {
                *seen = at;
            }
            let stood = now - seen.1;
            status.partitions.push(Partition {
                number: one.partition,
                frontier: one.position,
                stood: u64::try_from(stood.as_millis()).unwrap_or(u64::MAX),
                open: one.open,
                beyond: one.beyond,
            });
        }
        status
    }

    /// Finishes what has begun, commits it and leaves the group.
    pub(crate) async fn stop(self) -> IntakeReport {
        let report = self.intake.stop().within(STOP_WITHIN).await;
        self.lanes.drain().await;
        report
    }
}
