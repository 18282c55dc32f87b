//! TLS to real servers: what works, and what each mistake of an operator is called.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keylane::OnExhausted;
use keylane::source::RawMessage;
use keylane_leader::conformance::check_turns;
use keylane_leases::{Leases, Settings};
use keylane_sql::error::{ErrorKind, TlsFailure};
use keylane_sql::sqlx::{self, PgPool};
use keylane_sql::{Database, SqlElections, SqlInbox, SqlLeases, Tables};
use keylane_testkit::scenario::{boxed, by_key, until_async as until};
use tempfile::TempDir;
use testkit_servers::{Authority, Certificate, MariaDb, Postgres, ServerTls};

/// The two kinds of servers, with what differs.
enum Server {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Server {
    async fn both() -> [Self; 2] {
        let (postgres, mariadb) = tokio::join!(Postgres::start(), MariaDb::start());
        [
            Self::Postgres(postgres.unwrap()),
            Self::MariaDb(mariadb.unwrap()),
        ]
    }

    async fn serve_tls(&self, tls: &ServerTls) {
        match self {
            Self::Postgres(server) => server.serve_tls(tls).await.unwrap(),
            Self::MariaDb(server) => server.serve_tls(tls).await.unwrap(),
        }
    }

    async fn create_database(&self) -> String {
        match self {
            Self::Postgres(server) => server.create_database().await.unwrap(),
            Self::MariaDb(server) => server.create_database().await.unwrap(),
        }
    }

    /// Whether TLS is used, and whether the server and its host name are checked.
    fn modes(&self) -> [&'static str; 4] {
        match self {
            Self::Postgres(_) => ["disable", "require", "verify-ca", "verify-full"],
            Self::MariaDb(_) => ["DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"],
        }
    }

    fn port(&self) -> u16 {
        match self {
            Self::Postgres(server) => server.port(),
            Self::MariaDb(server) => server.port(),
        }
    }
}

/// Files of certificates, as an operator has them.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Returns the part of an address that names the authority and the client certificate.
    fn parameters(&self, authority: &Authority, own: Option<&Certificate>) -> String {
        let mut text = String::new();
        let ca = self.write("ca.pem", &authority.pem());
        text += &format!("&ssl-ca={}", ca.display());
        if let Some(own) = own {
            let (pem, key) = (
                self.write("own.pem", &own.pem),
                self.write("own.key", &own.key),
            );
            text += &format!("&ssl-cert={}&ssl-key={}", pem.display(), key.display());
        }
        text
    }
}

/// Holds a key, handles a message, and leads.
async fn works(address: &str) {
    let database = Database::connect(address).await.unwrap();
    database.migrate(&Tables::new()).await.unwrap();
    let store = SqlLeases::open(&database, &Tables::new()).await.unwrap();
    let leases = Leases::open_with(Arc::new(store), Settings::new()).unwrap();
    let held = leases
        .acquire("account", Duration::from_secs(10))
        .await
        .unwrap();
    assert!(held.check().is_ok());

    let inbox = SqlInbox::open(&database, &Tables::new(), Default::default()).await;
    let inbox = inbox.unwrap();
    let consumer = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(|_: RawMessage| async { Ok(()) }))
        .unwrap();
    let intake = consumer.consume(inbox.source()).unwrap();
    if address.starts_with("postgres") {
        // Of a session that this test does not open.
        let listens = "select count(*) from pg_stat_activity join pg_stat_ssl using (pid)
            where ssl and datname = current_database() and query ilike 'listen%'";
        let pool = PgPool::connect(address).await.unwrap();
        until("it listens with TLS", async || {
            let listening = sqlx::query_scalar::<_, i64>(listens).fetch_one(&pool);
            listening.await.unwrap() > 0
        })
        .await;
        pool.close().await;
    }
    inbox.inbox().accept("account", "first").await.unwrap();
    until("it is handled", async || intake.stats().acked == 1).await;
    intake.stop().await;

    let store = SqlElections::open(&database, &Tables::new()).await.unwrap();
    check_turns(Arc::new(store)).await;
}

/// Fails with this kind, and says where, why and what to do.
async fn fails(address: &str, port: u16, failure: TlsFailure, advice: &str) {
    let error = Database::connect(address).await.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Tls(failure), "{address}: {text}");
    assert!(!error.is_retryable(), "{text}");
    let place = format!(" at 127.0.0.1:{port}/");
    let why = format!(": no TLS: {failure}: ");
    assert!(
        text.contains(&place) && text.contains(&why) && text.contains(advice),
        "{address}: {text}"
    );
    assert!(!text.contains("password"), "{text}");
}

