//! What the metrics show of a stream.

use keylane::source::Source as _;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use testkit_servers::RedisKind;

use crate::support::{Client, Driven, builder, builder_without_time, new_name, shared, until};

/// Returns what is published of a stream, or nothing.
fn value(handle: &PrometheusHandle, stream: &str, what: &str) -> Option<u64> {
    let name = format!("keylane_source_stream_{what}{{");
    let stream = format!("stream=\"{stream}\"}} ");
    let text = handle.render();
    let line = text
        .lines()
        .find(|line| line.starts_with(&name) && line.contains(&stream))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn the_lag_of_a_stream_is_published_by_its_owner() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _here = metrics::set_default_local_recorder(&recorder);
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let client = Client::to(&server).await;
        let stream = new_name("figures");
        // The first is from 1970, by its id.
        let first = ["XADD", &*stream, "1000-0", "key", "a", "payload", "0"];
        client.run::<String>(&first).await;
        client.add_all(&stream, 1..7).await;
        let source = builder(&server.url(), "billing").stream(stream.clone());
        let mut source = Driven::open(source.read_ahead(2).build().unwrap()).await;
        let handed = source.receive(2).await;
        let value = |what: &str| value(&handle, &stream, what);
        until("what the group has read is pending", async || {
            let all = value("lag").zip(value("pending"));
            all.is_some_and(|(lag, pending)| lag + pending == 7 && lag > 0 && pending >= 2)
        })
        .await;
        assert!(value("oldest_seconds").unwrap() > 1_000_000_000);
        source.ack(&handed).await;
        let rest = source.receive(5).await;
        until("all were read", async || {
            value("lag") == Some(0) && value("pending") == Some(5)
        })
        .await;
        // The others were made by this clock.
        assert!(value("oldest_seconds").unwrap() < 1_000);
        source.ack(&rest).await;
        until("nothing is left", async || {
            value("pending") == Some(0) && value("oldest_seconds") == Some(0)
        })
        .await;
        source.0.close().await.unwrap();
    }
}

/// A question that fails is no failure of the stream. The question asks for the time, and so do
/// leases and members, which are elsewhere, or go on without.
#[tokio::test]
async fn a_user_who_may_not_ask_for_the_lag_reads_all_the_same() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _here = metrics::set_default_local_recorder(&recorder);
    let server = shared(RedisKind::Redis7).await;
    let client = Client::to(&server).await;
    let stream = new_name("figures");
    client.add_all(&stream, 0..3).await;
    let source = builder_without_time(&server, &client, "billing").await;
    let source = source.stream(stream.clone()).build().unwrap();
    let mut source = Driven::open(source).await;
    for handed in [source.receive(2).await, source.receive(1).await] {
        source.ack(&handed).await;
    }
    assert_eq!(value(&handle, &stream, "pending"), Some(0));
    assert_eq!(client.left(&stream, "billing").await, 0);
    source.0.close().await.unwrap();
}
