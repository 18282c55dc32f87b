//! Nothing passes, and nothing is closed.

use super::*;

#[tokio::test]
async fn a_cut_holds_both_directions_until_it_heals() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    for _ in 0..2 {
        rig.proxy.cut();
        client.write_all(b"question").await.unwrap();
        served.write_all(b"answer").await.unwrap();
        is_silent(&mut client).await;
        is_silent(&mut served).await;
        rig.proxy.heal();
        arrives(&mut served, b"question").await;
        arrives(&mut client, b"answer").await;
    }
}

#[tokio::test]
async fn one_direction_can_be_cut_alone() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    rig.proxy.cut_to_server();
    client.write_all(b"question").await.unwrap();
    is_silent(&mut served).await;
    passes(&mut served, &mut client, b"news").await;
    rig.proxy.heal();
    arrives(&mut served, b"question").await;

    rig.proxy.cut_to_client();
    served.write_all(b"answer").await.unwrap();
    is_silent(&mut client).await;
    passes(&mut client, &mut served, b"hello?").await;
    rig.proxy.cut_to_server(); // both now
    client.write_all(b"hello??").await.unwrap();
    is_silent(&mut served).await;
    is_silent(&mut client).await;
    rig.proxy.heal();
    arrives(&mut client, b"answer").await;
    arrives(&mut served, b"hello??").await;
}

#[tokio::test]
async fn neither_an_end_nor_a_reset_goes_through_a_cut() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    let (mut other_client, other_served) = rig.connect().await;
    rig.proxy.cut();
    client.write_all(b"last").await.unwrap();
    client.shutdown().await.unwrap();
    other_served.set_zero_linger().unwrap();
    drop(other_served);
    is_silent(&mut served).await;
    is_silent(&mut other_client).await;
    assert_eq!(rig.proxy.traffic().open, 2);
    rig.proxy.heal();
    arrives(&mut served, b"last").await;
    has_ended(&mut served).await;
    is_reset(&mut other_client).await;
}

#[tokio::test]
async fn news_of_a_dead_server_waits_while_the_way_to_the_client_is_cut() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    served.shutdown().await.unwrap();
    has_ended(&mut client).await;
    rig.proxy.cut_to_client();
    drop(served);
    for _ in 0..10 {
        client.write_all(b"anyone?").await.unwrap(); // the proxy finds out
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(rig.proxy.traffic().open, 1);
    rig.proxy.heal();
    let refused = async { while client.write_all(b"?").await.is_ok() {} };
    within(refused).await;
}

#[tokio::test]
async fn news_of_a_dead_client_waits_while_the_way_to_the_server_is_cut() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    client.shutdown().await.unwrap();
    has_ended(&mut served).await;
    rig.proxy.cut_to_server();
    drop(client);
    for _ in 0..10 {
        served.write_all(b"anyone?").await.unwrap(); // the proxy finds out
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(rig.proxy.traffic().open, 1);
    rig.proxy.heal();
    let refused = async { while served.write_all(b"?").await.is_ok() {} };
    within(refused).await;
}

#[tokio::test]
async fn connections_made_during_a_cut_reach_the_server_when_it_heals() {
    let rig = Rig::new().await;
    rig.proxy.cut();
    let mut client = TcpStream::connect(rig.proxy.addr()).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), rig.server.accept()).await;
    assert!(early.is_err());
    rig.proxy.heal();
    let (mut served, _) = within(rig.server.accept()).await.unwrap();
    arrives(&mut served, b"hello").await;

    let proxy = Proxy::to(nowhere().await).await.unwrap();
    proxy.cut_to_client();
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    is_silent(&mut client).await; // that no server listens is news from the other side
    proxy.heal();
    is_reset(&mut client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_byte_passes_after_cut_has_returned() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let traffic = tokio::spawn(async move {
        let chunk = known_bytes(1 << 16);
        let mut sink = vec![0; 1 << 16];
        let write = async { while client.write_all(&chunk).await.is_ok() {} };
        let read = async { while served.read(&mut sink).await.is_ok_and(|len| len > 0) {} };
        tokio::select! {
            _ = stopped => {}
            _ = async { tokio::join!(write, read) } => unreachable!("no connection ends"),
        }
    });
    let mut passed = 0;
    for _ in 0..100 {
        let flows = async {
            while rig.proxy.traffic().to_server < passed + (1 << 17) {
                tokio::task::yield_now().await;
            }
        };
        within(flows).await;
        rig.proxy.cut();
        passed = rig.proxy.traffic().to_server;
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(rig.proxy.traffic().to_server, passed);
        rig.proxy.heal();
    }
    drop(stop);
    traffic.await.unwrap();
}

#[tokio::test]
async fn connections_that_are_forgotten_stay_silent_and_new_ones_work() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    rig.proxy.forget();
    client.write_all(b"question").await.unwrap();
    served.write_all(b"answer").await.unwrap();
    let (mut new_client, mut new_served) = rig.connect().await;
    passes(&mut new_client, &mut new_served, b"hello").await;
    rig.proxy.heal();
    is_silent(&mut client).await;
    is_silent(&mut served).await;
    rig.proxy.reset();
    is_reset(&mut client).await;
}
