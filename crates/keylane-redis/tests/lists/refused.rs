//! A list that cannot be used: the source reports it as long as it lasts, and goes on by itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::consume::{Intake, IntakeSettings, IntakeState};
use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_redis::{ErrorKind, ListBuilder, ListQueue};
use keylane_testkit::Gate;
use keylane_testkit::scenario::{boxed, by_key};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, cmd};
use testkit_servers::{Redis, RedisKind};

use crate::state::{beside, check_idle};
use crate::support::{builder, connect, new_name, own, shared, until};

struct Consumed {
    handled: Arc<Mutex<Vec<u64>>>,
    /// Elements with numbers from 1,000 on wait here before they end.
    gate: Gate,
    intake: Intake,
    _consumer: Dispatcher<bytes::Bytes, RawMessage, (), BoxError>,
}

fn consume(queue: &ListQueue) -> Consumed {
    let handled = Arc::<Mutex<Vec<u64>>>::default();
    let (theirs, gate) = (Arc::clone(&handled), Gate::new());
    let waits = gate.clone();
    let consumer = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(move |raw: RawMessage| {
            let number = std::str::from_utf8(&raw.payload).unwrap().parse().unwrap();
            let (theirs, waits) = (Arc::clone(&theirs), waits.clone());
            async move {
                if number >= 1_000 {
                    waits.pass().await;
                }
                theirs.lock().unwrap().push(number);
                Ok(())
            }
        }))
        .unwrap();
    let settings = IntakeSettings::new().longest_pause(Duration::from_millis(500));
    let intake = consumer.consume_with(queue.source(), settings).unwrap();
    Consumed {
        handled,
        gate,
        intake,
        _consumer: consumer,
    }
}

impl Consumed {
    fn handled(&self) -> Vec<u64> {
        self.handled.lock().unwrap().clone()
    }

    /// Elements in flight when the source failed come again, and later ones wait for them.
    async fn handles(&self, numbers: &[u64]) {
        until("all are handled", async || {
            self.handled().last() == numbers.last()
        })
        .await;
        let mut handled = self.handled();
        handled.dedup_by(|next, one| next == one && *one >= 1_000);
        assert_eq!(handled, numbers, "once, and in order");
        until("it goes on", async || {
            self.intake.stats().state == IntakeState::Running
        })
        .await;
    }

    /// Waits until it cannot go on, and reports the reason.
    async fn fails(&self, why: &str) {
        until("the source fails", async || {
            let stats = self.intake.stats();
            let says = stats.last_error.is_some_and(|error| error.contains(why));
            says && stats.state == IntakeState::Opening
        })
        .await;
    }
}

async fn say<T: FromRedisValue>(raw: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut command = cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(raw).await.unwrap()
}

async fn push(queue: &ListQueue, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let message = RawMessage::new(number.to_string()).key("a");
        queue.push(&message).await.unwrap();
    }
}

/// Creates a user of the server with all rights on these keys, except these commands.
async fn allow(raw: &mut MultiplexedConnection, user: &str, keys: &str, without: &str) {
    let keys = format!("~*{keys}*");
    let words = [
        "ACL",
        "SETUSER",
        user,
        "on",
        ">secret",
        "resetkeys",
        &keys,
        "+@all",
    ];
    let words: Vec<&str> = words.into_iter().chain([without]).collect();
    let words = words.into_iter().filter(|word| !word.is_empty());
    say::<()>(raw, &words.collect::<Vec<_>>()).await;
}

