//! The duties of each call of a source, tested without a dispatcher.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use keylane::error::ConsumeError;
use keylane::source::{Deliveries, LetterCause, Outcome, Received, Source, SourceLetter};
use keylane::{Dispatcher, OnExhausted};
use tokio::time::{Instant, timeout};

use super::{Result, Stage};
use crate::conformance::broken::{Broken, expect};
use crate::conformance::direct::ids;
use crate::conformance::harness::Site;
use crate::conformance::stage::{A_WHILE, handler};
use crate::scenario::Random;
use crate::script::Script;

/// The source refuses undeclared features with a typed error.
pub(in super::super) async fn refusals<T: Site>(mut stage: Stage<T>) -> Result {
    let features = stage.features;
    stage.publish([1]).await?;
    let mut direct = stage.direct().await?;
    let handed = direct.receive(1).await?;
    let position = handed[0].position.clone();
    let mut refused = Vec::new();
    if features.lease_of().is_none() {
        refused.push((
            "extend",
            direct.source.extend(std::slice::from_ref(&position)).await,
        ));
    }
    if !features.has_random_access() {
        let mut into = Deliveries::new(1, Instant::now());
        let reread = direct
            .source
            .reread(std::slice::from_ref(&position), &mut into)
            .await;
        refused.push(("reread", reread));
    }
    if !features.keeps_dead_letters() {
        let letter = SourceLetter::new(
            position.clone(),
            1,
            LetterCause::Failed,
            "a letter".to_owned(),
        );
        refused.push(("dead_letter", direct.source.dead_letter(letter).await));
    }
    for (call, answer) in refused {
        let is_refused = answer.is_err_and(|error| error.is_unsupported());
        expect(is_refused, || {
            format!("`{call}` is not declared, and not refused as unsupported")
        })?;
    }
    let counts = features.does_count_attempts();
    expect(direct.source.start_guard().is_some() == counts, || {
        format!("it declares {counts} for counting attempts, and its guard says otherwise")
    })?;
    direct.ack([&position]).await?;
    drop(direct);
    if !features.keeps_dead_letters() {
        let script = Script::new(&stage.history);
        let consumer = Dispatcher::key_by_opt(|raw: &keylane::source::RawMessage| raw.key.clone())
            .on_exhausted(OnExhausted::AtSource)
            .spawn(handler(script))
            .map_err(|error| Broken::new(error.to_string()))?;
        let refused = consumer.consume(stage.site.source().await?);
        let is_refused = matches!(refused, Err(ConsumeError::NoDeadLetters));
        expect(is_refused, || {
            "it keeps no dead letters, and is consumed as if it did".to_owned()
        })?;
    }
    Ok(())
}

/// A source without messages, or without room for them, reports by `until` that it is well.
pub(in super::super) async fn idle<T: Site>(mut stage: Stage<T>) -> Result {
    let mut direct = stage.direct().await?;
    for room in [8, 0] {
        if room == 0 {
            stage.publish([1]).await?;
        }
        let until = Instant::now() + A_WHILE;
        let mut into = Deliveries::new(room, until);
        loop {
            let receive = direct.source.receive(&mut into);
            let received = timeout(A_WHILE + stage.patience / 4, receive).await;
            let received = received.map_err(|_| {
                Broken::new(format!("with room for {room} it did not return at `until`"))
            })?;
            match received.map_err(|error| Broken::new(error.to_string()))? {
                Received::Idle => break,
                // No message was handed over: the call may return early.
                Received::Messages if into.is_empty() && Instant::now() < until => {}
                other => return Err(Broken::new(format!("it said {other:?}, and not `Idle`"))),
            }
        }
        expect(into.is_empty(), || {
            format!("it handed messages over, with room for {room}")
        })?;
    }
    let handed = direct.receive(1).await?;
    direct.ack(handed.iter().map(|one| &one.position)).await
}

/// A `receive` that is dropped at an await loses nothing, and repeats nothing.
pub(in super::super) async fn dropped_receive<T: Site>(mut stage: Stage<T>) -> Result {
    const COUNT: usize = 18;
    let sent = stage.publish(vec![1; COUNT]).await?;
    let mut direct = stage.direct().await?;
    let deadline = Instant::now() + stage.patience;
    let mut random = Random::new(7);
    let mut handed = Vec::new();
    while handed.len() < COUNT && Instant::now() < deadline {
        let mut into = Deliveries::new(3, deadline);
        {
            let polls = random.below(4);
            let mut receive = pin!(direct.source.receive(&mut into));
            for _ in 0..=polls {
                match poll_fn(|cx| Poll::Ready(receive.as_mut().poll(cx))).await {
                    Poll::Ready(Ok(_)) => break,
                    Poll::Ready(Err(error)) => return Err(Broken::new(error.to_string())),
                    Poll::Pending => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        }
        handed.extend(into.take());
    }
    expect(ids(&handed) == sent, || {
        format!("of {sent:?} came {:?}", ids(&handed))
    })?;
    direct.ack(handed.iter().map(|one| &one.position)).await
}

/// A nacked message comes again in the same session, in order.
pub(in super::super) async fn nack<T: Site>(mut stage: Stage<T>) -> Result {
    let sent = stage.publish([1, 1, 1, 1]).await?;
    let mut direct = stage.direct().await?;
    let first = direct.receive(4).await?;
    let positions = first.iter().map(|one| &one.position);
    direct.settle(positions, Outcome::returned(0)).await?;
    let again = direct.receive(4).await?;
    let is_ordered = stage.features.is_ordered();
    let (mut came, mut sent) = (ids(&again), sent);
    if !is_ordered {
        came.sort_unstable();
        sent.sort_unstable();
    }
    expect(came == sent, || {
        format!("{sent:?} were given back, and {came:?} came again")
    })?;
    direct.ack(again.iter().map(|one| &one.position)).await?;
    drop(direct);
    stage.nothing_left().await
}

/// An ack of an older delivery does not ack the newer one.
pub(in super::super) async fn stale_ack<T: Site>(mut stage: Stage<T>) -> Result {
    let sent = stage.publish([1, 1]).await?;
    let mut direct = stage.direct().await?;
    let old = direct.receive(2).await?;
    direct.open().await?;
    let new = direct.receive(2).await?;
    expect(ids(&new) == sent, || {
        format!("after it was opened again {:?} came", ids(&new))
    })?;
    // The source may report that it does not know them.
    let stale = direct.ack(old.iter().map(|one| &one.position)).await;
    drop(stale);
    drop(direct);
    let mut direct = stage.direct().await?;
    let again = direct.receive_for(2, stage.patience).await?;
    expect(ids(&again) == sent, || {
        format!(
            "an ack of an older delivery counted: of {sent:?} came {:?}",
            ids(&again)
        )
    })?;
    direct.ack(again.iter().map(|one| &one.position)).await?;
    drop(direct);
    stage.nothing_left().await
}
