//! Serves a throw-away server of a version that the tests use, until Ctrl-C, and prints the
//! variable that the programs of the book in `docs` read:
//!
//! ```text
//! $ cargo run -p testkit-servers --example serve -- kafka
//! export KAFKA=127.0.0.1:41897
//! ```
//!
//! Without a name it lists the servers. `cargo xtask setup` brings what they need.

use std::error::Error;
use std::io::{self, Write};

use testkit_servers::{Kafka, MariaDb, Postgres, Redis, RedisKind};

const NAMES: &str = "redis, valkey, kafka, postgres, mariadb";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        None => println!("name one of these: {NAMES}"),
        Some("redis") => redis(RedisKind::Redis8).await?,
        Some("valkey") => redis(RedisKind::Valkey9).await?,
        Some("kafka") => {
            // No script of Kafka is there that would create topics.
            let kafka = Kafka::builder().property("auto.create.topics.enable", "true");
            let kafka = kafka.start().await?;
            until_stopped("KAFKA", &kafka.bootstrap()).await?;
        }
        Some("postgres") => {
            let server = Postgres::start().await?;
            until_stopped("DATABASE_URL", &server.url("postgres")).await?;
        }
        Some("mariadb") => {
            let server = MariaDb::start().await?;
            until_stopped("DATABASE_URL", &server.url("mysql")).await?;
        }
        Some(other) => return Err(format!("there is no {other}: name one of {NAMES}").into()),
    }
    Ok(())
}

async fn redis(kind: RedisKind) -> Result<(), Box<dyn Error>> {
    let server = Redis::start(kind).await?;
    until_stopped("REDIS", &server.url()).await?;
    Ok(())
}

/// The server ends with its value, which the caller has.
async fn until_stopped(variable: &str, address: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "export {variable}={address}")?;
    out.flush()?;
    tokio::signal::ctrl_c().await
}
