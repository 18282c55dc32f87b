//! Connections that end without warning.

use testkit_servers::proxy::Direction;

use super::*;

#[tokio::test]
async fn reset_closes_all_connections_on_both_sides_and_new_ones_work() {
    let rig = Rig::new().await;
    for is_cut in [false, true] {
        let (mut client, mut served) = rig.connect().await;
        let (mut other_client, mut other_served) = rig.connect().await;
        if is_cut {
            rig.proxy.cut();
        }
        client.write_all(b"lost, if it is cut").await.unwrap();
        rig.proxy.reset();
        is_reset(&mut client).await;
        is_reset(&mut other_client).await;
        is_reset(&mut other_served).await;
        if is_cut {
            is_reset(&mut served).await;
        }
        rig.open(0).await;
        rig.proxy.heal();
    }
    rig.connect().await;
    assert_eq!(rig.proxy.traffic().accepted, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_byte_passes_after_reset_has_returned() {
    let chunk = known_bytes(1 << 16);
    for _ in 0..100 {
        let rig = Rig::new().await;
        let (mut client, mut served) = rig.connect().await;
        let reader = tokio::spawn(async move {
            let mut sink = vec![0; 1 << 16];
            while served.read(&mut sink).await.is_ok_and(|len| len > 0) {}
        });
        let sent = chunk.clone();
        let writer = tokio::spawn(async move { while client.write_all(&sent).await.is_ok() {} });
        let flows = async {
            while rig.proxy.traffic().to_server < 1 << 17 {
                tokio::task::yield_now().await;
            }
        };
        within(flows).await;
        rig.proxy.reset();
        let passed = rig.proxy.traffic().to_server;
        within(async { tokio::join!(reader, writer) })
            .await
            .0
            .unwrap();
        assert_eq!(rig.proxy.traffic().to_server, passed);
    }
}

#[tokio::test]
async fn reset_ends_a_connection_that_has_not_reached_the_server() {
    let rig = Rig::new().await;
    rig.proxy.cut();
    let mut client = TcpStream::connect(rig.proxy.addr()).await.unwrap();
    rig.open(1).await;
    rig.proxy.reset();
    is_reset(&mut client).await;
    rig.open(0).await;
}

#[tokio::test]
async fn refuse_resets_new_connections_only() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    rig.proxy.refuse(true);
    for _ in 0..3 {
        let mut refused = TcpStream::connect(rig.proxy.addr()).await.unwrap();
        is_reset(&mut refused).await;
    }
    passes(&mut client, &mut served, b"existing").await;
    rig.proxy.refuse(false);
    rig.connect().await;
    let traffic = rig.proxy.traffic();
    assert_eq!((traffic.accepted, traffic.refused), (2, 3));
}

#[tokio::test]
async fn reset_after_ends_one_connection_in_the_middle_of_an_answer() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    let (mut other_client, mut other_served) = rig.connect().await;
    let answer = known_bytes(10_000);
    rig.proxy.reset_after(Direction::ToClient, 5_000);
    passes(&mut client, &mut served, &answer).await; // the other direction does not count
    passes(&mut other_served, &mut other_client, &answer[..1_000]).await;
    served.write_all(&answer).await.unwrap();
    arrives(&mut client, &answer[..4_000]).await;
    is_reset(&mut client).await;
    is_reset(&mut served).await;

    passes(&mut other_served, &mut other_client, &answer).await; // once
    let (mut client, mut served) = rig.connect().await;
    passes(&mut served, &mut client, &answer).await;
}

#[tokio::test]
async fn reset_after_counts_requests_as_well() {
    let rig = Rig::new().await;
    rig.proxy.reset_after(Direction::ToServer, 3);
    let (mut client, mut served) = rig.connect().await; // one byte
    client.write_all(b"question").await.unwrap();
    arrives(&mut served, b"qu").await;
    is_reset(&mut served).await;
    is_reset(&mut client).await;

    let (mut client, mut served) = rig.connect().await;
    rig.proxy.reset_after(Direction::ToServer, 0);
    passes(&mut served, &mut client, b"news").await;
    client.write_all(b"question").await.unwrap();
    is_reset(&mut served).await;
    rig.connect().await;
}
