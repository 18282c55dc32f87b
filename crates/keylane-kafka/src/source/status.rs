//! Publishes the status of the partitions.

use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use tokio::time::Instant;

use super::failures::Trouble;
use super::state::KafkaSource;
use crate::control::PartitionStatus;
use crate::link::{Known, NO_LEADER};

/// The interval at which the status of the partitions is published.
pub(super) const PUBLISH_EVERY: Duration = Duration::from_millis(500);

impl<M> KafkaSource<M> {
    pub(super) fn publish_if_due(&mut self, now: Instant) {
        if now.saturating_duration_since(self.published_at) >= PUBLISH_EVERY {
            self.publish();
        }
    }

    pub(super) fn publish(&mut self) {
        self.published_at = Instant::now();
        let context = self.session.as_ref().map(|one| one.consumer.context());
        let known = |topic: &str, number| match context {
            Some(context) => context.known(topic, number),
            None => Known::default(),
        };
        for one in self.assignment.iter() {
            let name = one.queue.records.name();
            match known(&one.topic, one.number).has_leader {
                true => self.failures.recover(name, Trouble::NoLeader),
                false => {
                    let why = NO_LEADER.to_owned();
                    self.failures.fail(name, Trouble::NoLeader, why);
                }
            }
        }
        let failure = |name: &str| self.failures.of(name);
        let read = self.assignment.iter().map(|one| {
            let frontier = one.partition.frontier();
            PartitionStatus {
                topic: one.topic.to_string(),
                partition: one.number,
                position: one.partition.position(),
                committed: one.partition.committed_offset(),
                end: one.partition.end(),
                log_end: known(&one.topic, one.number).log_end,
                open: frontier.open_len(),
                beyond: frontier.beyond_len(),
                is_paused: one.queue.is_paused,
                is_full: one.partition.is_full(),
                overtaken: one.queue.overtaken,
                failure: failure(one.queue.records.name()),
            }
        });
        let starting = self.starting.all.iter().filter_map(|one| {
            let failure = failure(&format!("{}/{}", one.topic, one.number))?;
            let committed = one.overtaken.map(|overtaken| overtaken.committed);
            let at = committed.unwrap_or_default();
            Some(PartitionStatus {
                topic: one.topic.to_string(),
                partition: one.number,
                position: at,
                committed,
                end: at,
                log_end: known(&one.topic, one.number).log_end,
                open: 0,
                beyond: 0,
                is_paused: false,
                is_full: false,
                overtaken: one.overtaken,
                failure: Some(failure),
            })
        });
        let partitions: Vec<_> = read.chain(starting).collect();
        self.figures.show(&partitions);
        self.control.publish(partitions);
    }
}
