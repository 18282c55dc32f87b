//! Optional features that a source declares.

use std::time::Duration;

use keylane::source::{Deliveries, Source};
use tokio::time::{Instant, timeout};

use super::{Result, Stage};
use crate::check::Evidence;
use crate::conformance::broken::{Broken, expect};
use crate::conformance::direct::ids;
use crate::conformance::harness::Site;
use crate::conformance::stage::{adds_up, spawn};
use crate::script::{Act, Script};

/// A message that is held for longer than its lease comes again; one whose lease is extended does
/// not.
pub(in super::super) async fn lease<T: Site>(mut stage: Stage<T>) -> Result {
    let lease = stage.features.lease_of().unwrap_or_default();
    let sent = stage.publish([1]).await?;
    let mut direct = stage.direct().await?;
    let first = direct.receive(1).await?;
    for _ in 0..9 {
        let position = first[0].position.clone();
        direct
            .within(async |source| source.extend(&[position]).await)
            .await?;
        let again = direct.receive_for(1, lease / 3).await?;
        expect(again.is_empty(), || {
            "what was extended came again".to_owned()
        })?;
    }
    let again = direct
        .receive_for(1, lease * 2 + stage.patience / 2)
        .await?;
    expect(ids(&again) == sent, || {
        "what was held for longer than its lease did not come again".to_owned()
    })?;
    direct.ack(again.iter().map(|one| &one.position)).await?;
    drop(direct);
    stage.nothing_left().await?;

    // The driver extends the lease while a handler runs.
    let earlier = sent;
    let sent = stage.publish([2, 2]).await?;
    let script = Script::new(&stage.history).otherwise(Act::ok().sleeps(lease * 3));
    let consumer = spawn(script)?;
    let intake = stage.consume(&consumer).await?;
    tokio::time::sleep(lease * 6).await;
    stage.handled(&sent).await?;
    stage
        .finish(intake, Evidence::new().handed_back(earlier))
        .await
}

/// Positions are read again in the requested order, without those that are settled.
pub(in super::super) async fn random_access<T: Site>(mut stage: Stage<T>) -> Result {
    let sent = stage.publish([1, 1, 1, 1, 1]).await?;
    let mut direct = stage.direct().await?;
    let handed = direct.receive(5).await?;
    let chosen = [3, 1, 4].map(|at: usize| handed[at].position.clone());
    let mut into = Deliveries::new(3, Instant::now());
    direct
        .within(async |source| source.reread(&chosen, &mut into).await)
        .await?;
    let again = into.take();
    let wanted = [sent[3], sent[1], sent[4]];
    let is_same = ids(&again) == wanted
        && again
            .iter()
            .zip(&chosen)
            .all(|(one, position)| one.position == *position)
        && again[0].message.payload == handed[3].message.payload;
    expect(is_same, || {
        format!(
            "{wanted:?} were to be read again, and {:?} came",
            ids(&again)
        )
    })?;
    direct.ack([&chosen[1]]).await?;
    let mut into = Deliveries::new(3, Instant::now());
    direct
        .within(async |source| source.reread(&chosen, &mut into).await)
        .await?;
    let again = into.take();
    let wanted = [sent[3], sent[4]];
    expect(ids(&again) == wanted, || {
        format!(
            "without what is settled {wanted:?} are left, and {:?} came",
            ids(&again)
        )
    })?;
    let rest = handed.iter().map(|one| &one.position);
    direct
        .ack(rest.filter(|position| **position != chosen[1]))
        .await?;
    drop(direct);
    stage.nothing_left().await
}

/// Attempts are counted across processes.
pub(in super::super) async fn attempts<T: Site>(mut stage: Stage<T>) -> Result {
    stage.publish([1]).await?;
    for before in 0..3 {
        let mut direct = stage.direct().await?;
        let handed = direct.receive(1).await?;
        let counted = handed[0].attempts;
        expect(counted == before, || {
            format!("{before} attempts were started, and {counted} are counted")
        })?;
        let guard = direct.source.start_guard();
        let guard = guard.ok_or_else(|| Broken::new("it counts attempts, and has no guard"))?;
        let until = Instant::now() + stage.patience;
        // It may be asked for again, while the source is received from.
        while let Err(error) = guard.starts(0, &handed[0].position, before + 1) {
            if Instant::now() >= until {
                let error = format!("an attempt could not start: {error}");
                return Err(Broken::new(error));
            }
            direct.receive_for(1, Duration::from_millis(100)).await?;
        }
        // The process ends here.
    }
    let mut direct = stage.direct().await?;
    let handed = direct.receive(1).await?;
    direct.ack([&handed[0].position]).await?;
    drop(direct);
    stage.nothing_left().await
}

/// A finite source comes to its end when everything was handed over.
pub(in super::super) async fn end<T: Site>(mut stage: Stage<T>) -> Result {
    let sent = stage.publish_each(0..4, 4).await?;
    stage.site.end().await?;
    let consumer = spawn(Script::new(&stage.history).otherwise(Act::ok().yields(1)))?;
    let intake = stage.consume(&consumer).await?;
    let ended = timeout(stage.patience, intake.ended()).await;
    let report = ended.map_err(|_| Broken::new("it did not come to its end"))?;
    adds_up(&report)?;
    let all = sent.len() as u64;
    expect(report.acked == all, || {
        format!("of {all} messages: {report}")
    })?;
    stage.nothing_left().await?;
    stage.judge(Evidence::new())
}
