//! A service that may do little in its database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylane::consume::IntakeState;
use keylane::source::RawMessage;
use keylane::watching::{Event, Events, SourceEvent};
use keylane::{OnExhausted, Retry};
use keylane_inbox::NewMessage;
use keylane_sql::error::ErrorKind;
use keylane_sql::{Claim, Database, SourceSettings};
use keylane_testkit::scenario::{boxed, by_key};
use tokio::time::{Instant, sleep};

use crate::rig::{Log, What, Work, Worker, decoded, message, until};
use crate::support::{Kind, Place};

/// The rights that the README names.
const POSTGRES: &str = "
    create role few login password 'few-rights';
    grant select, insert, update, delete on all tables in schema public to few;
    grant usage, select on all sequences in schema public to few;
    -- Rows of all tables need something to name them by then.
    create publication everything for all tables;
";

const MARIADB: &str = "
    create user few identified by 'few-rights';
    grant select, insert, update, delete on {database}.* to few;
";

const SOON: Duration = Duration::from_secs(60);

const KEYS: u64 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_rights_are_enough() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let owner = Place::new(kind).await;
        let (before, after) = owner.address.split_once('@').unwrap();
        let (scheme, _) = before.split_once("://").unwrap();
        let (_, database) = after.split_once('/').unwrap();
        owner
            .execute(match kind {
                Kind::Postgres => POSTGRES.to_owned(),
                Kind::MariaDb => MARIADB.replace("{database}", database),
            })
            .await;
        let place = Place::at(kind, format!("{scheme}://few:few-rights@{after}")).await;
        // They are made already.
        let place = place.migrated().await;
        let inbox = place.inbox().await;
        let kept = inbox.inbox();
        for number in 0..4 {
            let message = NewMessage::new(format!("key {}", number % 2), number.to_string());
            let message = message.id(format!("id {number}")).version(number + 1);
            kept.accept_message(message).await.unwrap();
        }
        let dispatcher = by_key()
            .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(1))
            .on_exhausted(OnExhausted::AtSource)
            .spawn(boxed(|raw: RawMessage| async move {
                match &raw.payload[..] {
                    b"2" => Err("no".into()),
                    _ => Ok(()),
                }
            }))
            .unwrap();
        let settings = SourceSettings::new().poll(Duration::from_millis(50));
        let source = decoded(inbox.source_with(settings));
        let intake = dispatcher.consume(source).unwrap();
        while kept.stats().await.unwrap().waiting > 0 {
            sleep(Duration::from_millis(10)).await;
        }
        let report = intake.stop().await;
        assert_eq!((report.acked, report.dead_lettered), (3, 1), "{report}");
        let letters = kept.letters();
        let sequence = letters.list(0, 10).await.unwrap()[0].message.sequence;
        assert_eq!(letters.redrive([sequence]).await.unwrap(), [sequence]);
        inbox.remove_old().await.unwrap();
        let leases = place.leases().await;
        let lease = leases.acquire("a key", Duration::from_secs(10)).await;
        lease.unwrap().release().await;
        leases.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_rights_in_postgres_stands_in_the_stats_and_recovers() {
    taken_away(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_rights_in_mariadb_stands_in_the_stats_and_recovers() {
    taken_away(Kind::MariaDb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_done_without_rights_in_postgres_is_told_later() {
    done_without_rights(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_done_without_rights_in_mariadb_is_told_later() {
    done_without_rights(Kind::MariaDb).await;
}

/// A service that has rights at each table of its own.
struct Service {
    owner: Place,
    user: &'static str,
    address: String,
}

impl Service {
    async fn new(kind: Kind, user: &'static str) -> Self {
        let owner = Place::new(kind).await;
        let (_, after) = owner.address.split_once('@').unwrap();
        let (scheme, _) = owner.address.split_once("://").unwrap();
        let address = format!("{scheme}://{user}:few-rights@{after}");
        owner
            .execute(match kind {
                Kind::Postgres => format!(
                    "create role {user} login password 'few-rights';
                     grant usage, select on all sequences in schema public to {user}"
                ),
                Kind::MariaDb => format!("create user {user} identified by 'few-rights'"),
            })
            .await;
        let service = Self {
            owner,
            user,
            address,
        };
        for table in [
            "counters", "history", "keys", "known", "lanes", "leases", "letters", "messages",
            "schema", "versions", "workers",
        ] {
            // PostgreSQL has sequences in the place of counters.
            if (kind, table) != (Kind::Postgres, "counters") {
                let rights = "select, insert, update, delete";
                service.grant(rights, &format!("keylane_{table}")).await;
            }
        }
        service
    }

    async fn grant(&self, rights: &str, table: &str) {
        let (on, user) = (self.named(table), self.user);
        let grant = format!("grant {rights} on {on} to {user}");
        self.owner.execute(grant).await;
    }

    async fn revoke(&self, rights: &str, table: &str) {
        let (on, user) = (self.named(table), self.user);
        let revoke = format!("revoke {rights} on {on} from {user}");
        self.owner.execute(revoke).await;
    }

    async fn rename(&self, from: &str, to: &str) {
        let (rename, from) = ("alter table", self.named(from));
        let to = match self.owner.kind {
            Kind::Postgres => to.to_owned(),
            Kind::MariaDb => self.named(to),
        };
        let rename = format!("{rename} {from} rename to {to}");
        self.owner.execute(rename).await;
    }

    fn named_in_errors(&self) -> String {
        let (_, place) = self.address.split_once('@').unwrap();
        format!("{} at {place}: ", self.owner.kind.system())
    }

    fn named(&self, table: &str) -> String {
        let (_, database) = self.owner.address.rsplit_once('/').unwrap();
        match self.owner.kind {
            Kind::Postgres => table.to_owned(),
            Kind::MariaDb => format!("{database}.{table}"),
        }
    }

    async fn accept(&self, ids: std::ops::Range<u64>) {
        let inbox = self.owner.inbox().await;
        let messages = ids.map(|id| message(id % KEYS, id));
        inbox.inbox().accept_many(messages).await.unwrap();
    }
}

/// How often a part of the source has failed, and has recovered.
fn heard<K: Clone>(events: &mut Events<K>) -> (usize, usize) {
    let mut heard = (0, 0);
    while let Some(event) = events.try_recv() {
        match event {
            Event::Source {
                what: SourceEvent::PartFailed { .. },
                ..
            } => heard.0 += 1,
            Event::Source {
                what: SourceEvent::PartRecovered { .. },
                ..
            } => heard.1 += 1,
            _ => {}
        }
    }
    heard
}

/// The messages of a key in the order in which they were handled first.
fn handled(log: &Log, key: u64) -> Vec<u64> {
    let mut ids = Vec::new();
    for entry in log.entries() {
        if entry.key == key && entry.what == What::End(true) && !ids.contains(&entry.id) {
            ids.push(entry.id);
        }
    }
    ids
}

/// Nothing is handed over while a table may not be used: that is seen, and said once.
async fn taken_away(kind: Kind) {
    let service = Service::new(kind, "clerk").await;
    let log = Log::default();
    let mut work = Work::new();
    work.source = work.source.lease(SOON);
    let worker = Worker::start(&service.address, 0, &log, work).await;
    let mut events = worker.events();
    let mut accepted = 0;
    let mut more = async || {
        service.accept(accepted..accepted + 12).await;
        accepted += 12;
        accepted as usize
    };
    let here = more().await;
    until(SOON, || log.succeeded() == here).await;
    for (rights, table) in [
        ("select", "keylane_messages"),
        ("update", "keylane_lanes"),
        // The table itself goes.
        ("", "keylane_keys"),
    ] {
        let elsewhere = "somewhere_else";
        let before = log.succeeded();
        // What was handled is confirmed.
        service.owner.is_empty_within(SOON).await;
        sleep(Duration::from_millis(500)).await;
        let here = match rights {
            "" => {
                service.rename(table, elsewhere).await;
                before
            }
            rights => {
                service.revoke(rights, table).await;
                more().await
            }
        };
        until(SOON, || !worker.stats().failed_parts.is_empty()).await;
        let first = worker.stats().failed_parts.remove(0);
        assert!(first.why.contains(table), "{first:?}");
        assert!(
            first.why.starts_with(&service.named_in_errors()),
            "{first:?}"
        );
        let advice = match rights {
            "" => "create the tables with `Database::migrate`",
            _ => "grant the right",
        };
        assert!(first.why.contains(advice), "{first:?}");
        let goes_on = || {
            let parts = worker.stats().failed_parts;
            let part = parts.iter().find(|part| part.part == first.part);
            part.expect("it fails still").times >= first.times + 3
        };
        until(SOON, goes_on).await;
        let stats = worker.stats();
        let part = stats.failed_parts.iter().find(|it| it.part == first.part);
        let part = part.unwrap();
        assert_eq!(part.since, first.since);
        assert!(part.last > first.last);
        assert_eq!(
            (stats.state, stats.restarts, stats.last_error),
            (IntakeState::Running, 0, None)
        );
        assert_eq!(log.succeeded(), before);
        match rights {
            "" => service.rename(elsewhere, table).await,
            rights => service.grant(rights, table).await,
        }
        until(SOON, || worker.stats().failed_parts.is_empty()).await;
        let (failed, recovered) = heard(&mut events);
        assert_eq!(failed, recovered, "each is said once: {table}");
        assert!((1..=2).contains(&failed), "{failed}");
        until(SOON, || log.succeeded() == here).await;
    }
    let all = more().await;
    service.owner.is_empty_within(SOON).await;
    for key in 0..KEYS {
        let ids = Vec::from_iter((0..all as u64).filter(|id| id % KEYS == key));
        assert_eq!(handled(&log, key), ids);
    }
    assert_eq!(log.succeeded(), all, "each once");
    worker.stop().await;
}

/// What cannot be told keeps the source from going on, until it can.
async fn done_without_rights(kind: Kind) {
    let service = Service::new(kind, "scribe").await;
    let log = Log::default();
    let mut work = Work::new();
    work.source = work.source.lease(SOON);
    work.takes = |_| Duration::from_millis(100);
    let worker = Worker::start(&service.address, 0, &log, work).await;
    service.accept(0..12).await;
    until(SOON, || log.succeeded() > 0).await;
    service.revoke("delete", "keylane_messages").await;
    let is_seen = || {
        let stats = worker.stats();
        let why = stats.last_error.unwrap_or_default();
        stats.state == IntakeState::Opening && why.contains("keylane_messages")
    };
    until(SOON, is_seen).await;
    service.accept(12..24).await;
    sleep(Duration::from_secs(4)).await;
    // Between two tries it runs for a moment.
    until(SOON, is_seen).await;
    service.grant("delete", "keylane_messages").await;
    let tries = worker.stats().restarts;
    service.owner.is_empty_within(SOON).await;
    until(SOON, || worker.stats().state == IntakeState::Running).await;
    // One try may have been under way without the right.
    assert!(worker.stats().restarts <= tries + 1);
    for key in 0..KEYS {
        let ids = Vec::from_iter((0..24).filter(|id| id % KEYS == key));
        assert_eq!(handled(&log, key), ids);
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_may_not_be_written_in_postgres_holds_up_no_other_key() {
    letter_without_rights(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_may_not_be_written_in_mariadb_holds_up_no_other_key() {
    letter_without_rights(Kind::MariaDb).await;
}

/// A handler drops its transaction, and its message cannot become a letter.
async fn letter_without_rights(kind: Kind) {
    let service = Service::new(kind, "notary").await;
    let place = Place::at(kind, service.address.clone()).await;
    let inbox = place.inbox().await;
    let (drops, others) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let handler = {
        let (inbox, drops, others) = (inbox.clone(), Arc::clone(&drops), Arc::clone(&others));
        move |raw: RawMessage| {
            let (inbox, drops, others) = (inbox.clone(), Arc::clone(&drops), Arc::clone(&others));
            async move {
                if raw.payload == "drops" {
                    drop(inbox.begin(Claim::of(&raw).unwrap()).await?);
                    drops.fetch_add(1, Ordering::SeqCst);
                } else {
                    others.fetch_add(1, Ordering::SeqCst);
                }
                Ok(())
            }
        }
    };
    let dispatcher = by_key()
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(1_000))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(boxed(handler))
        .unwrap();
    let mut events = dispatcher.events();
    let source = decoded(inbox.source_with(SourceSettings::new().lease(SOON)));
    let intake = dispatcher.consume(source).unwrap();
    service.revoke("insert", "keylane_letters").await;
    let accepts = service.owner.inbox().await.inbox();
    accepts.accept("one", "drops").await.unwrap();
    let fails = || {
        let parts = intake.stats().failed_parts;
        let mut parts = parts.iter();
        parts.any(|part| {
            let says = |text: &str| part.why.contains(text);
            part.part == "letters" && says("keylane_letters") && says("grant the right")
        })
    };
    until(SOON, fails).await;
    accepts.accept("another", "done").await.unwrap();
    until(SOON, || others.load(Ordering::SeqCst) == 1).await;
    let (began, before) = (Instant::now(), drops.load(Ordering::SeqCst));
    until(SOON, || drops.load(Ordering::SeqCst) >= before + 2).await;
    assert!(began.elapsed() > Duration::from_secs(1), "with pauses");
    assert!(fails());
    let stats = intake.stats();
    assert_eq!((stats.restarts, stats.last_error), (0, None));
    service.grant("insert", "keylane_letters").await;
    until(SOON, || intake.stats().failed_parts.is_empty()).await;
    assert_eq!(heard(&mut events), (1, 1));
    assert_eq!(accepts.letters().list(0, 10).await.unwrap().len(), 1);
    let _ = intake.stop().await;
}

/// A pool only says that it has waited for too long.
#[tokio::test]
async fn a_refused_connection_says_why() {
    // Nothing listens there, and no connection has it as its own end.
    let port = 1;
    for (scheme, kind) in [("postgres", Kind::Postgres), ("mysql", Kind::MariaDb)] {
        let address = format!("{scheme}://user:canary-4711@127.0.0.1:{port}/orders");
        let error = Database::connect(&address).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        let text = error.to_string();
        assert!(text.contains("refused"), "{text}");
        let system = kind.system();
        let named = format!("{system} at 127.0.0.1:1/orders: the server cannot be reached: ");
        assert!(text.starts_with(&named), "{text}");
        assert!(!text.contains("canary"), "{text}");
    }
}

/// The mistakes that a new user makes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_or_name_says_what_to_correct() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = Place::new(kind).await;
        let (server, name) = place.address.rsplit_once('/').unwrap();
        let (scheme, host) = server.split_once("://").unwrap();
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let absent = format!("{server}/{name}_absent");
        let stranger = format!("{scheme}://stranger:canary-4711@{host}/{name}");
        for (address, kind, advice) in [
            (
                absent,
                ErrorKind::Missing,
                "create it, or correct its name in the address",
            ),
            (
                stranger,
                ErrorKind::Denied,
                "correct the user and the password in the address",
            ),
        ] {
            let error = Database::connect(&address).await.unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), kind, "{text}");
            let named = format!("{} at {host}/{name}", place.kind.system());
            assert!(text.starts_with(&named) && text.contains(advice), "{text}");
            assert!(!text.contains("canary"), "{text}");
        }
    }
}
