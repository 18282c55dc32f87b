//! A server, with a proxy for each worker, and what leaders write into it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use keylane_etcd::etcd_client::{
    Client, ConnectOptions, GetOptions, SortOrder, SortTarget, Txn, TxnOp,
};
use keylane_etcd::{Etcd, EtcdElections, FenceError};
use keylane_leader::Term;
use testkit_processes::elections::{Answer, Candidacy, Cut, Sink, Site, WORKERS, Write, Written};
use testkit_servers::EtcdKind;
use testkit_servers::proxy::Proxy;

const NAMESPACE: &str = "jobs";
const FENCED: &str = "fenced/";
const PLAIN: &str = "plain/";

/// How long a worker waits for an answer.
const CALL: Duration = Duration::from_secs(1);

pub(crate) struct Servers {
    server: testkit_servers::Etcd,
    proxies: Vec<Proxy>,
}

impl Servers {
    pub(crate) async fn start(kind: EtcdKind) -> Self {
        let server = testkit_servers::Etcd::start(kind).await.unwrap();
        let proxies = join_all((0..WORKERS).map(|_| server.proxy())).await;
        Self {
            proxies: proxies.into_iter().map(Result::unwrap).collect(),
            server,
        }
    }

    /// Each write is a key, in the order in which they were created.
    async fn keys(&self, folder: &str) -> Vec<Write> {
        let mut client = Client::connect([self.server.url()], None).await.unwrap();
        let options = GetOptions::new().with_prefix().with_keys_only();
        let options = options.with_sort(SortTarget::Create, SortOrder::Ascend);
        let found = client.get(folder, Some(options)).await.unwrap();
        let write = |key: &str| Write::parse(key.strip_prefix(folder)?);
        let keys = found.kvs().iter().map(|pair| pair.key_str().unwrap());
        keys.map(|key| write(key).unwrap()).collect()
    }
}

impl Site for Servers {
    fn address(&self, worker: usize) -> String {
        format!("http://127.0.0.1:{}", self.proxies[worker].port())
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

    async fn restart(&self) {
        self.server.kill().await.unwrap();
        self.server.start_again().await.unwrap();
    }

    async fn written(&self) -> Written {
        Written {
            fenced: self.keys(FENCED).await,
            plain: self.keys(PLAIN).await,
        }
    }
}

struct Keys {
    elections: Arc<EtcdElections>,
    plain: Client,
}

impl Sink for Keys {
    async fn fenced(&self, term: &Term, write: Write) -> Answer {
        let put = TxnOp::put(format!("{FENCED}{write}"), "", None);
        let put = Txn::new().and_then([put]);
        match self.elections.fence(term).commit(put).await {
            Ok(_) => Answer::Accepted,
            Err(FenceError::Fenced { .. }) => Answer::Refused,
            Err(_) => Answer::Unknown,
        }
    }

    async fn plain(&self, write: Write) {
        let mut client = self.plain.kv_client();
        // The server may be away.
        let _ = client.put(format!("{PLAIN}{write}"), "", None).await;
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
        let options = ConnectOptions::new().with_timeout(CALL);
        let address = [candidacy.address()];
        let plain = Client::connect(address, Some(options)).await.unwrap();
        let etcd = Etcd::at(address).unwrap();
        let elections = Arc::new(EtcdElections::open(&etcd, NAMESPACE).unwrap());
        let sink = Keys {
            elections: Arc::clone(&elections),
            plain,
        };
        candidacy.run(elections, sink).await;
    });
}
