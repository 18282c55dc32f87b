//! The attempts at an element.

use std::time::Duration;

use keylane::source::RawMessage;
use redis::cmd;
use testkit_servers::RedisKind;

use crate::starts::{ATTEMPTS, Starts};
use crate::state::beside;
use crate::support::{builder, connect, new_name, shared, until};

/// Each start is counted by the server, and the connection breaks before the answer is there. The
/// start is noted again and counts once: the message has all its attempts before it is a letter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_is_noted_again_counts_once() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (name, mut raw) = (new_name("again"), connect(&server.url()).await);
        let starts = Starts::at(&server).await;
        let build = |url: &str| {
            let queue = builder(url, &name).lease(Duration::from_secs(60));
            queue.dead_letters().build().unwrap()
        };
        let queue = build(&server.url());
        let (_dispatcher, intake) = starts.consume(build(&starts.url()).source());
        queue.push(&RawMessage::new("0").key("a")).await.unwrap();
        let counted = async |attempt| {
            let status = queue.status().await.unwrap();
            let Some(worker) = status.workers.first() else {
                return false;
            };
            let mut noted = cmd("HVALS");
            noted.arg(beside(&name, &format!("attempts:{}", worker.worker)));
            let noted: Vec<u32> = noted.query_async(&mut raw.clone()).await.unwrap();
            noted == [attempt]
        };
        starts.are_noted_again(counted).await;
        let mut letters = Vec::new();
        until("there is a letter", async || {
            letters = queue.letters(1).await.unwrap();
            !letters.is_empty()
        })
        .await;
        let attempts = letters[0].header("keylane.attempts").unwrap();
        assert_eq!(*attempts, ATTEMPTS.to_string(), "{kind}");
        assert_eq!(starts.runs(), ATTEMPTS, "{kind}");
        intake.stop().await;
        crate::state::check(&mut raw, &name).await;
    }
}
