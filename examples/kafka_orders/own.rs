//! One member of a group in the user's own cluster.

use std::time::Duration;

use keylane_kafka::KafkaSource;
use tokio::time::{Instant, interval, sleep};

use crate::arguments::Own;
use crate::block::Block;
use crate::member::Member;
use crate::observer::Observer;
use crate::stop::stop_signal;
use crate::{Failure, mounted, say};

/// Consumes until Ctrl-C, and stops in order.
pub(crate) async fn consume(own: &Own) -> Result<(), Failure> {
    let stops = stop_signal();
    tokio::pin!(stops);
    let source = KafkaSource::builder(&own.brokers, &own.group).topic(&own.topic);
    let properties = own.properties.iter();
    let source = properties
        .fold(source, |source, (name, value)| source.property(name, value))
        .build()?;
    let observer = tokio::select! {
        observer = Observer::new(&own.brokers, &own.topic, &own.group, &own.properties) => observer?,
        () = &mut stops => return Err("interrupted".into()),
    };
    let work = own.work;
    let mut member = Member::start(source, move |_| async move {
        sleep(work).await;
        Ok(())
    })?;
    let console = mounted::serve(member.console()?).await?;
    say::line(format_args!(
        "http://{console}   the console\n{} is consumed as a member of {}; Ctrl-C ends it.\n",
        own.topic, own.group
    ));
    let began = Instant::now();
    let mut beat = interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            _ = beat.tick() => {}
            () = &mut stops => break,
        }
        let status = member.status();
        match observer.see().await {
            Ok(partitions) => {
                let block = Block {
                    elapsed: began.elapsed(),
                    produced: None,
                    handled: status.handled,
                    members: &[("this".to_owned(), status)],
                    partitions: &partitions,
                };
                say::block(block);
            }
            // The source tries again as well.
            Err(error) => say::error(&*error),
        }
    }
    say::line("it stops: what has begun is finished and committed");
    say::line(member.stop().await);
    Ok(())
}
