//! Former owners that do not know that they have lost the stream.

use std::sync::Arc;
use std::time::Duration;

use keylane::source::{Received, Source as _};
use keylane_leases::{Leases, MemoryStore};
use keylane_redis::StreamSource;
use testkit_servers::RedisKind;

use crate::support::{Client, Driven, LEASE, builder, new_name, payloads, shared, texts, until};

/// Leases of a store of its own, which begins with this token. The tokens of two stores must be far
/// apart: a source that is refused gets the next one at each try.
async fn leases_from(token: u64) -> Leases {
    let leases = Leases::open(Arc::new(MemoryStore::new())).unwrap();
    for _ in 1..token {
        leases.acquire("any", LEASE).await.unwrap().release().await;
    }
    leases
}

/// Its members do not know the others, which are beside another stream.
async fn source(url: &str, name: &str, token: u64) -> StreamSource {
    let builder = builder(url, "g")
        .stream(new_name("other"))
        .stream(name.to_owned());
    builder.leases(leases_from(token).await).build().unwrap()
}

/// Both believe that they own the stream, as after a pause of the first one's process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ack_of_a_former_owner_is_refused() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("fence"));
        client.add_all(&name, 0..5).await;
        let mut first = Driven::open(source(&server.url(), &name, 1).await).await;
        let handed = first.receive(5).await;
        first.ack(&handed[..1]).await;
        let mut second = Driven::open(source(&server.url(), &name, 107).await).await;
        let again = second.receive(4).await;
        assert_eq!(payloads(&again), texts(1..5));

        first.settle(&handed[1..3]).await;
        let refused = first.0.confirm().await;
        assert!(refused.is_err(), "a late ack was confirmed");
        assert_eq!(first.0.watch().counts().refused, 2);
        assert_eq!(client.pending(&name, "g").await.len(), 4);
        let (_, received) = first.once(1, Duration::from_secs(1)).await;
        assert_eq!(received, Received::Lost(vec![handed[0].generation]));
        second.ack(&again).await;
        assert_eq!(client.pending(&name, "g").await, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_former_owner_counts_nothing_and_cuts_nothing_off() {
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("fence-note"));
    client.add_all(&name, 0..2).await;
    let mut first = Driven::open(source(&server.url(), &name, 1).await).await;
    let handed = first.receive(2).await;
    let mut second = Driven::open(source(&server.url(), &name, 112).await).await;
    let again = second.receive(2).await;
    let guard = first.0.start_guard().unwrap();
    assert!(guard.starts(0, &handed[0].position, 2).is_err());
    first.receive_for(Duration::from_millis(300)).await;
    assert!(guard.starts(0, &handed[0].position, 2).is_err());
    let pending = client.pending(&name, "g").await;
    assert!(pending.iter().all(|(_, count)| *count == 1), "{pending:?}");
    second.ack(&again).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lower_token_takes_nothing_over() {
    let server = shared(RedisKind::Valkey9).await;
    let (client, name) = (Client::to(&server).await, new_name("fence-low"));
    client.add_all(&name, 0..4).await;
    let mut high = Driven::open(source(&server.url(), &name, 112).await).await;
    let handed = high.receive(4).await;
    // Tokens 113 and 9: as text, 9 would be above 113.
    let mut low = Driven::open(source(&server.url(), &name, 8).await).await;
    let of_low = low.receive_for(Duration::from_millis(500)).await;
    assert_eq!(payloads(&of_low), texts([]));
    high.ack(&handed).await;
    assert_eq!(high.0.watch().counts().refused, 0);
}

/// The token of an owner stays when the owner has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lower_token_takes_nothing_over_from_an_owner_that_has_left() {
    let server = shared(RedisKind::Redis8).await;
    let (client, name) = (Client::to(&server).await, new_name("fence-left"));
    client.add_all(&name, 0..4).await;
    let mut high = Driven::open(source(&server.url(), &name, 112).await).await;
    let handed = high.receive(4).await;
    high.ack(&handed).await;
    high.0.close().await.unwrap();
    client.add_all(&name, 4..6).await;
    let mut low = Driven::open(source(&server.url(), &name, 8).await).await;
    let handed = low.receive_for(Duration::from_millis(500)).await;
    assert_eq!(payloads(&handed), texts([]));
    assert_eq!(client.left(&name, "g").await, 2);
}

/// The lease is lost by the clock of this process: nothing starts, and settlements in time are
/// still sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_ends_the_generation() {
    let server = shared(RedisKind::Redis8).await;
    let (client, name) = (Client::to(&server).await, new_name("lease"));
    client.add_all(&name, 0..3).await;
    let leases = leases_from(1).await;
    let source = builder(&server.url(), "g")
        .stream(name.clone())
        .leases(leases.clone());
    let mut source = Driven::open(source.build().unwrap()).await;
    let handed = source.receive(2).await;
    let guard = source.0.start_guard().unwrap();
    assert!(guard.starts(0, &handed[0].position, 1).is_ok());
    source.settle(&handed[..1]).await;
    leases.close().await;
    assert!(guard.starts(1, &handed[1].position, 1).is_err());
    let (more, received) = source.once(10, Duration::from_secs(1)).await;
    assert!(more.is_empty(), "handed over without a lease");
    assert_eq!(received, Received::Lost(vec![handed[0].generation]));
    source.0.confirm().await.unwrap();
    assert_eq!(client.pending(&name, "g").await.len(), 2);
}

/// The source reports it also when no entry waits to be handed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_a_lease_is_told_without_a_message() {
    let server = shared(RedisKind::Valkey9).await;
    let (client, name) = (Client::to(&server).await, new_name("lease-idle"));
    client.add_all(&name, 0..1).await;
    let leases = leases_from(1).await;
    let source = builder(&server.url(), "g")
        .stream(name.clone())
        .leases(leases.clone());
    let mut source = Driven::open(source.build().unwrap()).await;
    let handed = source.receive(1).await;
    leases.close().await;
    let (_, received) = source.once(10, Duration::from_secs(5)).await;
    assert_eq!(received, Received::Lost(vec![handed[0].generation]));
}

/// A member that stops leaves its streams at once, and one that crashes after the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_stands_by() {
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("standby"));
    let long = Duration::from_secs(300);
    let source = || {
        builder(&server.url(), "g")
            .stream(name.clone())
            .lease(long)
            .build()
            .unwrap()
    };
    let mut first = Driven::open(source()).await;
    client.add_all(&name, 0..2).await;
    let handed = first.receive(2).await;
    let mut second = Driven::open(source()).await;
    assert_eq!(
        second.receive_for(Duration::from_millis(1_500)).await.len(),
        0
    );
    first.ack(&handed).await;
    first.0.close().await.unwrap();
    client.add_all(&name, 2..4).await;
    // Long before the lease would have run out.
    let handed = tokio::time::timeout(Duration::from_secs(60), second.receive(2)).await;
    let handed = handed.expect("the stream is free at once");
    assert_eq!(payloads(&handed), texts(2..4));
    second.ack(&handed).await;
    until("the members are right", async || {
        let members = format!("{{{name}}}:keylane:members:g");
        client.run::<u64>(&["ZCARD", &members]).await == 1
    })
    .await;
}
