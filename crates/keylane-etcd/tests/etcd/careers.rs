//! Candidates of `keylane-leader` in etcd, whose writes etcd checks.

use std::sync::Arc;
use std::time::Duration;

use keylane_etcd::etcd_client::{Client, GetOptions, Txn, TxnOp};
use keylane_etcd::{Etcd, EtcdElections, FenceError};
use keylane_leader::{Candidate, Career, Elections, End, Office, Term};
use keylane_leases::Owner;
use keylane_testkit::scenario::until_async as until;
use tokio::time::sleep;

use crate::support::{by, client, each_kind, new_namespace, own, shared};

const TTL: Duration = Duration::from_secs(3);

/// Writes the token of its term, again and again.
struct Billing {
    store: Arc<EtcdElections>,
    target: String,
}

impl Career for Billing {
    type Error = FenceError;

    async fn inaugurate(&mut self, term: &Term) -> Result<(), FenceError> {
        self.write(term).await
    }

    async fn step(&mut self, term: &Term) -> Result<(), FenceError> {
        sleep(Duration::from_millis(20)).await;
        self.write(term).await
    }

    async fn hand_over(&mut self, term: &Term, _why: End) {
        // Refused if the term is over.
        let _ = self.write(term).await;
    }
}

impl Billing {
    async fn write(&self, term: &Term) -> Result<(), FenceError> {
        let name = format!("{}/{}", self.target, Owner::random());
        let write = TxnOp::put(name, term.token().to_string(), None);
        let txn = Txn::new().and_then([write]);
        self.store.fence(term).commit(txn).await.map(drop)
    }
}

/// A candidate of a process, with its own connections.
struct Process {
    office: Office,
    _elections: Elections,
}

fn process(url: &str, namespace: &str) -> Process {
    let etcd = Etcd::at([url]).unwrap();
    let store = Arc::new(EtcdElections::open(&etcd, namespace).unwrap());
    let elections = Elections::open(store.clone()).unwrap();
    let billing = Billing {
        store,
        target: format!("{namespace}-writes"),
    };
    let office = Candidate::builder(&elections, "billing")
        .ttl(TTL)
        .retry_after(Duration::from_millis(50), Duration::from_secs(1))
        .run(billing)
        .unwrap();
    Process {
        office,
        _elections: elections,
    }
}

impl Process {
    async fn leads(&self) {
        until("it leads", async || self.office.leads()).await;
    }
}

/// The tokens of all writes, in the order in which etcd has executed them.
async fn writes(operator: &mut Client, namespace: &str) -> Vec<u64> {
    let all = GetOptions::new().with_prefix();
    let found = operator
        .get(format!("{namespace}-writes/"), Some(all))
        .await;
    let mut writes = Vec::from_iter(found.unwrap().kvs().iter().map(|write| {
        let token: u64 = write.value_str().unwrap().parse().unwrap();
        (write.create_revision(), token)
    }));
    writes.sort_unstable();
    writes.into_iter().map(|(_, token)| token).collect()
}

#[tokio::test]
async fn a_leader_resigns_is_cut_off_and_comes_back_and_no_older_term_writes() {
    each_kind(async |kind| {
        let (server, namespace) = (shared(kind).await, new_namespace());
        let mut operator = client(server).await;
        let mut last = 0;
        let mut acts = async |process: &Process| {
            process.leads().await;
            until("it has written", async || {
                let written = writes(&mut operator, &namespace).await.pop();
                let is_new = written.is_some_and(|token| token > last);
                last = written.unwrap_or(last).max(last);
                is_new
            })
            .await;
        };
        let proxy = server.proxy().await.unwrap();
        let first = process(&by(&proxy), &namespace);
        acts(&first).await;
        let second = process(&server.url(), &namespace);
        until("it follows", async || second.office.current().is_some()).await;

        first.office.resign().unwrap();
        acts(&second).await;
        until("the other one follows", async || {
            let leader = first.office.current();
            leader.is_some_and(|leader| leader.leader == *second.office.id())
        })
        .await;
        second.office.hand_to(first.office.id()).unwrap();
        acts(&first).await;

        proxy.cut();
        acts(&second).await;
        proxy.heal();
        sleep(TTL).await;
        second.office.close().await;
        acts(&first).await;
        first.office.close().await;

        let writes = writes(&mut operator, &namespace).await;
        assert!(writes.is_sorted(), "{kind}: an older term has written");
        let mut terms = writes.clone();
        terms.dedup();
        println!("{kind}: {} writes in {} terms", writes.len(), terms.len());
        assert!(terms.len() >= 5, "{kind}: {terms:?}");
    })
    .await;
}

/// The leader stops when the data go back, and another term begins in the new history.
#[tokio::test]
async fn a_leader_ends_when_the_data_go_back() {
    each_kind(async |kind| {
        let server = own(kind).await;
        let before = process(&server.url(), "back");
        before.leads().await;
        let saved = server.save().await.unwrap();
        let mut events = before.office.events();
        until("there are later writes", async || {
            let mut operator = client(&server).await;
            writes(&mut operator, "back").await.len() > 20
        })
        .await;
        server.put_back(&saved).await.unwrap();
        let ended = async {
            while let Some(event) = events.next().await {
                let event = format!("{event:?}");
                if event.contains("OtherHistory")
                    || event.contains("Lost")
                    || event.contains("Failed")
                {
                    return;
                }
            }
            panic!("{kind}: no event");
        };
        ended.await;
        before.leads().await;
        before.office.close().await;
    })
    .await;
}
