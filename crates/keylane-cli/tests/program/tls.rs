//! A console behind a proxy with TLS.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use keylane_inbox::Inbox;
use tempfile::{NamedTempFile, TempDir};
use testkit_servers::{Authority, Certificate};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::served::{Served, inbox_with_letters, letters, runtime};

const TOKEN: &str = "canary-4711-canary-4711-canary-4711";

/// A proxy that ends TLS, as one does in front of a service.
pub(crate) struct Proxy {
    address: SocketAddr,
}

impl Proxy {
    /// Shows this certificate to its clients. If there is an authority, it must have signed theirs.
    pub(crate) fn start(to: SocketAddr, its: &Certificate, clients: Option<&Authority>) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(config(its, clients)));
        let listener = runtime().block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap();
        runtime().spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A client that refuses the certificate ends the handshake.
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let mut service = TcpStream::connect(to).await.unwrap();
                    let _ = copy_bidirectional(&mut stream, &mut service).await;
                });
            }
        });
        Self { address }
    }

    pub(crate) fn url(&self) -> String {
        at("https", self.address)
    }
}

fn at(scheme: &str, address: impl Display) -> String {
    format!("{scheme}://{address}/ops/console")
}

fn config(its: &Certificate, clients: Option<&Authority>) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(certificate(&authority.pem())).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let key = PrivateKeyDer::from_pem_slice(its.key.as_bytes()).unwrap();
    let config = config.with_single_cert(vec![certificate(&its.pem)], key);
    config.unwrap()
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// A file with this text.
pub(crate) fn file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// A service whose console wants a token, and has letters.
fn served() -> (Served, TempDir) {
    let directory = inbox_with_letters();
    let inbox = runtime().block_on(Inbox::open(directory.path())).unwrap();
    let letters = inbox.letters();
    let served = Served::start(|console| console.token(TOKEN).letters("orders", letters));
    (served, directory)
}

#[test]
fn letters_come_through_a_proxy_with_tls() {
    let (served, _directory) = served();
    let authority = Authority::new("ops");
    let proxy = Proxy::start(served.address, &authority.server(), None);
    let (ca, token) = (file(&authority.pem()), file(TOKEN));
    let token = ["--token-file", token.path().to_str().unwrap()];
    let ca = ["--ca", ca.path().to_str().unwrap()];
    let args = [&["list"][..], &token, &ca].concat();
    let (code, through, err) = letters(&["--console", &proxy.url()], &args);
    assert_eq!((code, &*err), (0, ""), "{through}");
    assert_eq!(through.lines().count(), 120);
    assert_eq!(through, served.ok(&["list", token[0], token[1]]));
    // `localhost` is a name of the certificate, too.
    let named = at("https", format!("localhost:{}", proxy.address.port()));
    let (code, by_name, err) = letters(&["--console", &named], &args);
    assert_eq!((code, &*err, by_name), (0, "", through));
}

#[test]
fn a_certificate_that_is_wrong_says_how_and_gets_no_token() {
    let (served, _directory) = served();
    let (authority, clients) = (Authority::new("ops"), Authority::new("clients"));
    let (ca, token) = (file(&authority.pem()), file(TOKEN));
    let refused = |url: &str, args: &[&str], parts: [&str; 2]| {
        let token = ["--token-file", token.path().to_str().unwrap()];
        let (code, out, why) = letters(&["--console", url], &[args, &token].concat());
        assert_eq!((code, &*out), (1, ""), "{why}");
        assert!(parts.iter().all(|part| why.contains(part)), "{why}");
        assert!(!why.contains("canary"), "{why}");
    };
    let ca = ["list", "--ca", ca.path().to_str().unwrap()];
    let untrusted = ["no trusted authority has signed", "with --ca FILE"];
    let wrong_host = ["is for another host name", "or give it a certificate"];
    for (its, clients, parts) in [
        (Authority::new("another").server(), None, untrusted),
        // It calls itself as the one that is trusted.
        (Authority::new("ops").server(), None, untrusted),
        (
            authority.expired_server(),
            None,
            [
                "the certificate of the server has expired",
                "a new certificate",
            ],
        ),
        (authority.server_at("ops.example"), None, wrong_host),
        (
            authority.server(),
            Some(&clients),
            ["requires a client certificate", "forward the port"],
        ),
    ] {
        let proxy = Proxy::start(served.address, &its, clients);
        refused(&proxy.url(), &ca, parts);
    }
    let proxy = Proxy::start(served.address, &authority.server(), None);
    // Without --ca the authorities of the program are trusted.
    refused(&proxy.url(), &["list"], untrusted);
    let plain = at("http", proxy.address);
    refused(&plain, &["list"], ["only connections with TLS", "https://"]);
    let without = at("https", served.address);
    refused(&without, &ca, ["does not speak TLS", "http://"]);
    refused(&plain, &ca, ["an authority is for TLS", "leave --ca out"]);
    let none = ["list", "--ca", "/nowhere"];
    refused(&proxy.url(), &none, ["/nowhere", "cannot be used"]);
    let no_pem = file("secret");
    let no_pem = ["list", "--ca", no_pem.path().to_str().unwrap()];
    refused(&proxy.url(), &no_pem, ["has no certificate", "in PEM"]);
}
