//! The end of a consumer, and the start of the next one.

use std::time::Duration;

use super::{Result, Stage};
use crate::check::{Evidence, Rule};
use crate::conformance::broken::{Broken, expect};
use crate::conformance::direct::ids;
use crate::conformance::harness::{Harness, Site};
use crate::conformance::outcome::Found;
use crate::conformance::stage::{A_WHILE, adds_up, spawn};
use crate::gate::Gate;
use crate::script::{Act, Script};

/// An acked message does not come again, to any intake.
pub(in super::super) async fn acked<T: Site>(mut stage: Stage<T>) -> Result {
    let consumer = spawn(Script::new(&stage.history))?;
    let intake = stage.consume(&consumer).await?;
    let sent = stage.publish_each(0..4, 5).await?;
    stage.handled(&sent).await?;
    let report = stage.stop(intake).await?;
    expect(report.acked == sent.len() as u64, || {
        format!("all {} were handled: {report}", sent.len())
    })?;
    let mut direct = stage.direct().await?;
    let again = direct.receive_for(1, A_WHILE).await?;
    expect(again.is_empty(), || {
        format!("{:?} came again, though it was acked", ids(&again))
    })?;
    drop(direct);
    stage.judge(Evidence::new())
}

/// A message that was not handled at the end comes again, in order.
pub(in super::super) async fn handed_back<T: Site>(mut stage: Stage<T>) -> Result {
    let gate = Gate::new();
    let script = Script::new(&stage.history).otherwise(Act::ok().waits(&gate));
    let consumer = spawn(script)?;
    let intake = stage.consume(&consumer).await?;
    let sent = stage.publish_each(1..3, 5).await?;
    stage
        .until("all were received", || intake.stats().held == sent.len())
        .await?;
    stage
        .until("two handlers run", || gate.waiting() == 2)
        .await?;
    let report = stage.stop_within(intake, Duration::ZERO).await?;
    expect(report.given_back == sent.len() as u64, || {
        format!("nothing was handled: {report}")
    })?;
    gate.open();
    let intake = stage.consume(&consumer).await?;
    stage.handled(&sent).await?;
    stage.finish(intake, Evidence::new()).await
}

/// Two stops at once, while messages arrive.
pub(in super::super) async fn stop<T: Site>(mut stage: Stage<T>) -> Result {
    let script = Script::new(&stage.history).otherwise(Act::ok().sleeps(Duration::from_millis(3)));
    let consumer = spawn(script)?;
    let intake = stage.consume(&consumer).await?;
    let mut sent = stage.publish_each(0..10, 10).await?;
    stage
        .until("some were handled", || !stage.history.handled().is_empty())
        .await?;
    let stops = async { tokio::join!(intake.stop().into_future(), intake.stop().into_future()) };
    let (stopped, published) = tokio::join!(
        tokio::time::timeout(stage.patience * 2, stops),
        stage.publish_each(0..10, 5)
    );
    sent.extend(published?);
    let (one, other) = stopped.map_err(|_| Broken::new("two stops at once did not end"))?;
    expect(one == other, || {
        format!("two stops, two reports: {one}; {other}")
    })?;
    adds_up(&one)?;
    let handled = stage.history.handled().len() as u64;
    expect(one.acked == handled, || {
        format!("{handled} messages were handled: {one}")
    })?;
    let intake = stage.consume(&consumer).await?;
    stage.handled(&sent).await?;
    stage.finish(intake, Evidence::new()).await
}

/// A consumer is killed at random points: the harness does it, and the checker judges.
pub(in super::super) async fn process_killed<H: Harness>(
    harness: &H,
) -> std::result::Result<Found, Broken> {
    let Some(history) = harness.kill_process().await? else {
        return Ok(Found::LeftOut(
            "the harness cannot kill a process".to_owned(),
        ));
    };
    let evidence = Evidence::new().quiescent(tokio::time::Instant::now());
    match history.check(&evidence) {
        Ok(verdict) => {
            let acks = [Rule::NoLoss, Rule::Order, Rule::Acks, Rule::Duplicates];
            let whole = acks
                .iter()
                .all(|rule| *verdict.finding(*rule) == crate::check::Finding::Holds);
            expect(whole, || format!("the evidence is not enough:\n{verdict}"))?;
            Ok(Found::Passed)
        }
        Err(violations) => Err(Broken::new(format!("{violations:?}"))),
    }
}
