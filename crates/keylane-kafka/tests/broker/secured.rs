//! TLS, with a password.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use keylane::OnExhausted;
use keylane::consume::IntakeState;
use keylane::source::RawMessage;
use keylane_kafka::{KafkaSource, KafkaSourceBuilder, Producer};
use keylane_testkit::scenario::{boxed, by_key};
use testkit_servers::Kafka;

use crate::stage::{message, until};
use crate::support::{Topic, show_log};

const PASSWORD: &str = "not-a-secret";

/// Runs Java's key tool.
fn keytool(folder: &Path, args: &[&str]) {
    let store = ["-keystore", "broker.p12", "-storepass", PASSWORD];
    let mut keytool = Command::new("keytool");
    keytool.args(args).args(store).current_dir(folder);
    let output = keytool.output().expect("keytool comes with Java");
    assert!(output.status.success(), "{output:?}");
}

/// A broker with TLS and SCRAM for the clients of its proxy, and its certificate.
async fn secured(folder: &Path) -> Kafka {
    let generate = "-genkeypair -alias broker -keyalg RSA -dname CN=localhost -ext SAN=ip:127.0.0.1 \
                    -storetype PKCS12 -validity 2";
    keytool(folder, &Vec::from_iter(generate.split_whitespace()));
    keytool(
        folder,
        &["-exportcert", "-rfc", "-alias", "broker", "-file", "ca.pem"],
    );
    let of = |name: &str| format!("listener.name.proxied.{name}");
    let store = folder.join("broker.p12").display().to_string();
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
    let kafka = Kafka::builder()
        .property(
            "listener.security.protocol.map",
            "DIRECT:PLAINTEXT,PROXIED:SASL_SSL,CONTROLLER:PLAINTEXT",
        )
        .property(of("ssl.keystore.type"), "PKCS12")
        .property(of("ssl.keystore.location"), store)
        .property(of("ssl.keystore.password"), PASSWORD)
        .property(of("sasl.enabled.mechanisms"), "SCRAM-SHA-512")
        .property(of("scram-sha-512.sasl.jaas.config"), scram);
    let kafka = kafka.start().await.expect("a broker");
    let secret = format!("SCRAM-SHA-512=[password={PASSWORD}]");
    let at = kafka.bootstrap();
    let create = [
        "--bootstrap-server",
        &at,
        "--alter",
        "--entity-type",
        "users",
        "--entity-name",
        "billing",
        "--add-config",
        &secret,
    ];
    let tool = "org.apache.kafka.tools.ConfigCommand";
    let tool = match kafka.tool(tool, create, "").await {
        Ok(_) => return kafka,
        Err(_) => "kafka.admin.ConfigCommand",
    };
    kafka.tool(tool, create, "").await.expect("a user");
    kafka
}

fn properties(folder: &Path, password: &str) -> Vec<(&'static str, String)> {
    let ca = folder.join("ca.pem").display().to_string();
    vec![
        ("security.protocol", "sasl_ssl".to_owned()),
        ("ssl.ca.location", ca),
        ("sasl.mechanism", "SCRAM-SHA-512".to_owned()),
        ("sasl.username", "billing".to_owned()),
        ("sasl.password", password.to_owned()),
    ]
}

fn source(topic: &Topic, folder: &Path, password: &str) -> KafkaSourceBuilder {
    let builder = KafkaSource::builder(topic.kafka.proxied(), &topic.group).topic(&topic.name);
    let properties = properties(folder, password).into_iter();
    properties.fold(builder, |builder, (name, value)| {
        builder.property(name, value)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_and_letters_pass_through_tls() {
    show_log();
    let folder = tempfile::tempdir().unwrap();
    let kafka = Arc::new(secured(folder.path()).await);
    let topic = Topic::new(kafka, 1).await;
    let letters = topic.beside(".dead", &[]).await;
    let producer = Producer::builder(topic.kafka.proxied());
    let producer = properties(folder.path(), PASSWORD)
        .into_iter()
        .fold(producer, |producer, (name, value)| {
            producer.property(name, value)
        });
    let producer = producer.build().expect("a producer");
    let sent = producer.send(&topic.name, &message(1, 1)).await;
    assert_eq!(sent.expect("it is sent").offset, 0);

    let consumer = || {
        by_key()
            .on_exhausted(OnExhausted::AtSource)
            .spawn(boxed(|_: RawMessage| async { Err("never".into()) }))
            .expect("a consumer")
    };
    let good = source(&topic, folder.path(), PASSWORD).dead_letters(&letters.name);
    let intake = consumer().consume(good.build().expect("a source"));
    let intake = intake.expect("an intake");
    until("it is committed", async || {
        topic.committed().await[0].0 == Some(1)
    })
    .await;
    assert_eq!(intake.stop().await.dead_lettered, 1);
    assert_eq!(letters.records().await.len(), 1);

    // A wrong password is reported, and not shown.
    let bad = source(&topic, folder.path(), "another").dead_letters(&letters.name);
    let intake = consumer().consume(bad.build().expect("a source"));
    let intake = intake.expect("an intake");
    until("the failure is told", async || {
        let stats = intake.stats();
        stats.state != IntakeState::Running && stats.last_error.is_some()
    })
    .await;
    let said = intake.stats().last_error.unwrap_or_default();
    assert!(!said.contains("another"), "{said}");
    intake.stop().await;
}
