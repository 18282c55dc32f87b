//! Dead letters in a stream: read, redriven as they were, purged.

use std::collections::BTreeMap;

use keylane_redis::{ConfigError, EntryId, ErrorKind, Redis, StreamLetters, StreamSink};
use keylane_source::{LetterCause, RawLetter, RawLetterSink, RawMessage, Source, SourceLetter};
use redis::Value;
use redis::cluster::ClusterClient;
use testkit_servers::{RedisCluster, RedisKind};

use crate::parts::{allow, url};
use crate::support::{Client, Driven, PATIENCE, builder, new_name, shared};

/// The entries of a stream without their ids.
type Bodies = Vec<Vec<(String, String)>>;

/// A stream and its letters, on a server that other tests use as well.
struct Shop {
    server: std::sync::Arc<testkit_servers::Redis>,
    client: Client,
    name: String,
    dead: String,
}

impl Shop {
    async fn new(what: &str, kind: RedisKind) -> Self {
        let server = shared(kind).await;
        let name = new_name(what);
        Self {
            client: Client::to(&server).await,
            server,
            dead: format!("{name}.dead"),
            name,
        }
    }

    fn letters(&self) -> StreamLetters {
        let redis = Redis::at(&self.server.url()).unwrap();
        StreamLetters::new(&redis, self.dead.clone()).unwrap()
    }

    /// Has a source make letters of new entries with these keys.
    async fn make(&self, keys: &[&str]) {
        for key in keys {
            let add = [
                "XADD", &self.name, "*", "key", key, "trace", "t", "payload", "p",
            ];
            let _: String = self.client.run(&add).await;
        }
        let source = builder(&self.server.url(), "g").stream(self.name.clone());
        let source = source.dead_letters(self.dead.clone()).build().unwrap();
        let mut source = Driven::open(source).await;
        for handed in source.receive(keys.len()).await {
            let letter =
                SourceLetter::new(handed.position, 3, LetterCause::Failed, "no".to_owned());
            source.0.dead_letter(letter).await.unwrap();
        }
        source.0.close().await.unwrap();
    }

    /// Adds letters as a source writes them, and returns their ids.
    async fn add(&self, count: usize) -> Vec<EntryId> {
        let mut ids = Vec::new();
        for number in 0..count {
            let number = number.to_string();
            let letter = ["payload", &number, "keylane.stream", &self.name];
            let add = [&["XADD", &self.dead, "*"][..], &letter].concat();
            let id: String = self.client.run(&add).await;
            ids.push(id.parse().unwrap());
        }
        ids
    }

    async fn bodies(&self) -> Bodies {
        let all: Vec<(String, Vec<(String, String)>)> =
            self.client.run(&["XRANGE", &self.name, "-", "+"]).await;
        all.into_iter().map(|(_, fields)| fields).collect()
    }
}