fn as_user(server: &Redis, user: &str, list: &str) -> ListBuilder {
    let url = server.url();
    let url = url.replacen("redis://", &format!("redis://{user}:secret@"), 1);
    builder(&url, list)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_the_wrong_type_is_said_and_tried_again() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (list, mut raw) = (new_name("wrong"), connect(&server.url()).await);
        say::<()>(&mut raw, &["SET", &list, "no list"]).await;
        let queue = builder(&server.url(), &list).build().unwrap();
        let consumed = consume(&queue);
        consumed.fails("WRONGTYPE").await;
        say::<()>(&mut raw, &["DEL", &list]).await;
        push(&queue, 0..20).await;
        let mut all: Vec<u64> = (0..20).collect();
        consumed.handles(&all).await;

        // While an element is in flight.
        push(&queue, 1_000..1_001).await;
        until("it is under way", async || consumed.gate.waiting() == 1).await;
        say::<()>(&mut raw, &["SET", &list, "no list"]).await;
        consumed.fails("WRONGTYPE").await;
        consumed.gate.open();
        say::<()>(&mut raw, &["DEL", &list]).await;
        push(&queue, 20..40).await;
        all.push(1_000);
        all.extend(20..40);
        consumed.handles(&all).await;
        consumed.intake.stop().await;
        check_idle(&mut raw, &list).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_without_rights_is_said_and_tried_again() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (list, user) = (new_name("denied"), new_name("user"));
        let mut raw = connect(&server.url()).await;
        let open = builder(&server.url(), &list).build().unwrap();
        allow(&mut raw, &user, "other", "").await;
        let consumed = consume(&as_user(&server, &user, &list).build().unwrap());
        push(&open, 0..20).await;
        consumed.fails("refuses the user").await;
        allow(&mut raw, &user, &list, "").await;
        let mut all: Vec<u64> = (0..20).collect();
        consumed.handles(&all).await;

        push(&open, 1_000..1_001).await;
        until("it is under way", async || consumed.gate.waiting() == 1).await;
        allow(&mut raw, &user, "other", "").await;
        push(&open, 20..40).await;
        consumed.fails("refuses the user").await;
        consumed.gate.open();
        allow(&mut raw, &user, &list, "").await;
        all.push(1_000);
        all.extend(20..40);
        consumed.handles(&all).await;
        consumed.intake.stop().await;
        check_idle(&mut raw, &list).await;
    }
}

/// A worker without the right to wait polls the list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_refused_is_said_and_holds_up_nothing() {
    for kind in RedisKind::ALL {
        let server = shared(kind).await;
        let (list, user) = (new_name("unwoken"), new_name("user"));
        let mut raw = connect(&server.url()).await;
        allow(&mut raw, &user, &list, "-blmove").await;
        let queue = as_user(&server, &user, &list).lease(Duration::from_secs(60));
        let queue = queue.build().unwrap();
        let consumed = consume(&queue);
        let pushed = async {
            for number in 0..3 {
                push(&queue, number..number + 1).await;
                consumed.handles(&(0..=number).collect::<Vec<_>>()).await;
            }
        };
        let pushed = tokio::time::timeout(Duration::from_secs(40), pushed).await;
        pushed.expect("elements are not found late");
        until("it is said", async || {
            let failed = consumed.intake.stats().failed_parts;
            failed.iter().any(|part| {
                part.part == format!("list {list} (waiting)")
                    && part.why.contains("refuses the user")
            })
        })
        .await;
        allow(&mut raw, &user, &list, "").await;
        until("it works again", async || {
            consumed.intake.stats().failed_parts.is_empty()
        })
        .await;
        let report = consumed.intake.stop().await;
        assert_eq!((report.restarts, report.acked), (0, 3), "{kind}");
    }
}

/// A wait needs memory, but emptying a list does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_which_there_is_no_memory_is_said() {
    for kind in RedisKind::ALL {
        let server = own(kind).await;
        let (list, mut raw) = (new_name("full"), connect(&server.url()).await);
        let queue = builder(&server.url(), &list).lease(Duration::from_secs(60));
        let consumed = consume(&queue.build().unwrap());
        until("it waits", async || {
            consumed.intake.stats().state == IntakeState::Running
        })
        .await;
        say::<()>(&mut raw, &["CONFIG", "SET", "maxmemory", "1"]).await;
        until("it is said", async || {
            let failed = consumed.intake.stats().failed_parts;
            failed.iter().any(|part| {
                part.part == format!("list {list} (waiting)") && part.why.contains("OOM")
            })
        })
        .await;
        say::<()>(&mut raw, &["CONFIG", "SET", "maxmemory", "0"]).await;
        until("it works again", async || {
            consumed.intake.stats().failed_parts.is_empty()
        })
        .await;
        assert_eq!(consumed.intake.stop().await.restarts, 0, "{kind}");
    }
}

/// Five commands of one call are refused for one reason.
#[tokio::test]
async fn what_is_wrong_with_several_commands_is_said_once() {
    let server = shared(RedisKind::Redis7).await;
    let name = new_name("typed");
    for key in ["letters", "owners", "workers"] {
        let words = ["SET", &beside(&name, key), "text"];
        server.execute(&words).await.unwrap();
    }
    let queue = builder(&server.url(), &name).build().unwrap();
    let error = queue.status().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    let said = error.to_string();
    assert_eq!(said.matches("WRONGTYPE").count(), 1, "{said}");
}
