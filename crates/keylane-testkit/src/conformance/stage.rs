//! The stage of one case: a site, its published messages, and the observations.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::{Intake, IntakeReport, IntakeSettings};
use keylane::source::{Features, RawMessage, Source};
use keylane::{Builder, Context, Dispatcher, OnExhausted, Overflow, Retry};
use tokio::time::Instant;

use super::broken::{Broken, expect};
use super::direct::Direct;
use super::harness::{Fault, Site};
use super::message::{id_of, key_of, message};
use super::witness::{Witness, Witnessed};
use crate::check::{Evidence, Finding, Rule};
use crate::events::{Id, Key};
use crate::history::History;
use crate::script::{Script, ScriptError, Scripted};

/// How long attempts in flight may go on after a revoke, and at the end of a stop.
pub(super) const REVOKE_WITHIN: Duration = Duration::from_millis(300);

/// How long a source may be silent.
pub(super) const STALL_AFTER: Duration = Duration::from_secs(2);

/// How long to wait for an event that should not happen.
pub(super) const A_WHILE: Duration = Duration::from_millis(200);

/// The most handlers that run at once.
const CONCURRENCY: usize = 16;

/// The rules that judge a case at its end.
const RULES: [Rule; 5] = [
    Rule::NoLoss,
    Rule::NoInvention,
    Rule::Exclusion,
    Rule::Acks,
    Rule::Duplicates,
];

pub(super) type Consumer = Dispatcher<Bytes, RawMessage, Id, ScriptError>;

pub(super) struct Stage<T: Site> {
    pub(super) site: T,
    pub(super) features: Features,
    pub(super) history: History,
    pub(super) witness: Witness,
    pub(super) patience: Duration,
    seqs: BTreeMap<Key, u64>,
    last_id: Id,
}

/// Returns the builder of a consumer. An attempt that a revoke has ended may count, so there are
/// several.
pub(super) fn consumer()
-> Builder<Bytes, RawMessage, ScriptError, impl Fn(&RawMessage) -> Option<Bytes> + Send + Sync> {
    Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
        .concurrency(CONCURRENCY)
        .lane_capacity(8, Overflow::Wait)
        .retry(Retry::fixed(Duration::from_millis(5)).max_attempts(5))
        .on_exhausted(OnExhausted::Halt)
}

/// Returns the script as a handler.
pub(super) fn handler(
    script: Script,
) -> impl Fn(Context<Bytes>, RawMessage) -> Scripted + Send + Sync + 'static {
    move |context, message| {
        let id = id_of(&message).unwrap_or_default();
        script.run(key_of(&message), id, context.attempt())
    }
}

/// Returns a consumer with the script as its handler.
pub(super) fn spawn(script: Script) -> Result<Consumer, Broken> {
    built(consumer().spawn(handler(script)))
}

/// Returns the dispatcher, or fails the case.
pub(super) fn built<D>(spawned: Result<D, keylane::error::BuildError>) -> Result<D, Broken> {
    spawned.map_err(|error| Broken::new(error.to_string()))
}

/// Returns the settings of all intakes. Real servers run in real time, so the times are short.
pub(super) fn settings() -> IntakeSettings {
    IntakeSettings::new()
        .revoke_within(REVOKE_WITHIN)
        .stall_after(STALL_AFTER)
        .longest_pause(Duration::from_millis(500))
        .confirm_every(Duration::from_millis(20))
}

impl<T: Site> Stage<T> {
    pub(super) fn new(site: T, features: Features, patience: Duration) -> Self {
        let history = History::new();
        Self {
            site,
            features,
            witness: Witness::new(&history),
            history,
            patience,
            seqs: BTreeMap::new(),
            last_id: 0,
        }
    }

    /// Publishes one message for each of these keys, in this order. Returns the ids.
    pub(super) async fn publish(
        &mut self,
        keys: impl IntoIterator<Item = Key>,
    ) -> Result<Vec<Id>, Broken> {
        let mut sent = Vec::new();
        for key in keys {
            let seq = self.seqs.entry(key).or_default();
            *seq += 1;
            self.last_id += 1;
            sent.push((key, *seq, self.last_id));
        }
        let ids: Vec<_> = sent.iter().map(|(_, _, id)| *id).collect();
        self.witness.expect(ids.iter().copied());
        let messages = sent.iter().map(|(key, _, id)| message(*key, *id)).collect();
        let sendings: Vec<_> = sent
            .iter()
            .map(|(key, seq, id)| self.history.sending(*key, *seq, *id))
            .collect();
        self.site.publish(messages).await?;
        sendings.into_iter().for_each(crate::history::Sending::ok);
        Ok(ids)
    }

    /// Publishes so many messages of each of these keys, one after the other of each.
    pub(super) async fn publish_each(
        &mut self,
        keys: std::ops::Range<Key>,
        each: usize,
    ) -> Result<Vec<Id>, Broken> {
        let rounds = (0..each).flat_map(|_| keys.clone());
        self.publish(rounds).await
    }

