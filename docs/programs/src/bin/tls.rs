//! A connection with TLS to each system: `cargo run -p programs --bin tls -- redis`.

use std::fs::read;

use keylane::error::BoxError;
use keylane_etcd::Etcd;
use keylane_kafka::KafkaSource;
use keylane_redis::{Certificates, ListQueue, Redis};
use keylane_sql::Database;

async fn redis() -> Result<(), BoxError> {
    // ANCHOR: redis
    let certificates = Certificates::new()
        .authority(read("/etc/tls/ca.pem")?)?
        .identity(read("/etc/tls/own.pem")?, read("/etc/tls/own.key")?)?;
    let redis = Redis::at("rediss://:secret@redis.internal:6379")?.certificates(certificates)?;
    // ANCHOR_END: redis
    let queue = ListQueue::builder(&redis, "orders").build()?;
    println!("{:?}", queue.status().await?);
    Ok(())
}

async fn postgres() -> Result<(), BoxError> {
    // ANCHOR: postgres
    let address = "postgres://worker:secret@db.internal/shop?sslmode=verify-full\
                   &ssl-ca=/etc/tls/ca.pem&ssl-cert=/etc/tls/own.pem&ssl-key=/etc/tls/own.key";
    let database = Database::connect(address).await?;
    // ANCHOR_END: postgres
    database.close().await;
    Ok(())
}

async fn mysql() -> Result<(), BoxError> {
    // ANCHOR: mysql
    let address = "mysql://worker:secret@db.internal/shop?ssl-mode=VERIFY_IDENTITY\
                   &ssl-ca=/etc/tls/ca.pem&ssl-cert=/etc/tls/own.pem&ssl-key=/etc/tls/own.key";
    let database = Database::connect(address).await?;
    // ANCHOR_END: mysql
    database.close().await;
    Ok(())
}

async fn kafka() -> Result<(), BoxError> {
    // ANCHOR: kafka
    let source = KafkaSource::builder("kafka.internal:9093", "billing")
        .topic("orders")
        .property("security.protocol", "sasl_ssl")
        .property("ssl.ca.location", "/etc/tls/ca.pem")
        .property("ssl.certificate.location", "/etc/tls/own.pem")
        .property("ssl.key.location", "/etc/tls/own.key")
        .property("sasl.mechanism", "SCRAM-SHA-512")
        .property("sasl.username", "billing")
        .property("sasl.password", std::env::var("KAFKA_PASSWORD")?)
        .build()?;
    // ANCHOR_END: kafka
    drop(source);
    Ok(())
}

async fn etcd() -> Result<(), BoxError> {
    // ANCHOR: etcd
    let certificates = Certificates::new()
        .authority(read("/etc/tls/ca.pem")?)?
        .identity(read("/etc/tls/own.pem")?, read("/etc/tls/own.key")?)?;
    let etcd = Etcd::at(["https://etcd-1:2379", "https://etcd-2:2379"])?;
    let etcd = etcd.certificates(certificates)?;
    etcd.check().await?; // what is wrong, and what to do
    // ANCHOR_END: etcd
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().init();
    match std::env::args().nth(1).as_deref() {
        Some("redis") => redis().await,
        Some("postgres") => postgres().await,
        Some("mysql") => mysql().await,
        Some("kafka") => kafka().await,
        Some("etcd") => etcd().await,
        _ => Err("name one of redis, postgres, mysql, kafka, etcd".into()),
    }
}