fn fields(key: &str) -> Vec<(String, String)> {
    let fields = [("key", key), ("trace", "t"), ("payload", "p")];
    let owned = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
    owned.to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_go_back_to_their_stream_in_order_and_as_they_were() {
    for kind in RedisKind::ALL {
        let shop = Shop::new("back", kind).await;
        shop.make(&["a", "b", "c"]).await;
        let letters = shop.letters();
        let all = letters.list(None, 10).await.unwrap();
        let [a, b, c] = &all[..] else {
            panic!("{all:?}");
        };
        assert_eq!(letters.list(Some(a.id), 1).await.unwrap(), all[1..2]);
        assert_eq!(letters.list(Some(c.id), 9).await.unwrap(), []);
        assert_eq!(letters.show(c.id).await.unwrap().as_ref(), Some(c));
        assert_eq!((a.attempts, &*a.cause, &*a.error), (3, "failed", "no"));
        assert_eq!(a.stream.as_deref(), Some(shop.name.as_bytes()));
        assert_eq!(a.group.as_deref(), Some(&b"g"[..]));
        assert_eq!(a.message.key.as_deref(), Some(&b"a"[..]));
        assert!(a.message.enqueued_at.unwrap() <= a.id.time().unwrap());

        let _: u64 = shop.client.run(&["DEL", &shop.name]).await;
        assert_eq!(letters.purge(&[b.id]).await.unwrap(), 1);
        // One that is gone does not count.
        assert_eq!(letters.redrive(&[c.id, b.id, a.id]).await.unwrap(), 2);
        assert_eq!(letters.list(None, 10).await.unwrap(), []);
        assert_eq!(letters.show(a.id).await.unwrap(), None);
        assert_eq!(shop.bodies().await, [fields("c"), fields("a")], "{kind}");
        for ids in [&[][..], &[a.id]] {
            let none = (letters.redrive(ids).await, letters.purge(ids).await);
            assert_eq!((none.0.unwrap(), none.1.unwrap()), (0, 0));
        }
    }
}

/// What comes between two steps would leave a letter in both streams.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_is_moved_as_a_whole_or_not_at_all() {
    for kind in RedisKind::ALL {
        let shop = Shop::new("whole", kind).await;
        let ids = shop.add(1).await;
        let user = new_name("user");
        for (right, what) in [("-xdel", "remove"), ("-xadd", "add"), ("-xrange", "read")] {
            allow(&shop.client, &user, &[&shop.name]).await;
            let forbid = ["ACL", "SETUSER", &user, right];
            shop.client.run::<()>(&forbid).await;
            let redis = Redis::at(&url(&shop.server, &user)).unwrap();
            let letters = StreamLetters::new(&redis, shop.dead.clone()).unwrap();
            let refused = letters.redrive(&ids).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Denied, "{kind}: {refused}");
            assert!(
                refused.to_string().contains("ACL SETUSER"),
                "{kind}: {refused}"
            );
            assert_eq!(shop.bodies().await, Bodies::new(), "{kind}, {what}");
            assert_eq!(shop.letters().list(None, 9).await.unwrap().len(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_operators_at_once_redrive_each_letter_once() {
    const LETTERS: usize = 300;
    let shop = Shop::new("two", RedisKind::Redis7).await;
    let ids = shop.add(LETTERS).await;
    let both = (shop.letters(), shop.letters());
    let (one, other) = tokio::join!(both.0.redrive(&ids), both.1.redrive(&ids));
    assert_eq!(one.unwrap() + other.unwrap(), LETTERS as u64);
    let mut times = BTreeMap::new();
    for body in shop.bodies().await {
        *times.entry(body).or_insert(0) += 1;
    }
    assert_eq!(times.len(), LETTERS);
    assert!(times.values().all(|times| *times == 1), "{times:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_without_a_stream_stays_until_one_is_set() {
    let shop = Shop::new("nameless", RedisKind::Redis7).await;
    let redis = Redis::at(&shop.server.url()).unwrap();
    let sink = StreamSink::new(&redis, shop.dead.clone()).unwrap();
    let raw = RawMessage::new("x").key("a");
    let letter = RawLetter::new(raw, "not a number", "elsewhere");
    sink.accept(&letter).await.unwrap();
    let letters = shop.letters();
    let found = letters.list(None, 10).await.unwrap().remove(0);
    assert_eq!(
        (&*found.cause, &*found.error),
        ("undecodable", "not a number")
    );
    assert_eq!((found.stream, found.message.id), (None, None));
    let refused = letters.redrive(&[found.id]).await.unwrap_err().to_string();
    assert!(
        refused.contains("does not name its stream: set one with `to`"),
        "{refused}"
    );
    let own = letters.clone().to(shop.dead.clone()).unwrap_err();
    let what = "is the stream of the letters: name another one";
    assert_eq!(own, ConfigError::new("to", what));
    let none = letters.clone().to_partitions(&shop.name, 0).unwrap_err();
    assert_eq!(none, ConfigError::zero("partitions"));

    let letters = letters.to_partitions(&shop.name, 4).unwrap();
    assert_eq!(letters.redrive(&[found.id]).await.unwrap(), 1);
    let number = keylane_redis::partition_of(b"a", 4);
    let length: u64 = shop
        .client
        .run(&["XLEN", &format!("{}:{number}", shop.name)])
        .await;
    assert_eq!(length, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_cannot_go_back_stays_and_says_why() {
    let shop = Shop::new("unfit", RedisKind::Redis7).await;
    let (name, dead) = (&*shop.name, &*shop.dead);
    let letters = shop.letters();
    let add = async |fields: &[&str]| {
        let id: String = shop
            .client
            .run(&[&["XADD", dead, "*"][..], fields].concat())
            .await;
        id.parse::<EntryId>().unwrap()
    };
    let own = add(&["payload", "p", "keylane.stream", dead]).await;
    let bare = add(&["keylane.stream", name, "keylane.cause", "failed"]).await;
    let plain = add(&["payload", "p", "keylane.stream", name]).await;
    shop.client.run::<()>(&["SET", name, "text"]).await;
    for (id, why) in [
        (
            own,
            "comes from the stream of the letters: set another one with `to`",
        ),
        (bare, "has no field of its entry: purge it"),
        (plain, "is a string"),
    ] {
        let refused = letters.redrive(&[id]).await.unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
        assert!(letters.show(id).await.unwrap().is_some());
    }
    let _: u64 = shop.client.run(&["DEL", name]).await;
    assert_eq!(letters.redrive(&[plain]).await.unwrap(), 1);

    // More fields than a script can hand to a command.
    let words: Vec<String> = (0..8_000).map(|n| n.to_string()).collect();
    let mut wide: Vec<&str> = words.iter().map(String::as_str).collect();
    wide.extend(["keylane.stream", name]);
    let wide = add(&wide).await;
    assert_eq!(letters.redrive(&[wide]).await.unwrap(), 1);
    assert_eq!(letters.show(wide).await.unwrap(), None);
    let bodies = shop.bodies().await;
    assert_eq!(bodies.iter().map(Vec::len).collect::<Vec<_>>(), [1, 4_000]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_of_a_cluster_go_back_from_any_slot() {
    let cluster = RedisCluster::start(RedisKind::Redis7, 3).await.unwrap();
    let urls = cluster.urls();
    let client = ClusterClient::builder(urls.clone()).response_timeout(PATIENCE);
    let client = client.build().unwrap();
    let mut link = client.get_async_connection().await.unwrap();
    let redis = Redis::cluster(urls.iter().map(String::as_str)).unwrap();
    for (stream, dead) in [("{shop}orders", "{shop}dead"), ("orders", "letters")] {
        let mut add = redis::cmd("XADD");
        add.arg(dead).arg("7-1").arg("payload").arg("p");
        add.arg("keylane.stream").arg(stream);
        let _: Value = add.query_async(&mut link).await.unwrap();
        let letters = StreamLetters::new(&redis, dead).unwrap();
        let found = letters.list(None, 9).await.unwrap();
        assert_eq!(letters.redrive(&[found[0].id]).await.unwrap(), 1);
        assert_eq!(letters.list(None, 9).await.unwrap(), []);
        let mut length = redis::cmd("XLEN");
        let length: u64 = length.arg(stream).query_async(&mut link).await.unwrap();
        assert_eq!(length, 1, "{stream}");
    }
}
