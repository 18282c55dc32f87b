//! A lane whose lease is held by another process: who, as the leases say.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::Dispatcher;
use keylane::error::BoxError;
use keylane::lease::{LaneHolder, LaneLease, LaneLeaseError, LaneLeases};
use keylane_console::Console;
use serde_json::{Value, json};
use testkit_browser::{Browser, Request, until};

use crate::page::look;
use crate::served::serve;

/// What the leases answer.
#[derive(Clone, Debug)]
enum Says {
    Free,
    Held(LaneHolder),
    Fails(&'static str),
    Nothing,
}

/// Leases of which another process has all.
struct Taken {
    says: Mutex<Says>,
    asked: AtomicU64,
}

impl Taken {
    fn say(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }
}

/// An own type: the dispatcher takes the leases.
struct Leases(Arc<Taken>);

#[keylane::async_trait]
impl LaneLeases<String> for Leases {
    async fn acquire(&self, _: &String) -> Result<Box<dyn LaneLease>, LaneLeaseError> {
        std::future::pending().await
    }

    fn losses(&self) -> u64 {
        0
    }

    async fn held_by(&self, key: &String) -> Result<Option<LaneHolder>, BoxError> {
        if key == "bob" {
            return std::future::pending().await;
        }
        assert_eq!(key, "ann");
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        let says = self.0.says.lock().unwrap().clone();
        match says {
            Says::Free => Ok(None),
            Says::Held(holder) => Ok(Some(holder)),
            Says::Fails(why) => Err(why.into()),
            Says::Nothing => std::future::pending().await,
        }
    }
}

#[test]
fn a_lane_that_waits_for_its_lease_names_the_holder() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let minute = Some(Duration::from_secs(60));
    let holder = LaneHolder::new("<b>host-4021</b>-0a\u{202e}", u64::MAX, minute);
    let leases = Arc::new(Taken {
        says: Mutex::new(Says::Held(holder.clone())),
        asked: AtomicU64::new(0),
    });
    let entered = runtime.enter();
    let orders = Dispatcher::builder(|user: &String| user.clone())
        .leased_by(Leases(Arc::clone(&leases)))
        .spawn(|_: String| async { Ok::<(), String>(()) })
        .unwrap();
    let address = serve(&runtime, Console::builder().dispatcher("orders", &orders));
    drop(entered);
    runtime.block_on(orders.send("ann".into())).unwrap();

    let find = |key: &str| {
        let request = Request::new("POST", "/find")
            .header("origin", &format!("http://{address}"))
            .header("x-keylane-console", "1");
        let body = json!({ "dispatcher": "orders", "key": key });
        request.json(&body).send(address).json()
    };
    until("it waits for its lease", || {
        find("ann")["state"] == "leasing"
    });
    let id = find("ann")["id"].as_str().unwrap().to_owned();
    // Neither the list nor the search asks: only the page of a lane.
    assert_eq!(leases.asked.load(Ordering::Relaxed), 0);
    let path = format!("/lane?dispatcher=orders&id={id}");
    let lane = || Request::new("GET", &path).send(address).json();
    let seen = lane();
    assert_eq!(seen["holder"]["token"], u64::MAX.to_string());
    assert_eq!(seen["holder"]["lasts_ms"], 60_000);

    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&format!("http://{address}/#lane/orders/{id}"));
    let facts = |part: &str| {
        browser.until(&format!(
            "document.getElementById('facts').textContent.includes({})",
            json!(part)
        ));
    };
    facts("lease held by<b>host-4021</b>-0aU+202E");
    facts("token of that lease18446744073709551615");
    facts("lasts at most, if not renewed60 s");
    for width in [400, 1_280] {
        look(&browser, width, "holder");
    }
    leases.say(Says::Held(holder.of_session()));
    facts("ends with its sessionwhen its process is gone, at most 60 s later");
    leases.say(Says::Fails("<i>no route</i>"));
    facts("holder of the lease not known<i>no route</i>");
    leases.say(Says::Nothing);
    facts("the leases have not answered within 1s");
    leases.say(Says::Free);
    facts("leasefree, or its holder is not known");
    assert_eq!(lane()["holder"], Value::Null);

    // While the leases are silent about another lane, the page shows what it knows, and its age.
    leases.say(Says::Held(LaneHolder::new("host-7", 1, minute)));
    facts("lease held byhost-7");
    runtime.block_on(orders.send("bob".into())).unwrap();
    let bob = find("bob")["id"].as_str().unwrap().to_owned();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let path = format!("/lane?dispatcher=orders&id={bob}");
            while !ends.load(Ordering::Relaxed) {
                Request::new("GET", &path).send(address);
            }
        });
        facts("the leases were asked");
        look(&browser, 400, "holder-old");
        ends.store(true, Ordering::Relaxed);
    });
    drop(browser);

    // Many viewers do not ask more often: at most once a second, however long they look.
    let (before, began) = (
        leases.asked.load(Ordering::Relaxed),
        std::time::Instant::now(),
    );
    for _ in 0..50 {
        lane();
    }
    let asked = leases.asked.load(Ordering::Relaxed) - before;
    assert!(asked <= began.elapsed().as_secs() + 1, "{asked} times");
}
