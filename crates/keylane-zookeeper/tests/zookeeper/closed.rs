//! A session that is closed while its client is connected, as by an operator.

use std::io::{Read, Write};
use std::net::TcpStream;

use keylane_testkit::scenario::until_async as until;

use crate::support::{Process, client, new_root, shared};

/// Closes a session. The server gives a session to every client that knows its password, and makes
/// the password from the id. The session's own client may take it back before it is closed.
fn close(hosts: &str, session: i64) {
    let mut stream = TcpStream::connect(hosts).unwrap();
    // Version 0, no transaction seen, a time-out, the session, its password, no read-only server.
    let mut connect = vec![0; 4 + 8];
    connect.extend(1_000_000_i32.to_be_bytes());
    connect.extend(session.to_be_bytes());
    connect.extend(16_i32.to_be_bytes());
    connect.extend(password(session));
    connect.push(0);
    // Request 1, of the kind that closes a session.
    let close = [1_i32.to_be_bytes(), (-11_i32).to_be_bytes()].concat();
    let requests = [connect, close].map(|request| {
        let length = i32::try_from(request.len()).unwrap();
        [length.to_be_bytes().to_vec(), request].concat()
    });
    stream.write_all(&requests.concat()).unwrap();
    // The server closes the connection.
    let _ = stream.read_to_end(&mut Vec::new());
}

/// The numbers of `java.util.Random`, from a seed that is the same in all servers.
fn password(session: i64) -> Vec<u8> {
    const FACTOR: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut seed = (session.cast_unsigned() ^ 0xB341_5C00 ^ FACTOR) & MASK;
    let mut number = || {
        seed = seed.wrapping_mul(FACTOR).wrapping_add(0xB) & MASK;
        ((seed >> 16) as u32).to_le_bytes()
    };
    (0..4).flat_map(|_| number()).collect()
}

#[tokio::test]
async fn a_session_that_is_closed_is_made_anew_without_its_leases() {
    let server = shared().await;
    let (hosts, root) = (server.hosts(), new_root());
    // None of their sessions ends by itself.
    let (here, there) = (Process::new(&hosts, &root), Process::new(&hosts, &root));
    let observer = client(&hosts).await;
    let older = here.granted("key").await;
    let path = format!("{root}/leases/kkey");
    observer.sync(&path).await.unwrap();
    let session = observer
        .check_stat(&path)
        .await
        .unwrap()
        .unwrap()
        .ephemeral_owner;
    until("the session is closed", async || {
        let hosts = hosts.clone();
        let closes = tokio::task::spawn_blocking(move || close(&hosts, session));
        closes.await.unwrap();
        observer.sync(&path).await.unwrap();
        observer.check_stat(&path).await.unwrap().is_none()
    })
    .await;
    let newer = there.granted("key").await;
    assert!(newer > older);
    until("it is told", async || {
        here.renew("key", older).await == Some(false)
    })
    .await;
    here.release("key", older).await;
    assert!(here.is_taken("key").await);
    assert_eq!(there.renew("key", newer).await, Some(true));
    let another = here.granted("another").await;
    let next = observer.check_stat(&format!("{root}/leases/kanother"));
    assert_ne!(next.await.unwrap().unwrap().ephemeral_owner, session);
    assert_eq!(here.renew("another", another).await, Some(true));
}
