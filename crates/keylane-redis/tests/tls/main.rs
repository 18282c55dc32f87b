//! TLS to real servers: what works, and what each mistake of an operator is called.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::time::Duration;

use keylane::OnExhausted;
use keylane::source::RawMessage;
use keylane_leader::conformance::check_turns;
use keylane_leases::{Leases, Settings};
use keylane_redis::{
    Certificates, ErrorKind, ListQueue, Quota, Redis, RedisElections, RedisLeases, SharedRate,
    StreamSink, StreamSource, TlsFailure,
};
use keylane_testkit::scenario::{boxed, by_key, until_async as until};
use testkit_servers::{Authority, Certificate, RedisKind, ServerTls};

/// The one of the tested servers that is built with TLS.
const KIND: RedisKind = RedisKind::Redis7;

const CLIENT: &str = "give a certificate that the server accepts with `Certificates::identity`";

fn trusting(authority: &Authority) -> Certificates {
    Certificates::new().authority(authority.pem()).unwrap()
}

fn known_by(certificates: Certificates, own: &Certificate) -> Certificates {
    certificates
        .identity(own.pem.as_str(), own.key.as_str())
        .unwrap()
}

fn redis(port: u16, certificates: Certificates) -> Redis {
    let redis = Redis::at(&format!("rediss://127.0.0.1:{port}")).unwrap();
    let redis = redis.connect_timeout(Duration::from_secs(2));
    redis.certificates(certificates).unwrap()
}

fn queue(redis: &Redis) -> ListQueue {
    ListQueue::builder(redis, "{orders}").build().unwrap()
}

/// Handles a message of a list and one of a stream, holds a key, has a permit, and leads.
async fn works(redis: &Redis) {
    let queue = queue(redis);
    queue
        .push(&RawMessage::new("first").key("a"))
        .await
        .unwrap();
    let consumer = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(|_: RawMessage| async { Ok(()) }))
        .unwrap();
    let intake = consumer.consume(queue.source()).unwrap();
    until("it is handled", async || intake.stats().acked == 1).await;
    let stats = intake.stop().await;
    assert_eq!(stats.acked, 1);
    let store = RedisLeases::open(redis, "keys").unwrap();
    let leases = Leases::open_with(Arc::new(store), Settings::new()).unwrap();
    let held = leases
        .acquire("account", Duration::from_secs(10))
        .await
        .unwrap();
    assert!(held.check().is_ok());

    let sink = StreamSink::new(redis, "stream").unwrap();
    let message = RawMessage::new("first").key("a");
    sink.push(&message).await.unwrap();
    let stream = StreamSource::builder(redis, "group").stream("stream");
    let intake = consumer.consume(stream.build().unwrap()).unwrap();
    until("it is handled", async || intake.stats().acked == 1).await;
    intake.stop().await;

    let rate = SharedRate::builder(redis, "calls").per_key(Quota::per_second(5));
    let rate = rate.build().unwrap();
    rate.acquire("account").await.unwrap();

    let store = RedisElections::open(redis, "elections").unwrap();
    check_turns(Arc::new(store)).await;
}

/// Fails with this kind, and says where, why and what to do.
async fn fails(redis: &Redis, port: u16, failure: TlsFailure, advice: &str) {
    let error = queue(redis).status().await.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Tls(failure), "{text}");
    assert!(!error.is_retryable(), "{text}");
    let place = format!("Redis at 127.0.0.1:{port}: no TLS: {failure}: ");
    assert!(text.starts_with(&place) && text.ends_with(advice), "{text}");
}

#[tokio::test]
async fn a_source_and_a_lease_work_with_an_own_authority_and_a_client_certificate() {
    let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = testkit_servers::Redis::start(KIND).await.unwrap();
    let tls = ServerTls::new(authority.server());
    let port = server.serve_tls(&tls).await.unwrap();
    works(&redis(port, trusting(&authority))).await;

    let tls = tls.require_clients_of(&clients);
    let port = server.serve_tls(&tls).await.unwrap();
    let own = clients.client("worker");
    works(&redis(port, known_by(trusting(&authority), &own))).await;

    let without = redis(port, trusting(&authority));
    fails(&without, port, TlsFailure::ClientCertificate, CLIENT).await;
    let strange = Authority::new("strangers").client("worker");
    let strange = redis(port, known_by(trusting(&authority), &strange));
    fails(&strange, port, TlsFailure::ClientCertificate, CLIENT).await;
}

