//! The clock of the server is set while streams are consumed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::OnExhausted;
use keylane::source::RawMessage;
use keylane_testkit::scenario::{boxed, by_key};
use testkit_servers::{Redis, RedisKind};

use crate::support::{Client, Driven, LEASE, builder, new_name, payloads, show_log, texts, until};

const HOUR: i64 = 3_600;

async fn with_clock(kind: RedisKind) -> Redis {
    show_log();
    Redis::builder(kind).own_clock().start().await.unwrap()
}

/// A member that crashed just before counts as one for as long as its lease, and not for an hour
/// more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_gone_keeps_no_share() {
    for kind in RedisKind::ALL {
        let server = with_clock(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("ghost"));
        let names = [format!("{name}-0"), format!("{name}-1")];
        let time: Vec<u64> = client.run(&["TIME"]).await;
        let lease = 4 * LEASE;
        let until_then = (time[0] * 1_000 + lease.as_millis() as u64).to_string();
        let members = format!("{{{}}}:keylane:members:g", names[0]);
        let ghost = ["ZADD", &members, &until_then, "000000000000001-ghost"];
        let _: u64 = client.run(&ghost).await;
        server.set_clock(-HOUR).unwrap();
        for (number, name) in (0..).zip(&names) {
            client.add_all(name, number..number + 1).await;
        }
        let source = builder(&server.url(), "g").streams(names.clone());
        let mut source = Driven::open(source.lease(lease).build().unwrap()).await;
        let mut handed = payloads(&source.receive(2).await);
        handed.sort_unstable();
        assert_eq!(handed, texts(0..2), "{kind}");
    }
}

/// Two members go on at any clock time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_stops_no_stream() {
    for kind in RedisKind::ALL {
        let server = with_clock(kind).await;
        let (client, name) = (Client::to(&server).await, new_name("steps"));
        let handled = Arc::<Mutex<Vec<u64>>>::default();
        let member = || {
            let handled = Arc::clone(&handled);
            let consumer = by_key()
                .on_exhausted(OnExhausted::Halt)
                .spawn(boxed(move |raw: RawMessage| {
                    let number = std::str::from_utf8(&raw.payload).unwrap().parse().unwrap();
                    handled.lock().unwrap().push(number);
                    async { Ok(()) }
                }))
                .unwrap();
            let source = builder(&server.url(), "g").partitions(&name, 4);
            let source = source.lease(LEASE).build().unwrap();
            let intake = consumer.consume(source).unwrap();
            (consumer, intake)
        };
        let members = [member(), member()];
        let mut next = 0;
        for ahead in [0, -HOUR, 0, HOUR, -HOUR] {
            server.set_clock(ahead).unwrap();
            for _ in 0..3 {
                for partition in 0..4 {
                    client
                        .add_all(&format!("{name}:{partition}"), next..next + 1)
                        .await;
                    next += 1;
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            let began = tokio::time::Instant::now();
            until("all are handled", async || {
                let handled = handled.lock().unwrap().clone();
                (0..next).all(|number| handled.contains(&number))
            })
            .await;
            println!("{kind}, {ahead}: after {:?}", began.elapsed());
        }
        for (_, intake) in members {
            intake.stop().await;
        }
    }
}
