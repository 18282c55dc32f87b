//! Writes that an older term cannot make.

use keylane_leases::Token;
use keylane_zookeeper::{FenceError, Refusal};

use crate::support::{Process, client, make, new_root, read, shared};

const KEY: &str = "account/7";

#[tokio::test]
async fn an_older_term_writes_nothing_and_a_newer_one_does() {
    let server = shared().await;
    let (hosts, root) = (server.hosts(), new_root());
    let (here, there) = (Process::new(&hosts, &root), Process::new(&hosts, &root));
    let observer = client(&hosts).await;
    let balance = format!("{root}-balance");
    make(&observer, &balance, "0").await;
    let write = async |by: &Process, token: Token, data: &'static str| {
        let write = by.store.fence(KEY, token).set(&balance, data, None);
        write.commit().await
    };

    let older = here.granted(KEY).await;
    assert_eq!(write(&here, older, "1").await, Ok(()));
    // Another process may write for the holder.
    assert_eq!(write(&there, older, "2").await, Ok(()));

    // The holder believes in its lease, and another one has it.
    here.release(KEY, older).await;
    let not_held = Err(FenceError::Fenced(older));
    assert_eq!(write(&here, older, "3").await, not_held);
    let newer = there.granted(KEY).await;
    assert!(newer > older);
    assert_eq!(write(&here, older, "4").await, not_held);
    assert_eq!(write(&there, older, "5").await, not_held);
    assert_eq!(read(&observer, &balance).await, "2");
    assert_eq!(write(&there, newer, "6").await, Ok(()));
    assert_eq!(read(&observer, &balance).await, "6");
    // Granted anew to the same owner.
    let newest = there.granted(KEY).await;
    assert_eq!(
        write(&there, newer, "7").await,
        Err(FenceError::Fenced(newer))
    );
    assert_eq!(write(&there, newest, "8").await, Ok(()));
    let higher = Token(newest.0 + 1);
    assert_eq!(
        write(&here, higher, "9").await,
        Err(FenceError::Fenced(higher))
    );
    assert_eq!(read(&observer, &balance).await, "8");
}

/// The guard of a term that was read while it was in force guards nothing afterwards: that is what
/// the server checks, and not this library.
#[tokio::test]
async fn the_server_itself_refuses_a_guard_of_an_older_term() {
    let server = shared().await;
    let (hosts, root) = (server.hosts(), new_root());
    let (here, there) = (Process::new(&hosts, &root), Process::new(&hosts, &root));
    let own = client(&hosts).await;
    let balance = format!("{root}-balance");
    make(&own, &balance, "0").await;
    let write = async |guard: &str, data: &str| {
        let mut writer = own.new_check_writer(guard, Some(0)).unwrap();
        writer
            .add_set_data(&balance, data.as_bytes(), None)
            .unwrap();
        writer.commit().await.is_ok()
    };

    let older = here.granted(KEY).await;
    let guard = here.store.guard(KEY, older).await.unwrap();
    assert_eq!(there.store.guard(KEY, older).await.as_ref(), Ok(&guard));
    assert!(write(&guard, "1").await);
    here.release(KEY, older).await;
    let newer = there.granted(KEY).await;
    assert!(!write(&guard, "2").await);
    let guard = here.store.guard(KEY, newer).await.unwrap();
    assert!(write(&guard, "3").await);
    let gone = here.store.guard(KEY, older).await;
    assert_eq!(gone, Err(FenceError::Fenced(older)));
    assert_eq!(read(&own, &balance).await, "3");
}

#[tokio::test]
async fn all_is_written_or_nothing_and_what_was_refused_is_named() {
    let server = shared().await;
    let (hosts, root) = (server.hosts(), new_root());
    let here = Process::new(&hosts, &root);
    let observer = client(&hosts).await;
    let folder = format!("{root}-data");
    make(&observer, &folder, "0").await;
    let token = here.granted(KEY).await;
    let fenced = || here.store.fence(KEY, token);
    let (one, two) = (format!("{folder}/one"), format!("{folder}/two"));
    let refused = |at, why| Err(FenceError::Refused { at, why });

    fenced().create(&one, "1").commit().await.unwrap();
    let outcome = fenced().create(&two, "2").create(&one, "3").commit().await;
    assert_eq!(outcome, refused(1, Refusal::NodeExists));
    let outcome = fenced().create(&two, "2").check(&one, 7).commit().await;
    assert_eq!(outcome, refused(1, Refusal::Version));
    let outcome = fenced().delete(&two, None).commit().await;
    assert_eq!(outcome, refused(0, Refusal::NoNode));
    let outcome = fenced().delete(&folder, None).commit().await;
    assert_eq!(outcome, refused(0, Refusal::NotEmpty));
    let outcome = fenced().set("no path", "2", None).commit().await;
    assert!(matches!(
        outcome,
        Err(FenceError::Refused {
            at: 0,
            why: Refusal::Other(_)
        })
    ));
    assert_eq!(observer.list_children(&folder).await.unwrap(), ["one"]);
    let all = fenced()
        .check(&one, 0)
        .delete(&one, Some(0))
        .create(&two, "2");
    all.commit().await.unwrap();
    assert_eq!(observer.list_children(&folder).await.unwrap(), ["two"]);
}