#[tokio::test]
async fn each_certificate_that_is_wrong_has_a_kind_of_its_own() {
    let authority = Authority::new("shop");
    let server = testkit_servers::Redis::start(KIND).await.unwrap();
    let new = "give the server a new certificate";
    let name = "`Redis::certificates`";
    let host = "or give it a certificate for this one";
    for (certificate, failure, advice) in [
        (
            Authority::new("another").server(),
            TlsFailure::UntrustedAuthority,
            name,
        ),
        // It calls itself as the one that is trusted.
        (
            Authority::new("shop").server(),
            TlsFailure::UntrustedAuthority,
            name,
        ),
        (authority.expired_server(), TlsFailure::Expired, new),
        (
            authority.server_at("redis.internal"),
            TlsFailure::WrongHost,
            host,
        ),
    ] {
        let port = server
            .serve_tls(&ServerTls::new(certificate))
            .await
            .unwrap();
        fails(&redis(port, trusting(&authority)), port, failure, advice).await;
    }
    let port = server
        .serve_tls(&ServerTls::new(authority.server()))
        .await
        .unwrap();
    // The authority is not one of Mozilla's list.
    let public = redis(port, Certificates::new());
    fails(&public, port, TlsFailure::UntrustedAuthority, name).await;
}

#[tokio::test]
async fn a_server_without_tls_is_told_from_one_that_cannot_be_reached() {
    let server = testkit_servers::Redis::start(KIND).await.unwrap();
    let certificates = trusting(&Authority::new("shop"));
    let port = server.port();
    let plain = redis(port, certificates.clone()).connect_timeout(Duration::from_millis(300));
    let advice = "or connect without it: write redis:// into the address";
    // What the client says first is random, and ends a line or not.
    for _ in 0..10 {
        fails(&plain, port, TlsFailure::NoTls, advice).await;
    }
    server.stop().await.unwrap();
    let error = queue(&plain).status().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}

#[tokio::test]
async fn a_source_says_what_is_wrong_and_goes_on_when_it_is_mended() {
    let authority = Authority::new("shop");
    let server = testkit_servers::Redis::start(KIND).await.unwrap();
    let expired = ServerTls::new(authority.expired_server());
    let port = server.serve_tls(&expired).await.unwrap();
    let queue = queue(&redis(port, trusting(&authority)));
    let consumer = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(|_: RawMessage| async { Ok(()) }))
        .unwrap();
    let intake = consumer.consume(queue.source()).unwrap();
    let expected = format!("127.0.0.1:{port}: no TLS: {}", TlsFailure::Expired);
    until("the reason is told", async || {
        let said = intake.stats().last_error;
        said.is_some_and(|said| said.contains(&expected))
    })
    .await;
    let renewed = ServerTls::new(authority.server());
    server.serve_tls_at(port, &renewed).await.unwrap();
    queue.push(&RawMessage::new("late").key("a")).await.unwrap();
    until("it is handled", async || intake.stats().acked == 1).await;
    intake.stop().await;
}

#[tokio::test]
async fn a_cluster_works_with_tls_and_names_what_is_wrong() {
    let authority = Authority::new("shop");
    let nodes = testkit_servers::Redis::builder(KIND);
    let nodes = nodes.cluster_tls(authority.server(), &authority);
    let cluster = nodes.start_cluster(3).await.unwrap();
    let ports = cluster.nodes().iter();
    let ports: Vec<_> = ports.map(|node| node.tls_port().unwrap()).collect();
    let urls: Vec<_> = ports
        .iter()
        .map(|port| format!("rediss://127.0.0.1:{port}"))
        .collect();
    let nodes = || Redis::cluster(urls.iter().map(String::as_str)).unwrap();
    let redis = nodes().certificates(trusting(&authority)).unwrap();
    works(&redis).await;
    let strange = nodes().certificates(trusting(&Authority::new("another")));
    let error = queue(&strange.unwrap()).status().await.unwrap_err();
    let kind = ErrorKind::Tls(TlsFailure::UntrustedAuthority);
    assert_eq!(error.kind(), kind, "{error}");
    assert!(
        error
            .to_string()
            .starts_with(&format!("Redis at 127.0.0.1:{}", ports[0])),
        "{error}"
    );
}

#[test]
fn certificates_need_an_address_with_tls() {
    let authority = Authority::new("shop");
    let plain = Redis::at("redis://localhost").unwrap();
    let error = plain.certificates(trusting(&authority)).unwrap_err();
    assert_eq!(error.setting(), "certificates");
    assert!(Redis::at("rediss://localhost/#insecure").is_err());
    let sentinels = Redis::sentinel(["rediss://localhost"], "redis://primary");
    assert!(sentinels.is_err());
    let shown = format!("{:?}", trusting(&authority));
    assert!(!shown.contains("BEGIN"), "{shown}");
}
