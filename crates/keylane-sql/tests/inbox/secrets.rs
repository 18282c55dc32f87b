//! No password is shown, whatever happens to the database.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::OnExhausted;
use keylane::source::RawMessage;
use keylane_inbox::NewMessage;
use keylane_sql::{Database, Settings, SourceSettings, SqlInbox, Tables};
use keylane_testkit::scenario::{boxed, by_key};
use tokio::time::{Instant, sleep};
use tracing::field::{Field, Visit};
use tracing::span;

use crate::rig::Own;
use crate::support::Kind;

const CANARY: &str = "c4n4ry-s3cr3t";

/// Everything that is traced, of all crates and levels.
#[derive(Clone, Default)]
struct Traced(Arc<Mutex<String>>);

impl Traced {
    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl tracing::Subscriber for Traced {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let mut text = self.0.lock().unwrap();
        span.record(&mut Fields(&mut text));
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(&mut Fields(&mut self.0.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = self.0.lock().unwrap();
        let _ = write!(text, "\n{}", event.metadata().target());
        event.record(&mut Fields(&mut text));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

// On one thread, so that all of it is traced.
#[tokio::test]
async fn postgres_shows_no_password() {
    shows_none(Kind::Postgres).await;
}

#[tokio::test]
async fn mariadb_shows_no_password() {
    shows_none(Kind::MariaDb).await;
}

async fn shows_none(kind: Kind) {
    let server = Own::start(kind).await;
    let place = server.place().await.migrated().await;
    // A user whose password is the canary. Not traced: the statement shows it.
    place.execute(create_user(kind)).await;
    let traced = Traced::default();
    let _guard = keylane_testkit::set_subscriber(traced.clone());
    // One that is refused.
    let error = Database::connect(&place.address_with_password(CANARY)).await;
    let error = error.unwrap_err();
    let mut shown = format!("{error:?} {error}");
    let mut user = place.address_with_password(CANARY);
    user = user.replacen("keylane:", "canary:", 1);
    let database = Database::connect(&user).await.unwrap();
    let inbox = SqlInbox::open(&database, &Tables::new(), short()).await;
    let inbox = inbox.unwrap();
    let settings = SourceSettings::new()
        .lease(Duration::from_secs(2))
        .poll(Duration::from_millis(100));
    let source = inbox.source_with(settings.clone());
    let _ = write!(
        shown,
        "{database:?} {inbox:?} {:?} {source:?} {settings:?}",
        inbox.inbox()
    );
    let dispatcher = by_key()
        .on_exhausted(OnExhausted::AtSource)
        .spawn(boxed(|_: RawMessage| async { Ok(()) }))
        .unwrap();
    let intake = dispatcher.consume(source).unwrap();
    inbox.inbox().accept("key", "payload").await.unwrap();
    handled(&inbox).await;
    // Connections that are killed, a password that has changed, and a server that is down.
    place.kill_connections().await;
    sleep(Duration::from_millis(500)).await;
    place.execute(change_password(kind)).await;
    place.kill_connections().await;
    sleep(Duration::from_secs(1)).await;
    let refused = inbox.inbox().accept("key", "payload").await.unwrap_err();
    let _ = write!(shown, "{refused:?} {refused}");
    let opened = SqlInbox::open(&database, &Tables::new(), short()).await;
    let opened = opened.unwrap_err();
    let _ = write!(shown, "{opened:?} {opened} {:?} {intake:?}", intake.stats());
    server.stop().await;
    sleep(Duration::from_secs(1)).await;
    for message in [
        NewMessage::new("key", ""),
        NewMessage::new("key", "").id("id"),
    ] {
        let refused = inbox.inbox().accept_message(message).await.unwrap_err();
        let _ = write!(shown, "{refused:?} {refused}");
    }
    let down = Database::connect(&user).await.unwrap_err();
    let _ = write!(shown, "{down:?} {down} {:?}", intake.stats());
    let removed = inbox.remove_old().await.unwrap_err();
    let _ = write!(shown, "{removed:?} {removed}");
    let report = intake.stop().within(Duration::from_secs(5)).await;
    let _ = write!(shown, "{report:?} {report}");
    let traced = traced.text();
    assert!(traced.contains("keylane"), "nothing is traced: {traced}");
    for text in [&shown, &traced] {
        assert!(
            !text.contains(CANARY) && !text.contains(place.password()),
            "{text}"
        );
    }
}

fn short() -> Settings {
    Settings::new().call_limit(Duration::from_secs(2))
}

fn create_user(kind: Kind) -> String {
    match kind {
        Kind::Postgres => format!("create role canary superuser login password '{CANARY}'"),
        Kind::MariaDb => {
            format!("create user canary identified by '{CANARY}'; grant all on *.* to canary")
        }
    }
}

fn change_password(kind: Kind) -> &'static str {
    match kind {
        Kind::Postgres => "alter role canary password 'another'",
        Kind::MariaDb => "alter user canary identified by 'another'",
    }
}

async fn handled(inbox: &SqlInbox) {
    let until = Instant::now() + Duration::from_secs(30);
    while inbox.inbox().stats().await.unwrap().waiting > 0 {
        assert!(Instant::now() < until);
        sleep(Duration::from_millis(10)).await;
    }
}

/// The tracing of this test sees what it is there for.
#[test]
fn a_password_that_is_traced_is_seen() {
    let traced = Traced::default();
    tracing::subscriber::with_default(traced.clone(), || {
        tracing::trace!(address = %format!("postgres://user:{CANARY}@host"), "connecting");
    });
    assert!(traced.text().contains(CANARY));
}
