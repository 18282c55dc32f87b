//! A server, with a proxy for each worker, and what leaders write into it.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use keylane_leader::Term;
use keylane_redis::{FenceError, Redis, RedisElections};
use redis::aio::ConnectionManager;
use tempfile::TempDir;
use testkit_processes::elections::{Answer, Candidacy, Cut, Sink, Site, WORKERS, Write, Written};
use testkit_servers::proxy::Proxy;
use testkit_servers::{Clock, RedisKind};

const NAMESPACE: &str = "jobs";
const FENCED: &str = "fenced";
const PLAIN: &str = "plain";

/// How long a worker waits for an answer.
const CALL: Duration = Duration::from_secs(1);

pub(crate) struct Servers {
    server: testkit_servers::Redis,
    proxies: Vec<Proxy>,
    /// Of the workers.
    clocks: Vec<(Clock, TempDir)>,
}

impl Servers {
    pub(crate) async fn start(kind: RedisKind) -> Self {
        // It syncs its file before each answer. With a sync each second, a server that waits for its
        // disk answers before it has written the command, and loses it when it is killed.
        let server = testkit_servers::Redis::start(kind).await.unwrap();
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
        let proxies = join_all((0..WORKERS).map(|_| Proxy::to(to))).await;
        Self {
            server,
            proxies: proxies.into_iter().map(Result::unwrap).collect(),
            clocks: (0..WORKERS).map(|_| clock()).collect(),
        }
    }

    async fn list(&self, key: &str) -> Vec<Write> {
        let list = self.server.execute(&["LRANGE", key, "0", "-1"]).await;
        let list = list.unwrap();
        list.lines()
            .map(|line| Write::parse(line).unwrap())
            .collect()
    }
}

fn clock() -> (Clock, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Clock::of(folder.path()).unwrap(), folder)
}

impl Site for Servers {
    fn address(&self, worker: usize) -> String {
        format!("redis://127.0.0.1:{}/", self.proxies[worker].port())
    }

    fn cut(&self, worker: usize, cut: Cut) {
        match cut {
            Cut::Both => self.proxies[worker].cut(),
            Cut::Answers => self.proxies[worker].cut_to_client(),
        }
    }

    fn heal(&self, worker: usize) {
        self.proxies[worker].heal();
    }

    fn variables(&self, worker: usize) -> Vec<(&'static str, OsString)> {
        self.clocks[worker].0.variables().into()
    }

    fn set_clock(&self, worker: usize, seconds: i64) {
        self.clocks[worker].0.set(seconds).unwrap();
    }

    async fn restart(&self) {
        self.server.kill().await.unwrap();
        self.server.start_again().await.unwrap();
    }

    async fn written(&self) -> Written {
        Written {
            fenced: self.list(FENCED).await,
            plain: self.list(PLAIN).await,
        }
    }
}

struct Lists {
    elections: Arc<RedisElections>,
    plain: ConnectionManager,
}

impl Sink for Lists {
    async fn fenced(&self, term: &Term, write: Write) -> Answer {
        let fenced = self.elections.fence(term.key(), term.token());
        let fenced = fenced.history(term.history());
        let fenced = fenced.command("RPUSH", FENCED, [write.to_string()]);
        match fenced.run().await {
            Ok(()) => Answer::Accepted,
            Err(FenceError::Fenced) => Answer::Refused,
            Err(_) => Answer::Unknown,
        }
    }

    async fn plain(&self, write: Write) {
        let mut push = redis::cmd("RPUSH");
        push.arg(PLAIN).arg(write.to_string());
        // The server may be away.
        let _ = push.exec_async(&mut self.plain.clone()).await;
    }
}

/// The worker: this program again.
#[test]
fn worker() {
    let Some(candidacy) = Candidacy::assigned() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let redis = Redis::at(candidacy.address()).unwrap();
        let redis = redis.response_timeout(CALL).connect_timeout(CALL);
        let elections = Arc::new(RedisElections::open(&redis, NAMESPACE).unwrap());
        let client = redis::Client::open(candidacy.address()).unwrap();
        let sink = Lists {
            elections: Arc::clone(&elections),
            plain: ConnectionManager::new(client).await.unwrap(),
        };
        candidacy.run(elections, sink).await;
    });
}
