//! A topic, its published records, and the history of its handlers, over all members of the group.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::{Intake, IntakeReport, IntakeSettings};
use keylane::source::{RawMessage, Source};
use keylane::{Context, Dispatcher, OnExhausted, Overflow, Retry};
use keylane_kafka::{Control, KafkaSourceBuilder, PartitionStatus, Place};
pub(crate) use keylane_testkit::scenario::until_async as until;
use keylane_testkit::{Act, History, Id, Key, Script, ScriptError};

use crate::support::{Topic, shared, show_log};

/// Handles the messages of a member.
pub(crate) type Consumer = Dispatcher<Bytes, RawMessage, Id, ScriptError>;

/// The message `id` of a key. Its payload is its id.
pub(crate) fn message(key: Key, id: Id) -> RawMessage {
    RawMessage::new(id.to_be_bytes().to_vec()).key(key.to_string())
}

/// The id of a message that was made by [`message`].
pub(crate) fn id_of(raw: &RawMessage) -> Option<Id> {
    let id = raw.payload.get(..8)?;
    Some(Id::from_be_bytes(id.try_into().ok()?))
}

fn key_of(raw: &RawMessage) -> Option<Key> {
    std::str::from_utf8(raw.key.as_ref()?).ok()?.parse().ok()
}

/// The partition and the offset of a message.
pub(crate) fn place_of(raw: &RawMessage) -> (i32, u64) {
    let place = Place::of(raw).expect("a place");
    (place.partition, place.offset)
}

/// The state that the handlers of all members share.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) topic: Topic,
    pub(crate) history: History,
    /// The handled messages, in their order.
    done: Arc<Mutex<Vec<RawMessage>>>,
    seqs: Arc<Mutex<(Id, BTreeMap<Key, u64>)>>,
}

impl Stage {
    /// Creates a stage with a topic of this many partitions, on the shared broker.
    pub(crate) async fn new(partitions: i32) -> Self {
        show_log();
        Self::of(Topic::new(shared().await, partitions).await)
    }

    pub(crate) fn of(topic: Topic) -> Self {
        Self {
            topic,
            history: History::new(),
            done: Arc::default(),
            seqs: Arc::default(),
        }
    }

    /// A script that records in the history of this stage.
    pub(crate) fn script(&self) -> Script {
        Script::new(&self.history)
    }

    /// Publishes one message for each of these keys, in this order. Returns the ids.
    pub(crate) async fn publish(&self, keys: impl IntoIterator<Item = Key>) -> Vec<Id> {
        self.publish_to(None, keys).await
    }

