//! What a watch shows of the streams of a source.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use keylane::source::{Outcome, Received, Settlement, Source as _};
use keylane_redis::{StreamPart, StreamWatch};
use redis::Value;
use testkit_servers::RedisKind;

use crate::support::{Client, Driven, builder, builder_without_time, new_name, own, shared, until};

/// What Redis says of the group of a stream.
async fn lag_and_pending(client: &Client, stream: &str) -> (Option<u64>, Option<u64>) {
    let words = ["XINFO", "GROUPS", stream];
    let groups: Vec<std::collections::HashMap<String, Value>> = client.run(&words).await;
    let number = |name: &str| match groups[0].get(name) {
        Some(Value::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    (number("lag"), number("pending"))
}

/// Lets the source work until a stream is shown like this.
async fn until_shown(
    source: &mut Driven,
    watch: &StreamWatch,
    stream: &str,
    what: &str,
    is_so: impl Fn(&StreamPart) -> bool,
) -> StreamPart {
    let mut shown = None;
    until(what, async || {
        source.once(0, Duration::from_millis(600)).await;
        let parts = watch.parts();
        shown = parts.into_iter().find(|part| part.stream == stream);
        shown.as_ref().is_some_and(&is_so)
    })
    .await;
    shown.unwrap()
}

/// Of twelve entries, seven are read, and three are handed over.
async fn is_shown_by(kind: RedisKind) {
    let server = shared(kind).await;
    let client = Client::to(&server).await;
    let (stream, empty) = (new_name("watched"), new_name("empty"));
    let ids = client.add_all(&stream, 0..12).await;
    let source = builder(&server.url(), "billing").streams([stream.clone(), empty.clone()]);
    let source = source.read_ahead(4).build().unwrap();
    let watch = source.watch();
    assert_eq!(watch.parts(), []);
    let mut source = Driven::open(source).await;
    let handed = source.receive(3).await;
    let part = until_shown(&mut source, &watch, &stream, "the lag is known", |part| {
        part.lag == Some(5)
    })
    .await;
    assert_eq!((part.open, part.waiting, part.beyond), (3, 4, 0));
    assert_eq!((part.pending, part.behind()), (Some(7), Some(12)));
    let reported = lag_and_pending(&client, &stream).await;
    assert_eq!((part.lag, part.pending), reported);
    assert_eq!(part.frontier.map(|id| id.to_string()).as_ref(), ids.first());
    assert_eq!(part.failure, None);
    let names: Vec<_> = watch.parts().into_iter().map(|part| part.stream).collect();
    assert_eq!(names, [&*stream, &*empty]);

    // The first one holds the frontier.
    source.ack(&handed[1..]).await;
    let part = until_shown(&mut source, &watch, &stream, "two are settled", |part| {
        part.open == 1
    })
    .await;
    assert_eq!(part.beyond, 2);
    assert_eq!(part.frontier.map(|id| id.to_string()).as_ref(), ids.first());
    source.ack(&handed[..1]).await;
    let part = until_shown(&mut source, &watch, &stream, "all three are", |part| {
        part.open == 0
    })
    .await;
    assert_eq!((part.beyond, part.waiting), (0, 4));
    assert_eq!(part.frontier.map(|id| id.to_string()).as_ref(), ids.get(3));

    let rest = source.receive(9).await;
    source.ack(&rest).await;
    let part = until_shown(&mut source, &watch, &stream, "nothing is left", |part| {
        part.behind() == Some(0)
    })
    .await;
    assert_eq!((part.open, part.waiting), (0, 0));
    assert_eq!(part.frontier.map(|id| id.to_string()).as_ref(), ids.last());
    source.0.close().await.unwrap();
    assert_eq!(watch.parts(), []);
}

#[tokio::test]
async fn a_stream_is_shown_with_its_frontier_and_the_lag_that_redis_reports() {
    join_all(RedisKind::ALL.map(is_shown_by)).await;
}

/// Entries were deleted that the group had not read.
#[tokio::test]
async fn a_lag_that_redis_does_not_know_is_none() {
    let server = shared(RedisKind::Redis7).await;
    let client = Client::to(&server).await;
    let stream = new_name("watched");
    let ids = client.add_all(&stream, 0..9).await;
    let words = ["XGROUP", "CREATE", &*stream, "billing", "0"];
    client.run::<Value>(&words).await;
    client.run::<Value>(&["XDEL", &stream, &ids[7]]).await;
    assert_eq!(lag_and_pending(&client, &stream).await.0, None);
    let source = builder(&server.url(), "billing").stream(stream.clone());
    let source = source.read_ahead(2).build().unwrap();
    let watch = source.watch();
    let mut source = Driven::open(source).await;
    source.receive(2).await;
    let part = until_shown(&mut source, &watch, &stream, "what is pending", |part| {
        part.pending.is_some_and(|pending| pending >= 2)
    })
    .await;
    assert_eq!((part.open, part.lag, part.behind()), (2, None, None));
    source.0.close().await.unwrap();
}

/// The question asks for the time, and so do leases and members, which are elsewhere, or go on
/// without.
#[tokio::test]
async fn a_stream_is_shown_without_a_lag_to_a_user_who_may_not_ask_for_it() {
    let server = shared(RedisKind::Redis7).await;
    let client = Client::to(&server).await;
    let stream = new_name("watched");
    let ids = client.add_all(&stream, 0..3).await;
    let source = builder_without_time(&server, &client, "billing").await;
    let source = source.stream(stream.clone()).build().unwrap();
    let watch = source.watch();
    let mut source = Driven::open(source).await;
    source.receive(3).await;
    let part = until_shown(&mut source, &watch, &stream, "three are open", |part| {
        part.open == 3
    })
    .await;
    assert_eq!((part.lag, part.pending, part.failure), (None, None, None));
    assert_eq!(part.frontier.map(|id| id.to_string()).as_ref(), ids.first());
    source.0.close().await.unwrap();
}

#[tokio::test]
async fn a_stream_that_fails_is_shown_with_the_reason() {
    let server = shared(RedisKind::Valkey9).await;
    let client = Client::to(&server).await;
    let (sound, broken) = (new_name("sound"), new_name("broken"));
    client.run::<Value>(&["SET", &broken, "no stream"]).await;
    let source = builder(&server.url(), "billing").streams([sound.clone(), broken.clone()]);
    let source = source.build().unwrap();
    let watch = source.watch();
    let mut source = Driven::open(source).await;
    let part = until_shown(&mut source, &watch, &broken, "it fails", |part| {
        part.failure.is_some()
    })
    .await;
    let why = part.failure.unwrap();
    assert!(why.contains("WRONGTYPE"), "{why}");
    assert_eq!((part.frontier, part.open), (None, 0));
    let of_sound = |part: &StreamPart| part.frontier.is_some() && part.failure.is_none();
    until_shown(&mut source, &watch, &sound, "the other one works", of_sound).await;
    client.run::<Value>(&["DEL", &broken]).await;
    until_shown(&mut source, &watch, &broken, "it works", of_sound).await;
    source.0.close().await.unwrap();
}

#[tokio::test]
async fn each_member_shows_its_own_streams() {
    let server = shared(RedisKind::Redis8).await;
    let name = new_name("watched");
    let member = async || {
        let source = builder(&server.url(), "billing").partitions(&name, 4);
        let source = source.build().unwrap();
        let watch = source.watch();
        (Driven::open(source).await, watch)
    };
    let mut members = [member().await, member().await];
    let names = |watch: &StreamWatch| -> BTreeSet<String> {
        watch.parts().into_iter().map(|part| part.stream).collect()
    };
    until("they share them", async || {
        for (source, _) in &mut members {
            let (_, received) = source.once(1, Duration::from_millis(600)).await;
            if let Received::Revoked(generations) = received {
                source.0.release(&generations).await.unwrap();
            }
        }
        let shown = members.each_ref().map(|(_, watch)| names(watch));
        shown.iter().all(|names| names.len() == 2) && shown[0].is_disjoint(&shown[1])
    })
    .await;
    let [(mut first, _), (mut second, watch)] = members;
    first.0.close().await.unwrap();
    until("the other one has all", async || {
        second.once(1, Duration::from_millis(600)).await;
        names(&watch).len() == 4
    })
    .await;
    second.0.close().await.unwrap();
}

/// What is returned comes again, and is not settled meanwhile.
#[tokio::test]
async fn the_frontier_stays_at_an_entry_that_is_returned() {
    let server = shared(RedisKind::Redis7).await;
    let client = Client::to(&server).await;
    let stream = new_name("watched");
    let ids = client.add_all(&stream, 0..3).await;
    let source = builder(&server.url(), "billing").stream(stream.clone());
    let source = source.build().unwrap();
    let watch = source.watch();
    let mut source = Driven::open(source).await;
    let handed = source.receive(3).await;
    source.ack(&handed[1..]).await;
    let returned = Settlement::new(handed[0].position, Outcome::returned(1));
    source.0.settle(&[returned]).await.unwrap();
    let mut again = Vec::new();
    until("it comes again", async || {
        let (handed, received) = source.once(1, Duration::from_millis(100)).await;
        again.extend(handed);
        if let Received::Revoked(generations) = received {
            source.0.release(&generations).await.unwrap();
        }
        let frontier = watch.parts().first().and_then(|part| part.frontier);
        assert!(
            frontier.is_none_or(|id| id.to_string() == ids[0]),
            "{frontier:?}"
        );
        !again.is_empty()
    })
    .await;
    source.ack(&again).await;
    until_shown(&mut source, &watch, &stream, "it is settled", |part| {
        part.frontier.is_some_and(|id| id.to_string() == ids[2])
    })
    .await;
    source.0.close().await.unwrap();
}

/// How often a group was asked for, in all streams of a server.
async fn asked(client: &Client) -> u64 {
    let stats: String = client.run(&["INFO", "commandstats"]).await;
    let calls = stats.split_once("cmdstat_xinfo|groups:calls=").unwrap().1;
    calls.split_once(',').unwrap().0.parse().unwrap()
}

/// Longer than between two questions.
const LONG: Duration = Duration::from_secs(6);

#[tokio::test]
async fn the_lag_is_asked_for_only_while_something_looks() {
    let server = own(RedisKind::Redis7).await;
    let client = Client::to(&server).await;
    let stream = new_name("watched");
    client.add_all(&stream, 0..3).await;
    let source = builder(&server.url(), "billing").stream(stream.clone());
    // A take-over asks for the group too.
    let source = source.lease(Duration::from_secs(60)).build().unwrap();
    let watch = source.watch();
    let mut source = Driven::open(source).await;
    let mut handed = source.receive(3).await;
    let before = asked(&client).await;
    source.receive_for(LONG).await;
    assert_eq!(asked(&client).await, before, "nothing has looked");

    let shows = async |source: &mut Driven, open| {
        let what = format!("{open} are open, and the lag is known");
        until_shown(source, &watch, &stream, &what, |part| {
            (part.open, part.behind()) == (open, Some(open as u64))
        })
        .await
    };
    assert_eq!(watch.parts(), []);
    shows(&mut source, 3).await;
    client.add_all(&stream, 3..4).await;
    handed.extend(source.receive(1).await);
    shows(&mut source, 4).await;
    source.ack(&handed).await;
    source.0.close().await.unwrap();
}
