//! Names that are similar: two lists share nothing, with any names.

use keylane_redis::{ConfigError, ListKey, ListQueue, Redis};
use testkit_servers::RedisKind;

use crate::direct::{Direct, payloads};
use crate::support::{builder, own};

/// Two lists on one server, each with elements of the same keys, and a worker each: the first is at
/// work when the second begins. Each worker gets the elements of its own list, and all of them.
#[tokio::test]
async fn lists_whose_names_are_alike_share_nothing() {
    let server = own(RedisKind::Redis7).await;
    let pairs = [
        ("orders", "{orders}"),
        ("a{b}c", "b"),
        ("{b}", "{b}:keylane"),
        ("{c}3:{c}", "{c}"),
        ("d/1", "{d/1}"),
    ];
    for (one, other) in pairs {
        let queue = |list: &str| {
            let builder = builder(&server.url(), list).key(ListKey::before(b":"));
            builder.build().unwrap()
        };
        let mut workers = Vec::new();
        for list in [one, other] {
            let mut worker = Direct::open(&queue(list)).await;
            push(&server, list, 0..10).await;
            // The keys are with it from here on.
            let first = worker.receive_all(10).await;
            push(&server, list, 10..40).await;
            workers.push((list, worker, first));
        }
        for (list, mut worker, first) in workers {
            let rest = worker.receive_all(30).await;
            let wanted: Vec<_> = (0..40).map(|n| element(list, n)).collect();
            assert_eq!(
                [payloads(&first), payloads(&rest)].concat(),
                wanted,
                "{one} beside {other}"
            );
            worker.ack(&first).await;
            worker.ack(&rest).await;
            let status = queue(list).status().await.unwrap();
            assert_eq!(
                (status.waiting, status.keys, status.workers.len()),
                (0, 0, 1),
                "{list}"
            );
        }
    }
}

fn element(list: &str, n: u32) -> Vec<u8> {
    format!("key-{}:{list}:{n}", n % 3).into_bytes()
}

async fn push(server: &testkit_servers::Redis, list: &str, numbers: std::ops::Range<u32>) {
    for n in numbers {
        let element = String::from_utf8(element(list, n)).unwrap();
        server.execute(&["LPUSH", list, &element]).await.unwrap();
    }
}

#[tokio::test]
async fn a_name_that_cannot_be_told_from_ours_is_refused() {
    let redis = Redis::at("redis://localhost").unwrap();
    let refused = |list: &'static str| ListQueue::builder(&redis, list).build().unwrap_err();
    for name in ["{}", "{}{x}", "}{", "a}b"] {
        assert_refused(&refused(name), "braces");
    }
    for name in ["{orders}:keylane:letters", "{a}:keylane:3:{a}:work:w"] {
        assert_refused(&refused(name), "reserves");
    }
}

fn assert_refused(error: &ConfigError, why: &str) {
    assert_eq!(error.setting(), "list");
    assert!(error.to_string().contains(why), "{error}");
}
