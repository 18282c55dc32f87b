//! What the metrics show of a list.

use std::time::Duration;

use keylane::source::{RawMessage, Source as _};
use metrics_exporter_prometheus::PrometheusBuilder;
use testkit_servers::RedisKind;

use crate::direct::Direct;
use crate::support::{builder, new_name, shared, until};

/// Two workers of a process say how many elements wait in one list. Each renews its lease in a
/// round trip, whose answer says it.
#[tokio::test]
async fn what_waits_in_a_list_is_published_and_two_workers_do_not_add_up() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _here = metrics::set_default_local_recorder(&recorder);
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let list = new_name("figures");
        let queue = builder(&server.url(), &list).lease(Duration::from_secs(6));
        let queue = queue.build().unwrap();
        let message = |n: u64| RawMessage::new(n.to_string()).key(n.to_string());
        let messages: Vec<_> = (0..7).map(message).collect();
        queue.push_all(&messages).await.unwrap();
        let shows = async |waiting: u64| {
            let series = format!("keylane_source_list_waiting{{source=\"list {list}\"}}");
            let line = format!("{series} {waiting}\n");
            let what = format!("{kind:?}: {waiting} wait");
            until(&what, async || handle.render().contains(&line)).await;
        };
        let mut one = Direct::open(&queue).await;
        assert_eq!(one.receive(2).await.len(), 2);
        shows(5).await;
        let mut other = Direct::open(&queue).await;
        assert_eq!(other.receive(1).await.len(), 1);
        shows(4).await;
        queue.push(&message(7)).await.unwrap();
        shows(5).await;
        one.0.close().await.unwrap();
        drop(one);
        // Its two are in the list again.
        shows(7).await;
        other.0.close().await.unwrap();
        drop(other);
        shows(0).await;
    }
}