    /// Does the same, in one partition.
    pub(crate) async fn publish_to(
        &self,
        partition: Option<i32>,
        keys: impl IntoIterator<Item = Key>,
    ) -> Vec<Id> {
        let (mut ids, mut messages, mut sendings) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            let (id, seq) = {
                let (last, seqs) = &mut *self.seqs.lock().unwrap();
                *last += 1;
                let seq = seqs.entry(key).or_default();
                *seq += 1;
                (*last, *seq)
            };
            ids.push(id);
            messages.push(message(key, id));
            sendings.push(self.history.sending(key, seq, id));
        }
        self.topic.produce_to(partition, messages).await;
        sendings.into_iter().for_each(keylane_testkit::Sending::ok);
        ids
    }

    /// Returns the handled messages so far.
    pub(crate) fn done(&self) -> Vec<RawMessage> {
        self.done.lock().unwrap().clone()
    }

    /// Returns the offsets of this partition that were handled, with repetitions.
    pub(crate) fn offsets(&self, partition: i32) -> Vec<u64> {
        let mut offsets: Vec<_> = self
            .done
            .lock()
            .unwrap()
            .iter()
            .map(place_of)
            .filter_map(|(number, offset)| (number == partition).then_some(offset))
            .collect();
        offsets.sort_unstable();
        offsets
    }

    /// Waits until this many messages were handled.
    pub(crate) async fn handled(&self, count: usize) {
        let what = format!("{count} messages were handled");
        until(&what, async || self.done.lock().unwrap().len() >= count).await;
    }

    /// Waits until the group has committed everything.
    pub(crate) async fn nothing_left(&self) {
        until("nothing is left", async || self.topic.left().await == 0).await;
    }

    /// Waits until the group has committed these offsets, one for each partition.
    pub(crate) async fn committed(&self, offsets: &[u64]) {
        let what = format!("{offsets:?} is committed");
        let are = async || {
            let committed = self.topic.committed().await;
            committed
                .iter()
                .map(|(at, _)| *at)
                .eq(offsets.iter().map(|at| Some(*at)))
        };
        until(&what, are).await;
    }

    /// Waits until the group has committed this offset of one partition.
    pub(crate) async fn committed_of(&self, partition: usize, offset: u64) {
        let what = format!("{offset} is committed of partition {partition}");
        let is = async || self.topic.committed().await[partition].0 == Some(offset);
        until(&what, is).await;
    }

    /// Creates a dispatcher that handles messages by this script.
    pub(crate) fn consumer(&self, script: Script) -> Consumer {
        self.consumer_that(OnExhausted::Halt, script)
    }

    /// Does the same, with this policy for messages that fail each time.
    pub(crate) fn consumer_that(
        &self,
        on_exhausted: OnExhausted<Bytes, RawMessage, ScriptError>,
        script: Script,
    ) -> Consumer {
        let done = Arc::clone(&self.done);
        let handler = move |context: Context<Bytes>, raw: RawMessage| {
            let id = id_of(&raw).unwrap_or_default();
            let run = script.run(key_of(&raw), id, context.attempt());
            let done = Arc::clone(&done);
            async move {
                let id = run.await?;
                done.lock().unwrap().push(raw);
                Ok(id)
            }
        };
        Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
            .concurrency(256)
            .lane_capacity(8, Overflow::Wait)
            .retry(Retry::fixed(Duration::from_millis(5)).max_attempts(5))
            .on_exhausted(on_exhausted)
            .spawn(handler)
            .expect("a consumer")
    }

    /// A member of the group whose handlers succeed at once.
    pub(crate) fn member(&self) -> Member {
        self.member_of(self.topic.builder(), self.script())
    }

    /// A member of the group whose handlers do what this script says.
    pub(crate) fn member_with(&self, script: Script) -> Member {
        self.member_of(self.topic.builder(), script)
    }

    pub(crate) fn member_of(&self, builder: KafkaSourceBuilder, script: Script) -> Member {
        let source = builder.build().expect("a source");
        let control = source.control();
        let consumer = self.consumer(script);
        Member::new(source, control, consumer)
    }
}

/// A source that is consumed.
pub(crate) struct Member {
    pub(crate) consumer: Consumer,
    pub(crate) intake: Intake,
    pub(crate) control: Control,
}

impl Member {
    pub(crate) fn new(
        source: impl Source<Message = RawMessage>,
        control: Control,
        consumer: Consumer,
    ) -> Self {
        Self::with(source, control, consumer, IntakeSettings::new())
    }

    pub(crate) fn with(
        source: impl Source<Message = RawMessage>,
        control: Control,
        consumer: Consumer,
        settings: IntakeSettings,
    ) -> Self {
        let settings = settings
            .revoke_within(Duration::from_secs(1))
            .longest_pause(Duration::from_millis(500))
            .confirm_every(Duration::from_millis(20));
        let intake = consumer.consume_with(source, settings).expect("an intake");
        Self {
            consumer,
            intake,
            control,
        }
    }

    /// Returns its status of a partition of its first topic.
    pub(crate) fn status(&self, partition: i32) -> Option<PartitionStatus> {
        let all = self.control.partitions();
        all.into_iter().find(|one| one.partition == partition)
    }

    /// Waits until it has this many partitions.
    pub(crate) async fn has(&self, partitions: usize) {
        let what = format!("the member has {partitions} partitions");
        until(&what, async || {
            self.control.partitions().len() == partitions
        })
        .await;
    }

    /// Stops. Messages in flight are dropped soon.
    pub(crate) async fn stop(self) -> IntakeReport {
        let report = self.intake.stop().within(Duration::from_millis(100)).await;
        let sum = report.acked + report.dead_lettered + report.nacked + report.given_back;
        assert_eq!(sum, report.received, "{report}");
        report
    }
}

/// A script in which these messages wait at a gate, and all others succeed.
pub(crate) fn waiting(
    stage: &Stage,
    gate: &keylane_testkit::Gate,
    waits: impl Fn(Id) -> bool + Send + Sync + 'static,
) -> Script {
    let gate = gate.clone();
    stage.script().choose(move |cue| match waits(cue.id) {
        true => Act::ok().waits(&gate),
        false => Act::ok(),
    })
}
