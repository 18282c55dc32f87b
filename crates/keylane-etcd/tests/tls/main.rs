//! TLS to real servers: what works, and what each mistake of an operator is called.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use keylane_etcd::{Certificates, ErrorKind, Etcd, EtcdLeases, TlsFailure};
use keylane_leases::{Leases, Settings};
use testkit_servers::{Authority, Certificate, EtcdKind, ServerTls, etcd};

/// Runs a test with each version that is installed, all at the same time.
async fn each_kind<F: Future<Output = ()>>(test: impl Fn(EtcdKind) -> F) {
    let kinds = EtcdKind::ALL.into_iter();
    join_all(kinds.filter(|kind| etcd::is_there(*kind)).map(test)).await;
}

async fn start(kind: EtcdKind, tls: ServerTls) -> testkit_servers::Etcd {
    let server = testkit_servers::Etcd::builder(kind).tls(tls);
    server.start().await.unwrap()
}

fn trusting(authority: &Authority) -> Certificates {
    Certificates::new().authority(authority.pem()).unwrap()
}

fn known_by(certificates: Certificates, own: &Certificate) -> Certificates {
    let (pem, key) = (own.pem.as_str(), own.key.as_str());
    certificates.identity(pem, key).unwrap()
}

fn at(port: u16, certificates: Certificates) -> Etcd {
    let etcd = Etcd::at([format!("https://127.0.0.1:{port}")]).unwrap();
    etcd.certificates(certificates).unwrap()
}

fn leases(etcd: &Etcd) -> Leases {
    let store = EtcdLeases::open(etcd, "tls").unwrap();
    let settings = Settings::new().call_limit(Duration::from_secs(5));
    Leases::open_with(Arc::new(store), settings).unwrap()
}

/// Holds a key.
async fn works(etcd: &Etcd) {
    etcd.check().await.unwrap();
    let held = leases(etcd)
        .acquire("account", Duration::from_secs(10))
        .await
        .unwrap();
    assert!(held.check().is_ok());
}

/// Fails with this kind, and says where, why and what to do.
async fn fails(etcd: &Etcd, port: u16, failure: TlsFailure, advice: &str) {
    let error = etcd.check().await.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Tls(failure), "{text}");
    assert!(!error.is_retryable(), "{text}");
    let place = format!("etcd at 127.0.0.1:{port}: no TLS: {failure}: ");
    assert!(text.starts_with(&place) && text.ends_with(advice), "{text}");
    let lease = leases(etcd)
        .acquire("account", Duration::from_secs(10))
        .await
        .unwrap_err();
    assert!(lease.to_string().contains(&text), "{lease}");
}

#[tokio::test]
async fn each_certificate_that_is_wrong_has_a_kind_of_its_own() {
    each_kind(|kind| async move {
        let authority = Authority::new("shop");
        let server = start(kind, ServerTls::new(authority.server())).await;
        let port = server.port();
        let etcd = at(port, trusting(&authority));
        works(&etcd).await;
        let name = "`Etcd::certificates`";
        let untrusted = TlsFailure::UntrustedAuthority;
        fails(&at(port, Certificates::new()), port, untrusted, name).await;
        for (certificate, failure, advice) in [
            (Authority::new("another").server(), untrusted, name),
            (
                authority.expired_server(),
                TlsFailure::Expired,
                "give the server a new certificate",
            ),
            (
                authority.server_at("etcd.internal"),
                TlsFailure::WrongHost,
                "or give it a certificate for this one",
            ),
        ] {
            server.show(certificate).await.unwrap();
            fails(&etcd, port, failure, advice).await;
        }
        server.show(authority.server()).await.unwrap();
        works(&etcd).await;
    })
    .await;
}

#[tokio::test]
async fn a_server_that_wants_a_client_certificate_is_understood() {
    each_kind(|kind| async move {
        let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
        let tls = ServerTls::new(authority.server()).require_clients_of(&clients);
        let server = start(kind, tls).await;
        let port = server.port();
        let own = clients.client("worker");
        works(&at(port, known_by(trusting(&authority), &own))).await;
        let advice = "`Certificates::identity`";
        let refused = TlsFailure::ClientCertificate;
        fails(&at(port, trusting(&authority)), port, refused, advice).await;
        let strange = Authority::new("strangers").client("worker");
        let strange = at(port, known_by(trusting(&authority), &strange));
        fails(&strange, port, refused, advice).await;
    })
    .await;
}

#[tokio::test]
async fn a_server_without_tls_is_told_from_one_that_cannot_be_reached() {
    each_kind(|kind| async move {
        let server = testkit_servers::Etcd::start(kind).await.unwrap();
        let etcd = at(server.port(), trusting(&Authority::new("shop")));
        let advice = "write http:// into the address";
        fails(&etcd, server.port(), TlsFailure::NoTls, advice).await;
        server.kill().await.unwrap();
        let error = etcd.check().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        let place = format!("etcd at 127.0.0.1:{}: ", server.port());
        assert!(error.to_string().starts_with(&place), "{error}");
    })
    .await;
}

#[test]
fn certificates_need_addresses_with_tls() {
    let authority = Authority::new("shop");
    let plain = Etcd::at(["http://localhost:2379"]).unwrap();
    let error = plain.certificates(trusting(&authority)).unwrap_err();
    assert_eq!(error.setting(), "certificates");
    let mixed = Etcd::at(["http://localhost:2379", "https://localhost:2379"]);
    assert_eq!(mixed.unwrap_err().setting(), "addresses");
}
