//! The source: gets and releases partitions, hands over records, commits settled ones.
//!
//! ```text
//!  thread of the session          task of the driver                    threads that may block
//!  ───────────────────── News ──► assignment: partition, frontier
//!  assigned, revoked, lost
//!  thread that reads ahead
//!  ─────────────── messages ────► receive: partitions ──► deliveries
//!                                 settle:  outcomes ──► frontiers ─────► commit
//!         ◄── release dropped ─── release: committed, and gone           reread, probe
//! ```
//!
//! A call of the source may be dropped at each of its awaits. The source keeps the work of other
//! threads, and its next call looks at it.

mod anew;
mod builder;
mod failures;
mod group;
mod in_log;
mod inspecting;
mod inspection;
mod intake;
mod job;
mod letter_topic;
mod letters;
mod probe;
mod receiving;
mod rereading;
mod settle;
mod starting;
mod state;
mod status;
mod unavailable;

pub use state::KafkaSource;

use std::sync::Arc;
use std::time::Duration;

use job::blocking;
use keylane_source::{
    Deliveries, Describer, Features, Generation, Received, Settlement, Source, SourceError,
    SourceLetter,
};
use tokio::time::{Instant, timeout};

use crate::core::KafkaPosition;
use crate::core::StartAt;
use crate::explain::only_tls;
use crate::link::{Prefetcher, Session, at_first_start, first_answer};

/// How long the source waits for an earlier session to end.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

impl<M: Send + Sync + 'static> Source for KafkaSource<M> {
    type Message = M;
    type Position = KafkaPosition;

    fn name(&self) -> String {
        self.config.name()
    }

    fn describer(&self) -> Describer<KafkaPosition> {
        self.assignment.describer()
    }

    fn features(&self) -> Features {
        let features = Features::new().survives_restart().random_access();
        match &self.config.letters {
            Some(_) => features.dead_letters(),
            None => features,
        }
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        if let Some(session) = self.abandon() {
            // The source may have failed for another reason before it heard that.
            self.is_name_taken |= session.has_lost_name();
            // Otherwise the group has two members of this process for a while, and our partitions
            // wait for one of them.
            let _ = timeout(LEAVE_WITHIN, session.close()).await;
        }
        let (maker, wake) = (self.maker.clone(), Arc::clone(&self.wake));
        let prefetcher = Prefetcher::start(maker, wake).map_err(SourceError::failed)?;
        let session = Session::open(&self.config, &self.topics, &self.wake, prefetcher.thread());
        let session = session.map_err(SourceError::failed)?;
        self.prefetcher = Some(prefetcher);
        let (consumer, mut refused) = (Arc::clone(&session.consumer), session.refused.clone());
        self.session = Some(session);
        let asked = blocking(move || first_answer(&consumer));
        // What an operator must mend is known long before the time is over.
        let answer = tokio::select! {
            biased;
            Ok(refused) = refused.wait_for(Option::is_some) => {
                return match refused.clone() {
                    Some(error) => Err(SourceError::failed(error)),
                    None => Err(SourceError::failed("no broker answers")),
                };
            }
            answer = asked => answer?,
        };
        if let Err(error) = answer {
            let brokers = self.config.brokers();
            if !self.config.has_tls()
                && let Some(error) = only_tls(brokers).await
            {
                return Err(SourceError::failed(error));
            }
            let what = format!("no broker answers at {brokers}: {error}");
            return Err(SourceError::failed(what));
        }
        if self.config.settings.start_at == StartAt::Latest && self.at_end.is_none() {
            // Before it joins: a member that joins at the same time has committed nothing by then.
            let (consumer, config) = (self.consumer()?, Arc::clone(&self.config));
            let asked = blocking(move || at_first_start(&consumer, config.names()));
            let at_end = asked.await?.map_err(SourceError::failed)?;
            self.at_end = Some(Arc::new(at_end));
        }
        self.wait_for_name().await?;
        let config = Arc::clone(&self.config);
        let joined = self.session()?.join(&config);
        joined.map_err(SourceError::failed)?;
        self.unavailable.look_now();
        self.inspection.look_soon();
        self.letter_topic.look_now();
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<M, KafkaPosition>,
    ) -> Result<Received<KafkaPosition>, SourceError> {
        self.next(into).await
    }

    async fn settle(&mut self, settled: &[Settlement<KafkaPosition>]) -> Result<(), SourceError> {
        self.assignment.settle(settled, Instant::now());
        if settled.iter().any(|one| !one.outcome.is_ack()) {
            self.rewind_soon();
        }
        self.commit_if_due()
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.commit_all().await
    }

    async fn release(&mut self, generations: &[Generation]) -> Result<(), SourceError> {
        // Commits the records that settled after the last confirmation.
        self.commit_all().await?;
        self.let_go(generations).await
    }

    async fn reread(
        &mut self,
        positions: &[KafkaPosition],
        into: &mut Deliveries<M, KafkaPosition>,
    ) -> Result<(), SourceError> {
        self.read_again(positions, into).await
    }

    async fn dead_letter(
        &mut self,
        letter: SourceLetter<KafkaPosition>,
    ) -> Result<(), SourceError> {
        self.keep_letter(letter).await
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        if let Some(session) = self.abandon() {
            session.close().await;
        }
        self.figures.show(&[]);
        self.control.publish(Vec::new());
        Ok(())
    }
}