#[tokio::test]
async fn each_mode_checks_what_it_says() {
    for server in Server::both().await {
        let address = server.create_database().await;
        let port = server.port();
        let [_, require, authority_only, full] = server.modes();
        let with = |mode: &str, rest: &str| format!("{address}?ssl-mode={mode}{rest}");
        let (files, authority) = (Files::new(), Authority::new("shop"));
        let trusted = files.parameters(&authority, None);
        if matches!(server, Server::Postgres(_)) {
            let advice = "`sslmode=disable`";
            fails(&with(full, &trusted), port, TlsFailure::NoTls, advice).await;
            fails(&with(require, ""), port, TlsFailure::NoTls, advice).await;
        }

        server.serve_tls(&ServerTls::new(authority.server())).await;
        works(&with(full, &trusted)).await;
        works(&with(authority_only, &trusted)).await;
        let untrusted = TlsFailure::UntrustedAuthority;
        let name = "`ssl-ca`";
        for mode in [authority_only, full] {
            // The authority is not one of Mozilla's list.
            fails(&with(mode, ""), port, untrusted, name).await;
        }
        works(&with(require, "")).await;

        let another = Authority::new("another").server();
        server.serve_tls(&ServerTls::new(another)).await;
        for mode in [authority_only, full] {
            fails(&with(mode, &trusted), port, untrusted, name).await;
        }
        works(&with(require, "")).await;

        let expired = ServerTls::new(authority.expired_server());
        server.serve_tls(&expired).await;
        let new = "give the server a new certificate";
        for mode in [authority_only, full] {
            fails(&with(mode, &trusted), port, TlsFailure::Expired, new).await;
        }

        let elsewhere = ServerTls::new(authority.server_at("db.internal"));
        server.serve_tls(&elsewhere).await;
        let host = "write a host name of its certificate into the address";
        fails(&with(full, &trusted), port, TlsFailure::WrongHost, host).await;
        works(&with(authority_only, &trusted)).await;
    }
}

#[tokio::test]
async fn a_server_that_wants_tls_or_a_client_certificate_is_understood() {
    for server in Server::both().await {
        let address = server.create_database().await;
        let port = server.port();
        let [none, _, _, full] = server.modes();
        let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
        let tls = ServerTls::new(authority.server()).require_clients_of(&clients);
        server.serve_tls(&tls).await;
        let address = address.replacen("keylane:", "keylane_tls:", 1);
        let with = |mode: &str, rest: &str| format!("{address}?ssl-mode={mode}{rest}");
        let (files, own) = (Files::new(), clients.client("worker"));
        let trusted = files.parameters(&authority, Some(&own));
        works(&with(full, &trusted)).await;

        let refused = TlsFailure::ClientCertificate;
        let advice = "`ssl-cert` and `ssl-key`";
        let files = Files::new();
        let strange = Authority::new("strangers").client("worker");
        let strange = files.parameters(&authority, Some(&strange));
        fails(&with(full, &strange), port, refused, advice).await;
        if let Server::MariaDb(_) = &server {
            // It is not told from a wrong password.
            let error = Database::connect(&with(none, "")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            let text = error.to_string();
            assert!(text.contains("if the server requires TLS"), "{text}");
        } else {
            let files = Files::new();
            let without = files.parameters(&authority, None);
            fails(&with(full, &without), port, refused, advice).await;
            let plain = with(none, "");
            fails(&plain, port, TlsFailure::OnlyTls, "connect with TLS").await;
        }
    }
}

#[tokio::test]
async fn a_file_of_certificates_that_cannot_be_used_is_named() {
    let files = Files::new();
    let path = files.write("key.pem", "no certificate");
    for scheme in ["postgres", "mysql"] {
        let address = format!(
            "{scheme}://u:canary@127.0.0.1:1/d?ssl-ca={}",
            path.display()
        );
        let missing = Database::connect(&format!("{address}.gone")).await;
        let missing = missing.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Address, "{missing}");
        let text = missing.to_string();
        assert!(
            text.contains("`ssl-ca`") && text.contains("No such file"),
            "{text}"
        );
        let unreachable = Database::connect(&address).await.unwrap_err();
        assert_eq!(unreachable.kind(), ErrorKind::Unreachable, "{unreachable}");
    }
}
