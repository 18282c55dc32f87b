//! Faults of the network and of servers: no two holders of a lease, and tokens rise.

use std::time::Duration;

use keylane_leases::error::AcquireError;
use keylane_leases::store::{Answer, Claim, LeaseStore, Owner, Wish};
use keylane_leases::{Lease, Leases};
use keylane_testkit::scenario::until_async as until;
use keylane_zookeeper::ElectionStore;
use testkit_servers::zookeeper::Mode;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{LONG, PATIENCE, Process, TICK, TIMEOUT, TTL, ensemble, new_root, own, store};

/// The session ends at the server while its process cannot reach it.
#[tokio::test]
async fn a_lease_of_an_expired_session_is_lost_and_the_next_one_is_not_touched() {
    let server = own().await;
    let root = new_root();
    let here = Process::brief(&server.proxied(), &root);
    let there = Process::new(&server.hosts(), &root);
    let older = here.granted("key").await;
    assert!(there.is_taken("key").await);
    server.proxy(0).cut();
    let newer = there.granted_at_last("key").await;
    assert!(newer > older);
    server.proxy(0).heal();
    server.proxy(0).reset();
    until("it is told", async || {
        here.renew("key", older).await == Some(false)
    })
    .await;
    here.release("key", older).await;
    assert!(here.is_taken("key").await);
    assert_eq!(there.renew("key", newer).await, Some(true));
    // The store goes on with another session.
    here.granted("another").await;
}

/// The holder knows the end of its lease before another one gets it.
#[tokio::test]
async fn a_holder_without_a_network_gives_up_first() {
    let server = own().await;
    let root = new_root();
    // It must outlast a machine that stands still for a second or two.
    let ttl = TTL * 3;
    let open = |hosts: &str| Leases::open(store(hosts, &root, TIMEOUT * 3)).unwrap();
    let (here, there) = (open(&server.proxied()), open(&server.hosts()));
    let lease = here.acquire("key", ttl).await.unwrap();
    sleep(ttl).await;
    lease.check().unwrap();
    server.proxy(0).cut();
    let next = timeout(PATIENCE, there.acquire("key", ttl))
        .await
        .unwrap()
        .unwrap();
    assert!(lease.check().is_err());
    assert!(next.token() > lease.token());
}

/// What the server says of a node is not enough: an own node counts only with the own session. This
/// process has the same owner as the one whose session is about to end.
#[tokio::test]
async fn a_node_of_a_dead_session_of_the_same_owner_is_another_holder() {
    let server = own().await;
    let root = new_root();
    let before = Process::brief(&server.proxied(), &root);
    let now = Process::new(&server.hosts(), &root).owned_by(&before.owner);
    let older = before.granted("key").await;
    server.proxy(0).cut();
    assert!(now.is_taken("key").await);
    assert_eq!(now.renew("key", older).await, Some(false));
    now.release("key", older).await;
    assert!(now.is_taken("key").await);
    let newer = now.granted_at_last("key").await;
    assert!(newer > older);
    assert_eq!(now.renew("key", newer).await, Some(true));
}

#[tokio::test]
async fn a_lease_outlives_a_restart_of_the_server() {
    let server = own().await;
    let (hosts, root) = (server.hosts(), new_root());
    let (here, there) = (store(&hosts, &root, LONG), Process::new(&hosts, &root));
    let (owner, ttl) = (Owner::random(), LONG / 2);
    let wishes = [Wish::new("key", ttl)];
    let answers = here.acquire(&owner, &wishes).await.unwrap();
    let Answer::Granted(token) = answers[0] else {
        panic!("{answers:?}");
    };
    server.kill(0).await.unwrap();
    server.start_again(0).await.unwrap();
    let claims = [Claim::new("key", token, ttl)];
    until("it is renewed", async || {
        let renewed = here.renew(&owner, &claims).await;
        assert_ne!(renewed, Ok(vec![false]));
        renewed.is_ok()
    })
    .await;
    until("it is taken", async || match there.ask("key").await {
        Some(Answer::Taken { .. }) => true,
        None => false,
        granted => panic!("{granted:?}"),
    })
    .await;
    here.release(&owner, &claims).await.unwrap();
    assert!(there.granted("key").await > token);
}

/// The leader dies, again and again. Its successor gives all sessions their whole time.
#[tokio::test]
async fn leases_outlive_their_leader() {
    let server = ensemble(3).await;
    let (hosts, root) = (server.hosts(), new_root());
    let open = |timeout| Leases::open(store(&hosts, &root, timeout)).unwrap();
    let (here, there) = (open(LONG), open(LONG));
    let lease = acquired(&here, "key").await;
    let mut last = lease.token();
    for round in 0..2 {
        let key = format!("key-{round}");
        // Since the last round the servers may still choose a leader.
        let ended = acquired(&here, &key).await;
        let leader = leader_of(&server).await;
        server.kill(leader).await.unwrap();
        until("it is taken", async || {
            match there.try_acquire("key", LONG / 2).await {
                Err(AcquireError::Taken { .. }) => true,
                Err(_) => false,
                Ok(_) => panic!("granted twice"),
            }
        })
        .await;
        ended.release().await;
        let next = acquired(&there, &key).await.token();
        assert!(next > last, "{next} after {last}");
        last = next;
        lease.check().unwrap();
        server.start_again(leader).await.unwrap();
    }
}