    /// Consumes the site.
    pub(super) async fn consume(&self, consumer: &Consumer) -> Result<Intake, Broken> {
        self.consume_with(consumer, settings()).await
    }

    pub(super) async fn consume_with(
        &self,
        consumer: &Consumer,
        settings: IntakeSettings,
    ) -> Result<Intake, Broken> {
        self.intake_of(consumer, self.watched().await?, settings)
    }

    /// Consumes a source of this site inside a wrapper.
    pub(super) fn intake_of(
        &self,
        consumer: &Consumer,
        source: impl Source<Message = RawMessage>,
        settings: IntakeSettings,
    ) -> Result<Intake, Broken> {
        let intake = consumer.consume_with(source, settings);
        intake.map_err(|error| Broken::new(format!("it cannot be consumed: {error}")))
    }

    /// Returns a source of this site that is watched.
    pub(super) async fn watched(&self) -> Result<Witnessed<T::Source>, Broken> {
        let source = self.site.source().await?;
        Ok(Witnessed::new(source, &self.witness))
    }

    /// Returns a source that the case drives by itself.
    pub(super) async fn direct(&self) -> Result<Direct<T::Source>, Broken> {
        let mut direct = Direct::new(self.site.source().await?, self.patience);
        direct.open().await?;
        Ok(direct)
    }

    pub(super) async fn inject(&self, fault: Fault) -> Result<(), Broken> {
        Ok(self.site.inject(fault).await?)
    }

    /// Waits until this holds.
    pub(super) async fn until(
        &self,
        what: &str,
        mut holds: impl FnMut() -> bool,
    ) -> Result<(), Broken> {
        let deadline = Instant::now() + self.patience;
        while !holds() {
            if Instant::now() >= deadline {
                let what = format!("after {:?} it was not yet so that {what}", self.patience);
                return Err(Broken::new(self.with_wrongs(what)));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Waits until all of these were handled.
    pub(super) async fn handled(&self, ids: &[Id]) -> Result<(), Broken> {
        let all_handled = || {
            let handled = self.history.handled();
            ids.iter().all(|id| handled.contains(id))
        };
        self.until("all messages were handled", all_handled).await
    }

    /// Waits until the server has nothing left.
    pub(super) async fn nothing_left(&self) -> Result<(), Broken> {
        let deadline = Instant::now() + self.patience;
        loop {
            let left = self.site.left().await?;
            if left == 0 {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let what = format!("{left} messages are left at the server");
                return Err(Broken::new(self.with_wrongs(what)));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Stops an intake, and adds its report up.
    pub(super) async fn stop(&self, intake: Intake) -> Result<IntakeReport, Broken> {
        self.stop_within(intake, self.patience).await
    }

    pub(super) async fn stop_within(
        &self,
        intake: Intake,
        limit: Duration,
    ) -> Result<IntakeReport, Broken> {
        let stopped = tokio::time::timeout(self.patience * 2, async {
            intake.stop().within(limit).await
        });
        let report = stopped
            .await
            .map_err(|_| Broken::new(self.with_wrongs("the stop did not end".to_owned())))?;
        adds_up(&report)?;
        Ok(report)
    }

    /// Waits until the server has nothing left, stops, and judges. Every message must be handled.
    pub(super) async fn finish(self, intake: Intake, evidence: Evidence) -> Result<(), Broken> {
        self.nothing_left().await?;
        self.stop(intake).await?;
        self.judge(evidence)
    }

    /// Judges the whole history.
    pub(super) fn judge(&self, evidence: Evidence) -> Result<(), Broken> {
        if let Some(first) = self.witness.wrong().first() {
            return Err(Broken::new(first.clone()));
        }
        let evidence = evidence.quiescent(Instant::now());
        let is_ordered = self.features.is_ordered();
        match self.history.check(&evidence) {
            Ok(verdict) => {
                let judged = RULES.iter().all(|rule| match verdict.finding(*rule) {
                    Finding::Holds | Finding::InPart(_) => true,
                    Finding::NotJudged(_) => *rule == Rule::Acks,
                });
                expect(judged, || format!("the evidence is not enough:\n{verdict}"))
            }
            Err(mut violations) => {
                violations.retain(|violation| is_ordered || violation.rule != Rule::Order);
                let texts: Vec<_> = violations.iter().map(ToString::to_string).collect();
                expect(texts.is_empty(), || texts.join("\n"))
            }
        }
    }

    fn with_wrongs(&self, what: String) -> String {
        let wrong = self.witness.wrong();
        match wrong.is_empty() {
            true => what,
            false => format!("{what}; and: {}", wrong.join("; ")),
        }
    }
}

/// Checks S7: received = acked + dead-lettered + nacked + given back.
pub(super) fn adds_up(report: &IntakeReport) -> Result<(), Broken> {
    let sum = report.acked + report.dead_lettered + report.nacked + report.given_back;
    expect(sum == report.received, || {
        format!("the report does not add up: {report}")
    })
}
