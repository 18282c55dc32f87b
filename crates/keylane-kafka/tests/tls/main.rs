//! TLS and SASL with a real broker: what works, and what each mistake of an operator is called. One
//! broker has a listener for each of them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use keylane::OnExhausted;
use keylane::source::RawMessage;
use keylane_kafka::{
    KafkaLetters, KafkaLettersError, KafkaSource, KafkaSourceBuilder, Producer, Redrive,
    RedriveError, SendError, TlsFailure,
};
use keylane_testkit::scenario::{boxed, by_key, until_async as until};
use testkit_servers::{Authority, Kafka, ServerTls};

const TOPIC: &str = "orders";
const USER: &str = "billing";
const PASSWORD: &str = "canary";
const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

type Properties = Vec<(&'static str, String)>;

/// The file of the authority that is trusted.
const CA: &str = "ca.pem";

/// The broker, and files of certificates.
struct Stage {
    kafka: Kafka,
    /// The authority of the certificates of clients.
    clients: Authority,
    folder: tempfile::TempDir,
}

impl Stage {
    async fn new() -> Self {
        let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
        let good = ServerTls::new(authority.server());
        let strange = ServerTls::new(Authority::new("another").server());
        let expired = ServerTls::new(authority.expired_server());
        let elsewhere = ServerTls::new(authority.server_at("kafka.internal"));
        let mutual = ServerTls::new(authority.server()).require_clients_of(&clients);
        let kafka = Kafka::builder()
            .listener("good", "SSL", Some(&good))
            .listener("strange", "SSL", Some(&strange))
            .listener("expired", "SSL", Some(&expired))
            .listener("elsewhere", "SSL", Some(&elsewhere))
            .listener("mutual", "SSL", Some(&mutual))
            .listener("open", "SASL_PLAINTEXT", None)
            .listener("shut", "SASL_SSL", Some(&good))
            .scram_user(USER, PASSWORD);
        let kafka = ["open", "shut"].into_iter().fold(kafka, |kafka, name| {
            let of = |rest: &str| format!("listener.name.{name}.{rest}");
            let module = "org.apache.kafka.common.security";
            let plain =
                format!("{module}.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";");
            let scram = format!("{module}.scram.ScramLoginModule required;");
            kafka
                .property(of("sasl.enabled.mechanisms"), MECHANISMS.join(","))
                .property(of("plain.sasl.jaas.config"), plain)
                .property(of("scram-sha-256.sasl.jaas.config"), scram.as_str())
                .property(of("scram-sha-512.sasl.jaas.config"), scram)
        });
        let kafka = kafka.start().await.unwrap();
        let at = kafka.bootstrap();
        let create = ["--bootstrap-server", &at, "--create", "--topic", TOPIC];
        let tool = "org.apache.kafka.tools.TopicCommand";
        kafka.tool(tool, create, "").await.unwrap();
        let producer = Producer::builder(at).build().unwrap();
        let first = RawMessage::new("first").key("a");
        producer.send(TOPIC, &first).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(CA), authority.pem()).unwrap();
        Self {
            kafka,
            clients,
            folder,
        }
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        display(&path)
    }

    fn tls(&self) -> Properties {
        vec![
            ("security.protocol", "ssl".to_owned()),
            ("ssl.ca.location", display(&self.folder.path().join(CA))),
        ]
    }

    /// The same, with a certificate that this authority has signed.
    fn known(&self, by: &Authority, name: &str) -> Properties {
        let own = by.client(name);
        let mut properties = self.tls();
        let pem = self.write(&format!("{name}.pem"), &own.pem);
        let key = self.write(&format!("{name}.key"), &own.key);
        properties.push(("ssl.certificate.location", pem));
        properties.push(("ssl.key.location", key));
        properties
    }

    fn login(&self, protocol: &str, mechanism: &str, password: &str) -> Properties {
        let mut properties = self.tls();
        properties[0].1 = protocol.to_owned();
        properties.push(("sasl.mechanism", mechanism.to_owned()));
        properties.push(("sasl.username", USER.to_owned()));
        properties.push(("sasl.password", password.to_owned()));
        properties
    }

    fn source(&self, listener: &str, group: &str, properties: &Properties) -> KafkaSourceBuilder {
        let source = KafkaSource::builder(self.kafka.listener(listener), group).topic(TOPIC);
        properties.iter().fold(source, |source, (name, value)| {
            source.property(*name, value.as_str())
        })
    }

    /// Handles a message.
    async fn works(&self, listener: &str, group: &str, properties: Properties) {
        let consumer = by_key()
            .on_exhausted(OnExhausted::Halt)
            .spawn(boxed(|_: RawMessage| async { Ok(()) }))
            .unwrap();
        let source = self.source(listener, group, &properties);
        let intake = consumer.consume(source.build().unwrap()).unwrap();
        until("it is handled", async || intake.stats().acked == 1).await;
        intake.stop().await;
    }

    /// Says where, why and what to do.
    async fn fails(&self, listener: &str, properties: Properties, why: String, advice: &str) {
        let consumer = by_key()
            .on_exhausted(OnExhausted::Halt)
            .spawn(boxed(|_: RawMessage| async { Ok(()) }))
            .unwrap();
        let source = self.source(listener, "none", &properties);
        let intake = consumer.consume(source.build().unwrap()).unwrap();
        let place = format!("{}: {why}", self.kafka.listener(listener));
        until("the reason is told", async || {
            let said = intake.stats().last_error.unwrap_or_default();
            if !said.is_empty() && !said.contains(&place) {
                eprintln!("{listener}: {said}");
            }
            assert!(!said.contains(PASSWORD), "{said}");
            said.contains(&place) && said.contains(advice)
        })
        .await;
        intake.stop().await;
    }

    /// A producer, a redrive and the letters say the same.
    async fn others_fail(
        &self,
        listener: &str,
        properties: Properties,
        (failure, why): (Option<TlsFailure>, &str),
        advice: &str,
    ) {
        let at = self.kafka.listener(listener);
        let producer = Producer::builder(&at).timeout(Duration::from_secs(8));
        let producer = properties.iter().fold(producer, |producer, (name, value)| {
            producer.property(*name, value.as_str())
        });
        let producer = producer.build().unwrap();
        let redrive = Redrive::new(&at, TOPIC, producer.clone()).group("others");
        let redrive = properties.iter().fold(redrive, |redrive, (name, value)| {
            redrive.property(*name, value.as_str())
        });
        let letters = KafkaLetters::new(&at, TOPIC, producer.clone()).group("others");
        let letters = properties.iter().fold(letters, |letters, (name, value)| {
            letters.property(*name, value.as_str())
        });
        let record = RawMessage::new("second").key("a");
        let (sent, listed, redriven) = tokio::join!(
            producer.send(TOPIC, &record),
            letters.list(None, 10),
            redrive.run()
        );
        let (sent, listed, redriven) = (
            sent.unwrap_err(),
            listed.unwrap_err(),
            redriven.unwrap_err(),
        );
        assert!(sent.is_retryable(), "{sent}");
        let of_sent = match &sent {
            SendError::Tls { failure, .. } => Some(*failure),
            _ => None,
        };
        let of_listed = match &listed {
            KafkaLettersError::Tls { failure, .. } => Some(*failure),
            _ => None,
        };
        let of_redriven = match &redriven {
            RedriveError::Tls { failure, .. } => Some(*failure),
            _ => None,
        };
        assert_eq!(
            [of_sent, of_listed, of_redriven],
            [failure; 3],
            "{listener}"
        );
        let place = format!("{at}: {why}");
        for said in [sent.to_string(), listed.to_string(), redriven.to_string()] {
            assert!(
                said.contains(&place) && said.contains(advice),
                "{listener}: {said}"
            );
            assert!(!said.contains(PASSWORD), "{said}");
        }
    }
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

fn no_tls(failure: TlsFailure) -> String {
    format!("no TLS: {failure}: ")
}

fn show_log() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let shown = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_test_writer();
    let _ = shown.try_init();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mistake_has_a_name_and_the_right_settings_work() {
    show_log();
    let stage = Stage::new().await;
    let good = async {
        stage.works("good", "tls", stage.tls()).await;
        let known = stage.known(&stage.clients, "worker");
        stage.works("mutual", "mutual", known).await;
    };
    let logins = MECHANISMS.map(|mechanism| {
        let stage = &stage;
        async move {
            for (protocol, listener) in [("sasl_plaintext", "open"), ("sasl_ssl", "shut")] {
                let login = stage.login(protocol, mechanism, PASSWORD);
                let group = format!("{listener}-{mechanism}");
                stage.works(listener, &group, login).await;
                let login = stage.login(protocol, mechanism, "another");
                let refused = "the broker refuses the user: ".to_owned();
                stage.fails(listener, login, refused, "`sasl.*`").await;
            }
        }
    });
    let ca = "`ssl.ca.location`";
    let identity = "`ssl.certificate.location`";
    let strange = Authority::new("strangers");
    let mut plain = stage.tls();
    plain[0].1 = "plaintext".to_owned();
    let mistakes = [
        ("strange", stage.tls(), TlsFailure::UntrustedAuthority, ca),
        (
            "expired",
            stage.tls(),
            TlsFailure::Expired,
            "a new certificate",
        ),
        (
            "elsewhere",
            stage.tls(),
            TlsFailure::WrongHost,
            "into the address",
        ),
        (
            "mutual",
            stage.tls(),
            TlsFailure::ClientCertificate,
            identity,
        ),
        (
            "mutual",
            stage.known(&strange, "stranger"),
            TlsFailure::ClientCertificate,
            identity,
        ),
        ("good", plain, TlsFailure::OnlyTls, "`sasl_ssl`"),
        ("open", stage.tls(), TlsFailure::NoTls, "`plaintext`"),
    ];
    let others = mistakes
        .clone()
        .map(|(listener, properties, failure, advice)| {
            let stage = &stage;
            async move {
                let why = no_tls(failure);
                let why = (Some(failure), &*why);
                stage.others_fail(listener, properties, why, advice).await;
            }
        });
    let mistakes = mistakes.map(|(listener, properties, failure, advice)| {
        stage.fails(listener, properties, no_tls(failure), advice)
    });
    let refused = async {
        let login = stage.login("sasl_ssl", "PLAIN", "another");
        let refused = "the broker refuses the user: ";
        stage
            .others_fail("shut", login, (None, refused), "`sasl.*`")
            .await;
    };
    tokio::join!(good, join_all(logins), join_all(mistakes));
    tokio::join!(refused, join_all(others));
}
