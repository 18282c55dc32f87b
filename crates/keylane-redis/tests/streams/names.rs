//! Streams with similar names share nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keylane::OnExhausted;
use keylane::source::RawMessage;
use keylane_redis::{Redis, StreamSource};
use keylane_testkit::scenario::{boxed, by_key};
use testkit_servers::RedisKind;

/// Two streams with two groups; stream and group together have the same text: each source gets its
/// own entries.
#[tokio::test]
async fn streams_whose_names_are_alike_share_nothing() {
    let server = testkit_servers::Redis::start(RedisKind::Redis7)
        .await
        .unwrap();
    let redis = Redis::at(&server.url()).unwrap();
    let sources: [(&[u8], &str); 6] = [
        (b"g", "orders"),
        (b"g", "{orders}"),
        (b"g:a", "b"),
        (b"g", "a:b"),
        (b"\xff", "c"),
        (b"\xfe", "c"),
    ];
    let mut all = Vec::new();
    for (group, stream) in sources {
        let source = StreamSource::builder(&redis, group)
            .stream(stream)
            .build()
            .unwrap();
        let handled = Arc::<AtomicU64>::default();
        let counts = Arc::clone(&handled);
        let dispatcher = by_key()
            .on_exhausted(OnExhausted::Halt)
            .spawn(boxed(move |_: RawMessage| {
                counts.fetch_add(1, Ordering::Relaxed);
                std::future::ready(Ok(()))
            }))
            .unwrap();
        all.push((dispatcher.consume(source).unwrap(), handled, stream));
        let id = format!("1-{}", all.len());
        server
            .execute(&["XADD", stream, &id, "payload", "x"])
            .await
            .unwrap();
    }
    for (intake, handled, stream) in &all {
        let wanted = sources.iter().filter(|(_, other)| other == stream).count() as u64;
        crate::support::until(stream, async || handled.load(Ordering::Relaxed) >= wanted).await;
        intake.stop().await;
        assert_eq!(handled.load(Ordering::Relaxed), wanted, "{stream}");
    }
}
