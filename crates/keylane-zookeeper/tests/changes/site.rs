//! Three servers, with proxies for each worker, and what leaders have written into them.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use testkit_processes::elections::{Cut, Site, WORKERS, Write, Written};
use testkit_servers::proxy::Proxy;
use testkit_servers::zookeeper::Mode;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode};

/// The tick of the servers.
pub(crate) const TICK: Duration = Duration::from_millis(200);

pub(crate) const FENCED: &str = "/fenced";
pub(crate) const PLAIN: &str = "/plain";

pub(crate) struct Servers {
    servers: testkit_servers::ZooKeeper,
    /// Of each worker, one for each server.
    proxies: Vec<Vec<Proxy>>,
    restarts: AtomicUsize,
}

impl Servers {
    pub(crate) async fn start() -> Self {
        let builder = testkit_servers::ZooKeeper::builder();
        let builder = builder.servers(3).tick(TICK);
        // The plain writes are made in sessions that do not end.
        let builder = builder.property("maxSessionTimeout", "2000000");
        let servers = builder.start().await.unwrap();
        let client = Client::connect(&servers.hosts()).await.unwrap();
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for folder in [FENCED, PLAIN] {
            client.create(folder, b"", &options).await.unwrap();
        }
        let of_worker = async |_| {
            let to = (0..servers.servers()).map(|at| servers.host(at).parse().unwrap());
            let proxies = join_all(to.map(Proxy::to)).await;
            proxies.into_iter().map(Result::unwrap).collect()
        };
        let proxies = join_all((0..WORKERS).map(of_worker)).await;
        Self {
            servers,
            proxies,
            restarts: AtomicUsize::new(0),
        }
    }

    /// The leader of the ensemble is in a minority, until the others have another one.
    async fn minority(&self, leader: usize) {
        self.servers.cut_off(leader);
        within_patience("the others have a leader", self.other_leads(leader)).await;
        self.servers.rejoin(leader);
    }

    async fn other_leads(&self, leader: usize) {
        loop {
            for at in (0..self.servers.servers()).filter(|at| *at != leader) {
                if self.servers.mode(at).await == Some(Mode::Leader) {
                    return;
                }
            }
            sleep(LOOK).await;
        }
    }

    async fn leader(&self) -> usize {
        loop {
            if let Some(leader) = self.servers.leader().await {
                return leader;
            }
            sleep(LOOK).await;
        }
    }

    /// Each write is a node, in the order in which they were created.
    async fn nodes(&self, folder: &str) -> Vec<Write> {
        let client = Client::connect(&self.servers.hosts()).await.unwrap();
        client.sync(folder).await.unwrap();
        let names = client.list_children(folder).await.unwrap();
        let paths: Vec<String> = names
            .iter()
            .map(|name| format!("{folder}/{name}"))
            .collect();
        let mut found = Vec::new();
        for (name, path) in names.iter().zip(&paths) {
            let (_, stat) = client.get_data(path).await.unwrap();
            found.push((stat.czxid, Write::parse(&name.replace('-', "/")).unwrap()));
        }
        found.sort_unstable();
        found.into_iter().map(|(_, write)| write).collect()
    }
}

/// How often the ensemble is asked what it is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// Longer than an ensemble takes to elect its leader.
const PATIENCE: Duration = Duration::from_secs(120);

async fn within_patience<T>(what: &str, waits: impl Future<Output = T>) -> T {
    let came = timeout(PATIENCE, waits).await;
    came.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

/// Returns the name of the node of a write.
pub(crate) fn name(write: Write) -> String {
    write.to_string().replace('/', "-")
}

impl Site for Servers {
    fn address(&self, worker: usize) -> String {
        let hosts = self.proxies[worker].iter();
        let hosts: Vec<String> = hosts.map(|proxy| proxy.addr().to_string()).collect();
        hosts.join(",")
    }

    fn cut(&self, worker: usize, cut: Cut) {
        for proxy in &self.proxies[worker] {
            match cut {
                Cut::Both => proxy.cut(),
                Cut::Answers => proxy.cut_to_client(),
            }
        }
    }

    fn heal(&self, worker: usize) {
        self.proxies[worker].iter().for_each(Proxy::heal);
    }

    /// The leader of the ensemble is killed, and the next time it is in a minority.
    async fn restart(&self) {
        let leader = within_patience("the ensemble has a leader", self.leader()).await;
        if self
            .restarts
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(2)
        {
            self.servers.kill(leader).await.unwrap();
            self.servers.start_again(leader).await.unwrap();
        } else {
            self.minority(leader).await;
        }
    }

    async fn written(&self) -> Written {
        Written {
            fenced: self.nodes(FENCED).await,
            plain: self.nodes(PLAIN).await,
        }
    }
}
