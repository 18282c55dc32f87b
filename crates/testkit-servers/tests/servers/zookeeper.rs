//! ZooKeeper: what the databases do too, an ensemble that loses its leader, and data of a backup.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use testkit_servers::zookeeper::Mode;
use testkit_servers::{ServerError, ZooKeeper};

use crate::killed::{self, State};
use crate::processes::{is_dead, refuses, state};

/// What an election needs at most, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

async fn start() -> ZooKeeper {
    ZooKeeper::start().await.unwrap()
}

/// The port of the first server among such addresses.
fn port(addresses: &str) -> u16 {
    let first = addresses.split(',').next().unwrap();
    first.strip_prefix("127.0.0.1:").unwrap().parse().unwrap()
}

/// Opens a session, which is a transaction, and leaves it.
fn open_session(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // Its length; version 0, no transaction seen, a time-out of 2 s, no earlier session, a password
    // of 16 bytes, and no read-only server.
    let mut request = vec![0, 0, 0, 45];
    request.extend([0; 4 + 8 + 2]);
    request.extend(2_000_u16.to_be_bytes());
    request.extend([0; 8 + 3]);
    request.extend([16; 1]);
    request.extend([0; 16 + 1]);
    stream.write_all(&request).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
}

/// The last transaction that a server has, as it tells it.
async fn last_transaction(zookeeper: &ZooKeeper) -> String {
    let answer = zookeeper.word(0, "srvr").await.unwrap();
    let line = answer.lines().find(|line| line.starts_with("Zxid"));
    line.unwrap().to_owned()
}

/// Waits until a server is this to its ensemble.
async fn becomes(zookeeper: &ZooKeeper, server: usize, mode: Option<Mode>) {
    let began = Instant::now();
    while zookeeper.mode(server).await != mode {
        assert!(
            began.elapsed() < PATIENCE,
            "server {server} is not {mode:?}:\n{}",
            zookeeper.log(server)
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn comes_back_on_its_port() {
    let clock = tokio::time::Instant::now();
    let zookeeper = start().await;
    let (hosts, proxied) = (zookeeper.hosts(), zookeeper.proxied());
    assert_eq!(zookeeper.mode(0).await, Some(Mode::Alone));
    assert_eq!(zookeeper.leader().await, Some(0));

    let pid = zookeeper.pid(0).unwrap();
    zookeeper.kill(0).await.unwrap();
    assert!(is_dead(pid) && zookeeper.pid(0).is_none());
    assert!(refuses(port(&hosts)));
    zookeeper.kill(0).await.unwrap(); // does nothing
    let paused = zookeeper.pause(0).await;
    assert!(matches!(paused, Err(ServerError::NotRunning)), "{paused:?}");

    zookeeper.start_again(0).await.unwrap();
    let again = zookeeper.start_again(0).await;
    assert!(matches!(again, Err(ServerError::Running)), "{again:?}");
    assert_eq!(zookeeper.mode(0).await, Some(Mode::Alone));

    zookeeper.stop(0).await.unwrap();
    assert!(refuses(port(&hosts)) && zookeeper.mode(0).await.is_none());
    zookeeper.start_again(0).await.unwrap();
    assert_eq!((zookeeper.hosts(), zookeeper.proxied()), (hosts, proxied));
    assert_eq!(
        clock.elapsed(),
        Duration::ZERO,
        "the clock of the test ran on"
    );
}

#[tokio::test]
async fn hangs_while_it_is_paused() {
    let zookeeper = start().await;
    zookeeper.pause(0).await.unwrap();
    let pid = zookeeper.pid(0).unwrap();
    assert_eq!(state(pid), Some('T'));
    assert_eq!(zookeeper.mode(0).await, None);
    zookeeper.resume(0).await.unwrap();
    becomes(&zookeeper, 0, Some(Mode::Alone)).await;
    zookeeper.pause(0).await.unwrap();
    zookeeper.kill(0).await.unwrap();
    assert!(is_dead(pid));
}

#[tokio::test]
async fn a_backup_goes_back() {
    let zookeeper = start().await;
    let port = port(&zookeeper.hosts());
    open_session(port);
    zookeeper.kill(0).await.unwrap();
    let saved = zookeeper.save(0).await.unwrap();
    zookeeper.start_again(0).await.unwrap();
    let before = last_transaction(&zookeeper).await;
    assert!(!before.ends_with("0x0"), "{before}");
    let while_it_runs = zookeeper.save(0).await;
    assert!(matches!(while_it_runs, Err(ServerError::Running)));
    (0..10).for_each(|_| open_session(port));
    zookeeper.kill(0).await.unwrap();
    zookeeper.start_again(0).await.unwrap();
    assert_ne!(last_transaction(&zookeeper).await, before);

    zookeeper.kill(0).await.unwrap();
    zookeeper.restore(0, &saved).await.unwrap();
    zookeeper.start_again(0).await.unwrap();
    assert_eq!(last_transaction(&zookeeper).await, before);
}

#[tokio::test]
async fn an_ensemble_has_a_leader_and_elects_another() {
    let zookeeper = ZooKeeper::ensemble().await.unwrap();
    assert_eq!(zookeeper.servers(), 3);
    assert_eq!(zookeeper.proxied().split(',').count(), 3);
    let leader = zookeeper.leader().await.unwrap();
    zookeeper.kill(leader).await.unwrap();
    let began = Instant::now();
    let next = loop {
        match zookeeper.leader().await {
            Some(next) => break next,
            None => assert!(began.elapsed() < PATIENCE, "no leader"),
        }
    };
    assert_ne!(next, leader);
    zookeeper.start_again(leader).await.unwrap();
    becomes(&zookeeper, leader, Some(Mode::Follower)).await;

    // Without the others the leader gives up, though clients reach it.
    zookeeper.cut_off(next);
    becomes(&zookeeper, next, None).await;
    assert!(!refuses(port(&zookeeper.host(next))));
    let began = Instant::now();
    while zookeeper.leader().await.is_none() {
        assert!(began.elapsed() < PATIENCE, "no leader of the others");
    }
    zookeeper.rejoin(next);
    becomes(&zookeeper, next, Some(Mode::Follower)).await;

    let pids: Vec<_> = (0..3).map(|server| zookeeper.pid(server)).collect();
    let folder = zookeeper.folder().to_owned();
    drop(zookeeper);
    assert!(pids.iter().all(|pid| is_dead(pid.unwrap())) && !folder.exists());
}

#[tokio::test]
async fn a_wrong_property_is_named() {
    let wrong = ZooKeeper::builder().property("syncLimit", "many");
    let error = wrong.start().await.unwrap_err().to_string();
    assert!(error.contains("many"), "{error}");
}

#[test]
fn dies_with_a_killed_test() {
    killed::outlived_by_nothing(concat!(module_path!(), "::child"), State::Running);
}

#[test]
fn dies_with_a_killed_test_while_it_is_paused() {
    killed::outlived_by_nothing(concat!(module_path!(), "::child"), State::Paused);
}

/// The test that is killed. It does nothing when it is not started by one of those above.
#[tokio::test]
async fn child() {
    let Some(state) = killed::state() else { return };
    let zookeeper = start().await;
    if state == State::Paused {
        zookeeper.pause(0).await.unwrap();
    }
    let folder = Path::new(zookeeper.folder()).to_str().unwrap();
    killed::report(zookeeper.pid(0).unwrap(), port(&zookeeper.hosts()), folder);
    std::future::pending::<()>().await;
}
