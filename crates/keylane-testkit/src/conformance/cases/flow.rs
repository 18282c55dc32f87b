//! The way of messages through a dispatcher while all is well.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};

use super::{Result, Stage};
use crate::check::Evidence;
use crate::conformance::broken::{Broken, expect};
use crate::conformance::harness::Site;
use crate::conformance::message::{id_of, payload};
use crate::conformance::stage::{A_WHILE, built, settings, spawn};
use crate::gate::Gate;
use crate::scenario::{boxed, by_key};
use crate::script::{Act, Script};

/// Many messages of several keys, handled in turns.
pub(in super::super) async fn order<T: Site>(mut stage: Stage<T>) -> Result {
    let script = Script::new(&stage.history)
        .choose(|cue| Act::ok().sleeps(Duration::from_millis(cue.id % 3)));
    let consumer = spawn(script)?;
    let intake = stage.consume(&consumer).await?;
    let mut sent = stage.publish_each(0..8, 20).await?;
    sent.extend(stage.publish_each(4..12, 20).await?);
    stage.handled(&sent).await?;
    stage.finish(intake, Evidence::new()).await
}

/// One key is slow; the others do not wait for it.
pub(in super::super) async fn slow_key<T: Site>(mut stage: Stage<T>) -> Result {
    let gate = Gate::new();
    let script = Script::new(&stage.history).key(0, Act::ok().waits(&gate));
    let consumer = spawn(script)?;
    let slow = stage.publish([0]).await?;
    let others = stage.publish_each(1..6, 20).await?;
    let intake = stage.consume(&consumer).await?;
    stage.handled(&others).await?;
    expect(!stage.history.handled().contains(&slow[0]), || {
        "the slow one is handled".to_owned()
    })?;
    gate.open();
    stage.finish(intake, Evidence::new()).await
}

/// A key has more messages than its lane takes; the others do not wait for it. If the source reads
/// positions again, most of them are deferred.
pub(in super::super) async fn hot_key<T: Site>(mut stage: Stage<T>) -> Result {
    let gate = Gate::new();
    let script = Script::new(&stage.history).key(0, Act::ok().waits(&gate));
    let consumer = spawn(script)?;
    let intake = stage.consume(&consumer).await?;
    let mut hot = stage.publish(vec![0; 20]).await?;
    let is_full = || consumer.stats().full_lanes == 1;
    stage.until("the lane is full", is_full).await?;
    let defers = stage.features.has_random_access();
    hot.extend(stage.publish(vec![0; if defers { 75 } else { 40 }]).await?);
    let others = stage.publish_each(1..6, 20).await?;
    stage.handled(&others).await?;
    let waits = || intake.stats().aside > 0;
    stage
        .until("messages wait beside their lane", waits)
        .await?;
    let are_deferred = || !defers || intake.stats().deferred > 0;
    stage
        .until("messages of the hot key are deferred", are_deferred)
        .await?;
    gate.open();
    stage.handled(&hot).await?;
    let failures = stage.witness.seen().failures;
    expect(failures == 0, || {
        format!("the source failed {failures} times")
    })?;
    stage.finish(intake, Evidence::new()).await
}

/// With room for ten messages a source hands over ten.
pub(in super::super) async fn room<T: Site>(mut stage: Stage<T>) -> Result {
    const ROOM: usize = 10;
    let gate = Gate::new();
    let script = Script::new(&stage.history).otherwise(Act::ok().waits(&gate));
    let consumer = spawn(script)?;
    let sent = stage.publish_each(100..150, 1).await?;
    let intake = stage.consume_with(&consumer, settings().held(ROOM)).await?;
    let is_full = || stage.witness.held().1 >= ROOM;
    stage.until("the room is used", is_full).await?;
    tokio::time::sleep(A_WHILE).await;
    let (most, _) = stage.witness.held();
    expect(most <= ROOM, || {
        format!("{most} messages were held, with room for {ROOM}")
    })?;
    gate.open();
    stage.handled(&sent).await?;
    stage.finish(intake, Evidence::new()).await
}

/// The handled messages: key and payload.
type Parcels = Arc<Mutex<Vec<(Option<Bytes>, Bytes)>>>;

type Receiver = Dispatcher<Bytes, RawMessage, (), BoxError>;

/// Returns a consumer that records what it handles. Its engine is compiled with this crate, and
/// not again in each program that has dispatchers and handlers of these types.
fn receiver(parcels: &Parcels) -> std::result::Result<Receiver, Broken> {
    let parcels = Arc::clone(parcels);
    let handler = boxed(move |message: RawMessage| {
        let mut seen = parcels.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push((message.key, message.payload));
        async { Ok(()) }
    });
    built(by_key().on_exhausted(OnExhausted::Halt).spawn(handler))
}

/// Keys and payloads arrive as they were sent.
pub(in super::super) async fn payloads<T: Site>(stage: Stage<T>) -> Result {
    let large = RawMessage::new(payload(1, 1 << 20));
    let binary: Vec<u8> = (0..=255).collect();
    let sent = vec![
        large.clone().key("large"),
        RawMessage::new(payload(2, 8)).key(""),
        RawMessage::new(payload(3, 9)),
        RawMessage::new(payload(4, 300)).key(binary.clone()),
        RawMessage::new(binary).key("bytes"),
        RawMessage::new("").key("nothing"),
        RawMessage::new(payload(5, 8)).key("\u{1F512} key\n\0"),
        RawMessage::new(payload(6, 8)).key(""),
        RawMessage::new(payload(7, 100)).key("large"),
    ];
    stage.witness.expect(sent.iter().filter_map(id_of));
    stage.site.publish(sent.clone()).await?;
    let parcels = Parcels::default();
    let consumer = receiver(&parcels)?;
    let intake = consumer.consume_with(stage.watched().await?, settings());
    let intake = intake.map_err(|error| Broken::new(error.to_string()))?;
    let count = || parcels.lock().unwrap_or_else(PoisonError::into_inner).len();
    stage
        .until("all were handled", || count() >= sent.len())
        .await?;
    stage.nothing_left().await?;
    stage.stop(intake).await?;
    let parcels = parcels.lock().unwrap_or_else(PoisonError::into_inner);
    let of_key = |key: &Option<Bytes>| {
        let of_key = parcels.iter().filter(|(other, _)| other == key);
        of_key
            .map(|(_, payload)| payload.clone())
            .collect::<Vec<_>>()
    };
    for message in &sent {
        let theirs = sent.iter().filter(|other| other.key == message.key);
        let theirs: Vec<_> = theirs.map(|other| other.payload.clone()).collect();
        let (mut came, mut sent) = (of_key(&message.key), theirs);
        if !stage.features.is_ordered() {
            came.sort_unstable();
            sent.sort_unstable();
        }
        expect(came == sent, || {
            let sizes = |payloads: &[Bytes]| payloads.iter().map(Bytes::len).collect::<Vec<_>>();
            format!(
                "of the key {:?} came payloads of {:?} bytes, and not those of {:?} that were sent",
                message.key,
                sizes(&came),
                sizes(&sent)
            )
        })?;
    }
    Ok(())
}
