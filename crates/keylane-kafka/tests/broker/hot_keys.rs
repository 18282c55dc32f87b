//! Keys that have more than there is room for.

use std::time::Duration;

use keylane::IntakeSettings;

use crate::consumer::{Consumer, record, text_of};
use crate::support::{Topic, shared};

/// Half of the records are of a key that stands still, and there are many times as many of them as the
/// source may hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_stands_still_does_not_stop_the_others() {
    const EACH: usize = 3_000;
    let topic = Topic::new(shared().await, 2).await;
    let hot = (0..EACH).map(|n| record("hot", format!("{n:05}")));
    let others = (0..EACH).map(|n| record(&format!("{}", n % 50), "other"));
    let sent = hot.zip(others).flat_map(|(hot, other)| [hot, other]);
    topic.produce(sent.collect()).await;
    let source = topic.builder().build().expect("a source");
    let control = source.control();
    let settings = IntakeSettings::new()
        .held(300)
        .deferred(100_000)
        .revoke_within(Duration::from_millis(300));
    let consumer = Consumer::holding_with(source, &["hot"], settings);
    consumer.until_handled(EACH).await;
    assert!(consumer.handled().iter().all(|raw| raw.payload == "other"));
    // Its first record holds the frontier of its partition back.
    let open: usize = control.partitions().iter().map(|one| one.open).sum();
    assert!(open <= EACH);

    consumer.let_go();
    consumer.until_handled(2 * EACH).await;
    let handled = consumer.handled();
    let hot = handled
        .iter()
        .filter(|raw| raw.key.as_deref() == Some(b"hot"));
    let hot: Vec<_> = hot.map(|raw| text_of(&raw.payload)).collect();
    let in_order: Vec<_> = (0..EACH).map(|n| format!("{n:05}")).collect();
    assert_eq!(hot, in_order);
    consumer.stop().await;
    assert_eq!(topic.left().await, 0);
}
