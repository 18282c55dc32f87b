//! The conformance suite of sources.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane_redis::{Redis, StreamSink, StreamSource};
use keylane_testkit::conformance::{Fault, Harness, Site};
use testkit_servers::RedisKind;
use testkit_servers::proxy::Proxy;

use crate::support::{Client, Driven, LEASE, builder, new_name, own, shared};

mod redis_7 {
    keylane_testkit::conformance_tests!(
        [flavor = "multi_thread", worker_threads = 2]
        super::Server(super::RedisKind::Redis7, 1)
    );
}

mod redis_8 {
    keylane_testkit::conformance_tests!(
        [flavor = "multi_thread", worker_threads = 2]
        super::Server(super::RedisKind::Redis8, 3)
    );
}

mod valkey_9 {
    keylane_testkit::conformance_tests!(
        [flavor = "multi_thread", worker_threads = 2]
        super::Server(super::RedisKind::Valkey9, 2)
    );
}

/// A kind of server, and the number of partitions.
struct Server(RedisKind, u32);

struct Place {
    server: Arc<testkit_servers::Redis>,
    name: String,
    partitions: u32,
    /// The source goes through it.
    proxy: Option<Arc<Proxy>>,
    keeps_letters: bool,
    exact_starts: bool,
}

impl Place {
    fn stream(&self, number: u32) -> String {
        format!("{}:{number}", self.name)
    }

    fn letters_name(&self) -> String {
        format!("{}.dead", self.name)
    }

    async fn client(&self) -> Client {
        // The server may have been restarted.
        Client::to(&self.server).await
    }
}

#[keylane::async_trait]
impl Harness for Server {
    type Site = Place;

    async fn site(&self, case: &str) -> Result<Place, BoxError> {
        let server = match case {
            "restart" | "kill" | "stall" => own(self.0).await,
            _ => shared(self.0).await,
        };
        let proxy = match case {
            "stall" => {
                let target = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
                Some(Arc::new(Proxy::to(target).await?))
            }
            _ => None,
        };
        Ok(Place {
            server,
            name: new_name(case),
            partitions: self.1,
            proxy,
            keeps_letters: matches!(case, "dead_letter_at_source" | "round_trip"),
            exact_starts: case == "attempts",
        })
    }

    fn faults(&self) -> Vec<Fault> {
        vec![
            Fault::Restart,
            Fault::Kill,
            Fault::Stall,
            Fault::Lose,
            Fault::Revoke,
        ]
    }
}

#[keylane::async_trait]
impl Site for Place {
    type Source = StreamSource;

    async fn source(&self) -> Result<StreamSource, BoxError> {
        let builder = match &self.proxy {
            Some(proxy) => {
                // The driver detects the stall, and not the client.
                let redis = Redis::at(&format!("redis://127.0.0.1:{}", proxy.port()))?
                    .response_timeout(Duration::from_secs(60));
                StreamSource::builder(&redis, self.name.clone()).lease(Duration::from_secs(8))
            }
            // A loss is noticed when the lease is renewed.
            None => builder(&self.server.url(), &self.name).lease(8 * LEASE),
        };
        let builder = builder.partitions(&self.name, self.partitions);
        let builder = match self.keeps_letters {
            true => builder.dead_letters(self.letters_name()),
            false => builder,
        };
        let builder = match self.exact_starts {
            true => builder.exact_starts(),
            false => builder,
        };
        Ok(builder.build()?)
    }

    async fn publish(&self, messages: Vec<RawMessage>) -> Result<(), BoxError> {
        // An earlier connection may have gone with its server.
        let redis = Redis::at(&self.server.url())?;
        let sink = StreamSink::partitions(&redis, &self.name, self.partitions)?;
        for message in messages {
            sink.push(&message).await?;
        }
        Ok(())
    }

    async fn left(&self) -> Result<usize, BoxError> {
        let client = self.client().await;
        let mut left = 0;
        for number in 0..self.partitions {
            left += client.left(&self.stream(number), &self.name).await;
        }
        Ok(left)
    }

    async fn letters(&self) -> Result<Vec<RawMessage>, BoxError> {
        let name = self.letters_name();
        let client = self.client().await;
        let count: usize = client.run(&["XLEN", &name]).await;
        let letters = builder(&self.server.url(), &new_name("reads")).stream(name);
        let mut letters = Driven::open(letters.build()?).await;
        let handed = letters.receive(count).await;
        Ok(handed.into_iter().map(|letter| letter.message).collect())
    }

    async fn inject(&self, fault: Fault) -> Result<(), BoxError> {
        match fault {
            Fault::Restart => {
                self.server.stop().await?;
                self.server.start_again().await?;
            }
            Fault::Kill => {
                self.server.kill().await?;
                self.server.start_again().await?;
            }
            Fault::Stall => {
                let proxy = self.proxy.clone().ok_or("there is no proxy")?;
                proxy.cut();
                tokio::spawn(async move {
                    // Longer than the source may be silent.
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    proxy.reset();
                    proxy.heal();
                });
            }
            Fault::Lose => {
                let client = self.client().await;
                let leases = format!("*keylane-streams:{}*", self.name);
                let leases: Vec<String> = client.run(&["KEYS", &leases]).await;
                assert!(!leases.is_empty(), "there are leases");
                for lease in leases {
                    let _: u64 = client.run(&["DEL", &lease]).await;
                }
            }
            Fault::Revoke => {
                // Members that were there before all others, for a few looks at the members.
                let client = self.client().await;
                let (seconds, _): (u64, u64) = client.run(&["TIME"]).await;
                let score = ((seconds + 4) * 1_000).to_string();
                let members = format!("{{{}}}:keylane:members:{}", self.stream(0), self.name);
                for number in 0..self.partitions {
                    let name = format!("000-{number}");
                    let _: u64 = client.run(&["ZADD", &members, &score, &name]).await;
                }
            }
            _ => return Err(format!("the harness cannot inject {fault}").into()),
        }
        Ok(())
    }
}
