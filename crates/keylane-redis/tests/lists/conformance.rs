//! The conformance suite of sources.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane_redis::{ListQueue, ListSource, Redis};
use keylane_testkit::conformance::{Fault, Harness, Site};
use testkit_servers::RedisKind;
use testkit_servers::proxy::Proxy;

use crate::support::{builder, new_name, own, shared};

mod redis_7 {
    keylane_testkit::conformance_tests!(
        [flavor = "multi_thread", worker_threads = 2]
        super::Server(super::RedisKind::Redis7)
    );
}

mod redis_8 {
    keylane_testkit::conformance_tests!(
        [flavor = "multi_thread", worker_threads = 2]
        super::Server(super::RedisKind::Redis8)
    );
}

mod valkey_9 {
    keylane_testkit::conformance_tests!(
        [flavor = "multi_thread", worker_threads = 2]
        super::Server(super::RedisKind::Valkey9)
    );
}

struct Server(RedisKind);

struct Place {
    server: Arc<testkit_servers::Redis>,
    queue: ListQueue,
    list: String,
    /// The source goes through it.
    proxy: Option<Arc<Proxy>>,
    keeps_letters: bool,
    exact_starts: bool,
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
        let list = new_name(case);
        Ok(Place {
            queue: builder(&server.url(), &list).build()?,
            server,
            list,
            proxy,
            keeps_letters: matches!(case, "dead_letter_at_source" | "round_trip"),
            exact_starts: case == "attempts",
        })
    }

    fn faults(&self) -> Vec<Fault> {
        vec![Fault::Restart, Fault::Kill, Fault::Stall, Fault::Lose]
    }
}

#[keylane::async_trait]
impl Site for Place {
    type Source = ListSource;

    async fn source(&self) -> Result<ListSource, BoxError> {
        let builder = match &self.proxy {
            Some(proxy) => {
                let redis = Redis::at(&format!("redis://127.0.0.1:{}", proxy.port()))?
                    .response_timeout(Duration::from_secs(60));
                ListQueue::builder(&redis, self.list.clone()).lease(Duration::from_secs(60))
            }
            None => builder(&self.server.url(), &self.list),
        };
        let builder = match self.keeps_letters {
            true => builder.dead_letters(),
            false => builder,
        };
        let builder = match self.exact_starts {
            true => builder.exact_starts(),
            false => builder,
        };
        Ok(builder.build()?.source())
    }

    async fn publish(&self, messages: Vec<RawMessage>) -> Result<(), BoxError> {
        // An earlier connection may have gone with its server.
        let queue = builder(&self.server.url(), &self.list).build()?;
        Ok(queue.push_all(&messages).await?)
    }

    async fn left(&self) -> Result<usize, BoxError> {
        let status = self.queue.status().await?;
        let workers = status
            .workers
            .iter()
            .map(|worker| worker.held + worker.sent);
        Ok(usize::try_from(status.waiting + workers.sum::<u64>())?)
    }

    async fn letters(&self) -> Result<Vec<RawMessage>, BoxError> {
        Ok(self.queue.letters(1_000).await?)
    }

    async fn redrive(&self) -> Result<bool, BoxError> {
        self.queue.redrive(1_000).await?;
        Ok(true)
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
                let workers = format!("{{{}}}:keylane:workers", self.list);
                let all = self
                    .server
                    .execute(&["ZRANGE", &workers, "0", "-1"])
                    .await?;
                for worker in all.lines() {
                    self.server
                        .execute(&["ZADD", &workers, "0", worker])
                        .await?;
                }
                self.queue.return_expired().await?;
            }
            _ => return Err(format!("the harness cannot inject {fault}").into()),
        }
        Ok(())
    }
}
