//! Latency and bandwidth. Times are lower limits; upper ones are far off.

use std::num::NonZeroU64;

use keylane_testkit::scenario::{MS, SECOND};
use testkit_servers::proxy::Direction::{ToClient, ToServer};
use tokio::time::Instant;

use super::*;

#[tokio::test]
async fn latency_holds_each_direction_back() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    rig.proxy.delay(ToServer, 40 * MS);
    let start = Instant::now();
    passes(&mut client, &mut served, b"question").await;
    assert!(start.elapsed() >= 40 * MS);

    rig.proxy.delay(ToClient, 60 * MS);
    let start = Instant::now();
    passes(&mut served, &mut client, b"answer").await;
    assert!(start.elapsed() >= 60 * MS);

    let start = Instant::now();
    drop(served);
    has_ended(&mut client).await;
    assert!(start.elapsed() >= 60 * MS, "the end is held back as well");
}

#[tokio::test]
async fn latency_is_not_paid_for_each_chunk() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    rig.proxy.delay(ToServer, 200 * MS);
    let bytes = known_bytes(100);
    let start = Instant::now();
    let write = async {
        for chunk in bytes.chunks(1) {
            client.write_all(chunk).await.unwrap();
            tokio::time::sleep(MS).await; // so that the next one is a chunk of its own
        }
    };
    tokio::join!(write, arrives(&mut served, &bytes));
    // One after the other they would take 20 s.
    assert!((200 * MS..10 * SECOND).contains(&start.elapsed()));
}

#[tokio::test]
async fn what_waits_is_released_when_the_latency_ends_and_stays_in_order() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    rig.proxy.delay(ToServer, Duration::MAX);
    client.write_all(b"first").await.unwrap();
    is_silent(&mut served).await;
    rig.proxy.delay(ToServer, 3_600 * SECOND);
    client.write_all(b", second").await.unwrap();
    is_silent(&mut served).await;
    rig.proxy.delay(ToServer, Duration::ZERO);
    client.write_all(b", third").await.unwrap();
    arrives(&mut served, b"first, second, third").await;
}

#[tokio::test]
async fn bytes_behind_a_cut_have_their_latency_still_to_come() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    rig.proxy.delay(ToServer, 50 * MS);
    rig.proxy.cut();
    client.write_all(b"later").await.unwrap();
    is_silent(&mut served).await;
    let start = Instant::now();
    rig.proxy.heal();
    arrives(&mut served, b"later").await;
    assert!(start.elapsed() >= 50 * MS);
}

#[tokio::test]
async fn bandwidth_is_shared_by_all_connections() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    let (mut other_client, mut other_served) = rig.connect().await;
    let bytes = known_bytes(10_000);
    rig.proxy.throttle(ToServer, NonZeroU64::new(100_000));
    let start = Instant::now();
    passes(&mut served, &mut client, &known_bytes(1 << 20)).await; // the other direction
    tokio::join!(
        passes(&mut client, &mut served, &bytes),
        passes(&mut other_client, &mut other_served, &bytes),
    );
    // 20,000 bytes, less the two shares with which a way may start.
    assert!(start.elapsed() >= 150 * MS);
}

#[tokio::test]
async fn what_waits_for_bandwidth_is_released_when_the_limit_ends() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    rig.proxy.throttle(ToServer, NonZeroU64::new(1));
    client.write_all(&known_bytes(1_000)).await.unwrap();
    arrives(&mut served, &known_bytes(1)).await;
    is_silent(&mut served).await; // the next one is due a second later
    rig.proxy.throttle(ToServer, None);
    arrives(&mut served, &known_bytes(1_000)[1..]).await;
}
