//! Without faults.

use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn forwards_byte_for_byte_over_many_connections() {
    const EACH: u64 = 2 << 20;
    let rig = Rig::new().await;
    let mut connections = JoinSet::new();
    for _ in 0..4 {
        let (client, mut served) = rig.connect().await;
        connections.spawn(async move {
            let (mut reads, mut writes) = served.split();
            tokio::io::copy(&mut reads, &mut writes).await.unwrap(); // an echo
        });
        connections.spawn(async move {
            let sent = known_bytes(EACH as u32);
            let (mut reads, mut writes) = client.into_split();
            let mut echo = Vec::new();
            let write = async {
                writes.write_all(&sent).await.unwrap();
                writes.shutdown().await.unwrap();
            };
            let (read, ()) = tokio::join!(reads.read_to_end(&mut echo), write);
            read.unwrap();
            assert!(sent == echo);
        });
    }
    within(connections.join_all()).await;
    rig.open(0).await;
    let traffic = rig.proxy.traffic();
    assert_eq!((traffic.accepted, traffic.refused), (4, 0));
    let each_way = 4 * (EACH + 1); // with the byte of `connect`
    assert_eq!((traffic.to_server, traffic.to_client), (each_way, each_way));
}

#[tokio::test]
async fn one_direction_ends_while_the_other_goes_on() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    client.write_all(b"last").await.unwrap();
    client.shutdown().await.unwrap();
    arrives(&mut served, b"last").await;
    has_ended(&mut served).await;
    passes(&mut served, &mut client, b"answer").await;
    assert_eq!(rig.proxy.traffic().open, 1);
    drop(served);
    has_ended(&mut client).await;
    rig.open(0).await;

    let (mut client, mut served) = rig.connect().await;
    served.shutdown().await.unwrap();
    has_ended(&mut client).await;
    passes(&mut client, &mut served, b"still").await;
    drop(client);
    has_ended(&mut served).await;
    rig.open(0).await;
}

#[tokio::test]
async fn what_the_client_has_not_read_outlives_the_connection() {
    let rig = Rig::new().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8_192).unwrap();
    let mut client = socket.connect(rig.proxy.addr()).await.unwrap();
    let (mut served, _) = within(rig.server.accept()).await.unwrap();
    let bytes = known_bytes(50_000); // more than the client's kernel takes at once
    client.shutdown().await.unwrap();
    has_ended(&mut served).await;
    served.write_all(&bytes).await.unwrap();
    drop(served);
    rig.open(0).await;
    arrives(&mut client, &bytes).await;
    has_ended(&mut client).await;
}

#[tokio::test]
async fn a_slow_reader_slows_its_writer() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    let bytes = known_bytes(32 << 20);
    let sent = bytes.clone();
    let mut writer = tokio::spawn(async move {
        client.write_all(&sent).await.unwrap();
    });
    let stalled = tokio::time::timeout(Duration::from_millis(300), &mut writer).await;
    assert!(stalled.is_err(), "the buffers have a limit");
    let passed = rig.proxy.traffic().to_server;
    assert!((1..1 << 20).contains(&passed), "{passed}");

    let mut read = Vec::new();
    within(served.read_to_end(&mut read)).await.unwrap();
    assert!(read == bytes);
    writer.await.unwrap();
}

#[tokio::test]
async fn a_reset_of_one_end_reaches_the_other_after_the_bytes() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    served.write_all(b"bye").await.unwrap();
    served.set_zero_linger().unwrap();
    drop(served);
    arrives(&mut client, b"bye").await;
    is_reset(&mut client).await;

    let (client, mut served) = rig.connect().await;
    client.set_zero_linger().unwrap();
    drop(client);
    is_reset(&mut served).await;
    rig.open(0).await;
}

#[tokio::test]
async fn a_write_to_an_end_that_has_closed_is_answered_with_a_reset() {
    let rig = Rig::new().await;
    let (mut client, served) = rig.connect().await;
    drop(served);
    has_ended(&mut client).await;
    client.write_all(b"anyone?").await.unwrap();
    let refused = async { while client.write_all(b"?").await.is_ok() {} };
    within(refused).await;
    rig.open(0).await;
}

#[tokio::test]
async fn an_end_that_dies_while_it_is_written_to_does_not_end_cleanly() {
    for _ in 0..50 {
        let rig = Rig::new().await;
        let (mut client, served) = rig.connect().await;
        let writer = async {
            let chunk = known_bytes(1 << 16);
            loop {
                if let Err(error) = client.write_all(&chunk).await {
                    break error;
                }
            }
        };
        let dies = async {
            served.readable().await.unwrap();
            drop(served); // unread bytes: the kernel sends a reset
        };
        let (error, ()) = within(async { tokio::join!(writer, dies) }).await;
        // After an end it would be a broken pipe.
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        rig.open(0).await;
    }
}

#[tokio::test]
async fn without_a_server_connections_are_reset() {
    let proxy = Proxy::to(nowhere().await).await.unwrap();
    assert_eq!(proxy.addr().port(), proxy.port());
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    is_reset(&mut client).await;
    assert_eq!(proxy.traffic().accepted, 1);
}

#[tokio::test]
async fn dropping_the_proxy_closes_everything() {
    let rig = Rig::new().await;
    let (mut client, mut served) = rig.connect().await;
    let addr = rig.proxy.addr();
    rig.proxy.cut();
    drop(rig.proxy);
    is_reset(&mut client).await;
    is_reset(&mut served).await;
    let closed = async {
        loop {
            match TcpStream::connect(addr).await {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => break,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    within(closed).await;
}

#[test]
fn works_from_any_thread() {
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<Proxy>();

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rig = runtime.block_on(Rig::new());
    let (mut client, mut served) = runtime.block_on(rig.connect());
    rig.proxy.cut_to_server(); // outside of the runtime
    runtime.block_on(async {
        client.write_all(b"later").await.unwrap();
        is_silent(&mut served).await;
    });
    rig.proxy.heal();
    runtime.block_on(arrives(&mut served, b"later"));
}
