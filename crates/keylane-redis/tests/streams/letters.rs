//! Letters in a stream: read, sent back as they were, removed.

use keylane_redis::{Redis, StreamLetters};
use keylane_source::{LetterCause, Source, SourceLetter};
use testkit_servers::RedisKind;

use crate::support::{Client, Driven, builder, new_name, shared};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_go_back_to_their_stream_as_they_were_and_in_order() {
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("back"));
    let dead = format!("{name}.dead");
    for key in ["a", "b", "c"] {
        let add = ["XADD", &name, "*", "key", key, "trace", "t", "payload", "p"];
        let _: String = client.run(&add).await;
    }
    let source = builder(&server.url(), "g").stream(name.clone());
    let source = source.dead_letters(dead.clone()).build().unwrap();
    let mut source = Driven::open(source).await;
    for handed in source.receive(3).await {
        let letter = SourceLetter::new(handed.position, 3, LetterCause::Failed, "no".to_owned());
        source.0.dead_letter(letter).await.unwrap();
    }
    drop(source);
    let redis = Redis::at(&server.url()).unwrap();
    let letters = StreamLetters::new(&redis, dead.clone()).unwrap();
    let all = letters.list(None, 10).await.unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!(letters.list(Some(all[0].id), 1).await.unwrap(), all[1..2]);
    assert_eq!(
        letters.show(all[2].id).await.unwrap().as_ref(),
        Some(&all[2])
    );
    assert_eq!(all[0].field("keylane.error").unwrap(), "no");

    let _: u64 = client.run(&["DEL", &name]).await;
    let [a, b, c] = [0, 1, 2].map(|at| all[at].id);
    assert_eq!(letters.purge(&[b]).await.unwrap(), 1);
    // One that is gone does not count.
    assert_eq!(letters.redrive(&[c, b, a]).await.unwrap(), 2);
    assert_eq!(letters.list(None, 10).await.unwrap(), []);
    let back: Vec<(String, Vec<(String, String)>)> = client.run(&["XRANGE", &name, "-", "+"]).await;
    let fields = |key: &str| {
        let fields = [("key", key), ("trace", "t"), ("payload", "p")];
        fields
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    };
    let back: Vec<_> = back.into_iter().map(|(_, fields)| fields).collect();
    assert_eq!(back, [fields("c"), fields("a")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_names_no_stream_stays_until_one_is_set() {
    let server = shared(RedisKind::Redis7).await;
    let (client, name) = (Client::to(&server).await, new_name("nameless"));
    let dead = format!("{name}.dead");
    let _: String = client.run(&["XADD", &dead, "7-1", "payload", "p"]).await;
    let redis = Redis::at(&server.url()).unwrap();
    let letters = StreamLetters::new(&redis, dead).unwrap();
    let id = "7-1".parse().unwrap();
    let failed = letters.redrive(&[id]).await.unwrap_err();
    assert!(
        failed
            .to_string()
            .contains("does not name its stream: set one with `to`"),
        "{failed}"
    );
    assert!(letters.show(id).await.unwrap().is_some());
    let letters = letters.to(name.clone());
    assert_eq!(letters.redrive(&[id]).await.unwrap(), 1);
    let length: u64 = client.run(&["XLEN", &name]).await;
    assert_eq!(length, 1);
}