/// Returns a lease when the servers grant it. A call may have no answer while they have no leader.
async fn acquired(leases: &Leases, key: &str) -> Lease {
    let acquires = async {
        loop {
            if let Ok(lease) = leases.acquire(key.to_owned(), LONG / 2).await {
                return lease;
            }
            sleep(TICK).await;
        }
    };
    let acquired = timeout(PATIENCE * 3, acquires).await;
    acquired.unwrap_or_else(|_| panic!("{key} is not granted"))
}

/// Returns the server that leads, when one does.
async fn leader_of(server: &testkit_servers::ZooKeeper) -> usize {
    let leads = async {
        loop {
            if let Some(leader) = server.leader().await {
                return leader;
            }
            sleep(TICK).await;
        }
    };
    timeout(PATIENCE, leads).await.expect("one of them leads")
}

/// A follower without its leader answers questions for some time, and the leader does not hear of
/// its clients.
#[tokio::test]
async fn a_follower_that_is_cut_off_confirms_nothing() {
    cut_off_with_its_holder(Mode::Follower).await;
}

#[tokio::test]
async fn a_leader_that_is_cut_off_confirms_nothing() {
    cut_off_with_its_holder(Mode::Leader).await;
}

/// The holder reaches one server, which is cut off from the others; the other process reaches
/// those. The holder may believe in its lease until nine tenths of its time after it has sent the
/// last renewal that was confirmed.
async fn cut_off_with_its_holder(mode: Mode) {
    let server = ensemble(3).await;
    let leader = leader_of(&server).await;
    let cut_off = match mode {
        Mode::Leader => leader,
        _ => (leader + 1) % 3,
    };
    let others = (0..3).filter(|other| *other != cut_off);
    let others = Vec::from_iter(others.map(|other| server.host(other))).join(",");
    let root = new_root();
    let here = Process::brief(&server.host(cut_off), &root);
    let there = Process::new(&others, &root);
    // On a machine that is busy the first lease may run out before it is renewed.
    let mut token = here.granted_at_last("key").await;
    while here.renew("key", token).await != Some(true) {
        token = here.granted_at_last("key").await;
    }
    let mut confirmed = Instant::now();
    let holds = async {
        loop {
            let sent = Instant::now();
            if here.renew("key", token).await == Some(true) {
                confirmed = sent;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let takes = async {
        sleep(TTL).await;
        server.cut_off(cut_off);
        let newer = there.granted_at_last("key").await;
        (newer, Instant::now())
    };
    let (newer, at) = tokio::select! {
        taken = takes => taken,
        () = holds => unreachable!("it holds for ever"),
    };
    assert!(newer > token);
    let believes_until = confirmed + TTL * 9 / 10;
    assert!(
        believes_until <= at,
        "two holders for {:?}",
        believes_until - at
    );
    server.rejoin(cut_off);
    until("it is told", async || {
        here.renew("key", token).await == Some(false)
    })
    .await;
    // The servers may choose a leader when the one that was cut off is back.
    until("the other one holds it", async || {
        there.renew("key", newer).await == Some(true)
    })
    .await;
}

/// A server that stands still for longer than the session, and goes on: it may end the session or
/// not, but there is one holder.
#[tokio::test]
async fn a_server_that_stood_still_has_one_holder() {
    let server = own().await;
    let (hosts, root) = (server.hosts(), new_root());
    let (here, there) = (Process::brief(&hosts, &root), Process::new(&hosts, &root));
    let older = here.granted("key").await;
    server.pause(0).await.unwrap();
    sleep(TIMEOUT + TIMEOUT / 2).await;
    server.resume(0).await.unwrap();
    let newer = there.granted_at_last("key").await;
    assert!(newer > older);
    until("it is told", async || {
        here.renew("key", older).await == Some(false)
    })
    .await;
    assert_eq!(there.renew("key", newer).await, Some(true));
}

/// Transactions count on from those of the backup, so tokens repeat. A process that has seen the
/// last ones says so, in the history of the store, to all processes.
#[tokio::test]
async fn a_restored_backup_repeats_tokens_and_changes_the_history() {
    let server = own().await;
    let (hosts, root) = (server.hosts(), new_root());
    let (here, there) = (Process::brief(&hosts, &root), Process::brief(&hosts, &root));
    let first = here.granted("key").await;
    here.release("key", first).await;
    let history = there.store.history().await.unwrap();
    assert_eq!(here.store.history().await.as_ref(), Ok(&history));
    server.kill(0).await.unwrap();
    let backup = server.save(0).await.unwrap();
    server.start_again(0).await.unwrap();
    let mut last = first;
    for _ in 0..50 {
        last = here.granted_at_last("key").await;
        here.release("key", last).await;
    }
    assert_eq!(here.store.history().await.as_ref(), Ok(&history));

    server.kill(0).await.unwrap();
    server.restore(0, &backup).await.unwrap();
    server.start_again(0).await.unwrap();
    // One that has seen nothing of it.
    let new = Process::brief(&hosts, &root);
    let repeated = new.granted_at_last("key").await;
    assert!(repeated > first && repeated < last, "{repeated}, {last}");
    until("it is noticed", async || {
        here.store.history().await.is_ok_and(|now| now != history)
    })
    .await;
    let now = here.store.history().await.unwrap();
    assert_eq!(new.store.history().await.as_ref(), Ok(&now));
}
