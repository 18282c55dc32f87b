//! The service: what it answers, what it does after a kill, how it ends.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use support::{Service, directory, order, payments};
use testkit_browser::Request;

#[test]
fn an_order_is_stored_once_however_often_it_is_sent() {
    let (_temporary, directory) = directory();
    let service = Service::start(&directory);

    let first = service.order(&order("a", "ann"));
    assert_eq!(first.status, 202, "{first:?}");
    let sequence = &first.json()["sequence"];
    assert_eq!(
        first.json(),
        json!({ "id": "a", "sequence": sequence, "duplicate": false })
    );
    service.until("it is done", |stats| stats["waiting"] == 0);
    let again = service.order(&order("a", "ann"));
    assert_eq!(again.status, 202, "{again:?}");
    assert_eq!(
        again.json(),
        json!({ "id": "a", "sequence": sequence, "duplicate": true })
    );

    // Without an id, each is an order of its own.
    for _ in 0..2 {
        let answer = service.order(&json!({ "user": "ann", "cents": 100 }));
        assert_eq!(answer.json()["duplicate"], false);
    }
    service.until("all are done", |stats| stats["waiting"] == 0);
    assert_eq!(payments(&directory).len(), 3);
}

#[test]
fn a_service_that_works_is_ready_and_live() {
    let (_temporary, directory) = directory();
    let service = Service::start(&directory);
    // Then the inbox is open.
    assert_eq!(service.order(&order("a", "ann")).status, 202);
    service.until("it is done", |stats| stats["waiting"] == 0);
    let well = json!({ "ready": true, "live": true, "reasons": [] });
    for path in ["/health/ready", "/health/live"] {
        let answer = service.get(path);
        assert_eq!(
            (answer.status, answer.json()),
            (200, well.clone()),
            "{path}"
        );
    }
}

#[test]
fn an_id_names_one_order_wherever_that_is() {
    let (_temporary, directory) = directory();
    let service = Service::start(&directory);
    let done = order("done", "ann");
    let mut dead = order("dead", "bob");
    dead["declined"] = json!(3);
    let mut waits = order("waits", "cid");
    waits["takes_ms"] = json!(60_000);
    for it in [&done, &dead, &waits] {
        assert_eq!(service.order(it).status, 202);
    }
    service.until("one is done, one is dead", |stats| {
        stats["waiting"] == 1 && stats["dead_letters"] == 1
    });
    for mut it in [done, dead, waits] {
        assert_eq!(service.order(&it).status, 202, "{it}");
        it["cents"] = json!(101);
        assert_eq!(
            service.order(&it).refusal(),
            (409, "id_taken".to_owned()),
            "{it}"
        );
        it["cents"] = json!(100);
        it["user"] = json!("eve");
        assert_eq!(
            service.order(&it).refusal(),
            (409, "id_taken".to_owned()),
            "{it}"
        );
    }
}

#[test]
fn what_is_no_order_is_refused_with_a_reason() {
    let (_temporary, directory) = directory();
    let service = Service::start(&directory);
    let post = |body: &str| {
        let request = Request::new("POST", "/orders").header("content-type", "application/json");
        request.body(body).send(service.address()).refusal()
    };
    let refusal = |status: u16, name: &str| (status, name.to_owned());
    assert_eq!(post("{"), refusal(400, "bad_json"));
    assert_eq!(post(""), refusal(400, "bad_json"));
    assert_eq!(
        post("{\"user\":\"\u{0}\",\"cents\":1}"),
        refusal(400, "bad_json")
    );
    let deep = "[".repeat(10_000);
    assert_eq!(post(&deep).0 / 100, 4);
    for order in [
        json!([]),
        json!({ "cents": 100 }),
        json!({ "user": "ann" }),
        json!({ "user": "ann", "cents": 0 }),
        json!({ "user": "ann", "cents": -1 }),
        json!({ "user": "ann", "cents": 1.5 }),
        json!({ "user": "ann", "cents": 1e30 }),
        json!({ "user": 7, "cents": 100 }),
        json!({ "user": "", "cents": 100 }),
        json!({ "user": "u".repeat(1_025), "cents": 100 }),
        json!({ "user": "ann", "cents": 100, "id": "i".repeat(129) }),
        json!({ "user": "ann", "cents": 100, "takes_ms": 60_001 }),
        json!({ "user": "ann", "cents": 100, "more": true }),
    ] {
        assert_eq!(
            post(&order.to_string()),
            refusal(422, "bad_order"),
            "{order}"
        );
    }
    let large = format!("{{\"user\":\"{}\"}}", "u".repeat(20_000));
    assert_eq!(post(&large), refusal(413, "too_large"));

    let plain = Request::new("POST", "/orders").body(order("a", "ann").to_string());
    assert_eq!(
        plain.send(service.address()).refusal(),
        refusal(415, "not_json")
    );
    assert_eq!(
        service.get("/nothing").refusal(),
        refusal(404, "no_such_page")
    );
    assert_eq!(
        service.get("/orders").refusal(),
        refusal(405, "no_such_method")
    );

    // The longest user there is, of any characters.
    let longest = json!({ "user": "\u{1}".repeat(1_024), "cents": 100 });
    assert_eq!(service.order(&longest).status, 202);
    let stats = service.until("it is done", |stats| stats["waiting"] == 0);
    assert_eq!(stats["accepted"], 1);
}

#[test]
fn bytes_that_are_no_request_do_no_harm() {
    let (_temporary, directory) = directory();
    let service = Service::start(&directory);
    for bytes in [
        &b"\0\xff\xfe nonsense \r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(service.address()).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // It may hang up, and it may say why.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(service.get("/stats").status, 200);
}

#[test]
fn only_this_machine_is_answered_and_no_page_of_elsewhere_orders() {
    let (_temporary, directory) = directory();
    let service = Service::start(&directory);
    let (address, port) = (service.address(), service.address().port());
    for path in ["/stats", "/health/ready"] {
        let foreign = Request::new("GET", path).host(&format!("evil.example:{port}"));
        assert_eq!(foreign.send(address).refusal().1, "foreign_host", "{path}");
        let named = Request::new("GET", path).host(&format!("localhost:{port}"));
        let answer = named.send(address);
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("default-src 'none'"), "{answer:?}");
    }
    let foreign = Request::new("GET", "/console").host(&format!("evil.example:{port}"));
    assert_eq!(foreign.send(address).refusal().1, "foreign_host");
    let from = |origin: &str| {
        let request = Request::new("POST", "/orders").header("origin", origin);
        request.json(&order("a", "ann")).send(address)
    };
    assert_eq!(from("http://evil.example").refusal().1, "foreign_origin");
    assert_eq!(from(&service.url()).status, 202);
}

#[test]
fn after_a_kill_it_goes_on_where_it_was() {
    let (_temporary, directory) = directory();
    let service = Service::start(&directory);
    let mut ids = Vec::new();
    for n in 1..=20 {
        let mut order = order(&format!("{n}"), "ann");
        // The last one is in the way of the kill, however long all the others have taken to send.
        order["takes_ms"] = json!(if n == 20 { 5_000 } else { 30 });
        assert_eq!(service.order(&order).status, 202);
        ids.push(format!("{n}"));
    }
    let left = service.until("some are done", |stats| stats["done"].as_u64() >= Some(3));
    assert!(left["waiting"].as_u64() > Some(0), "{left}");
    service.kill();

    let service = Service::start(&directory);
    service.until("all are done", |stats| stats["waiting"] == 0);
    let paid: Vec<_> = payments(&directory)
        .into_iter()
        .map(|(.., id)| id)
        .collect();
    assert_eq!(paid, ids);
}

#[test]
fn an_order_that_meets_every_kill_is_a_dead_letter_after_its_attempts() {
    let (_temporary, directory) = directory();
    let mut poison = order("poison", "ann");
    poison["takes_ms"] = json!(60_000);
    let is_running = |stats: &Value| stats["in_flight"] == 1;
    for attempt in 1..=3 {
        let service = Service::start(&directory);
        if attempt == 1 {
            assert_eq!(service.order(&poison).status, 202);
        }
        service.until("it runs", is_running);
        service.kill();
    }
    let service = Service::start(&directory);
    service.until("it is given up on", |stats| stats["dead_letters"] == 1);
    let letters = service.letters();
    assert_eq!(letters[0]["attempts"], 3, "{letters}");
    assert_eq!(letters[0]["cause"], "crashed", "{letters}");
    assert_eq!(service.order(&order("next", "ann")).status, 202);
    service.until("the next one is done", |stats| stats["waiting"] == 0);
}

#[test]
fn ctrl_c_finishes_what_has_started_and_adds_up() {
    let (_temporary, directory) = directory();
    let service = Service::start(&directory);
    for n in 0..10 {
        let mut order = order(&n.to_string(), &format!("user-{n}"));
        order["takes_ms"] = json!(300);
        assert_eq!(service.order(&order).status, 202);
    }
    let (said, status) = service.interrupt();
    assert!(status.success(), "{said}");
    let parts = [
        "inbox to lanes: 10 received = 10 acked + 0 dead-lettered + 0 nacked + 0 given back",
        "lanes:          10 accepted = 10 done + 0 dead-lettered",
        "on the disk:    0 orders for the next start, 0 dead letters",
    ];
    for part in parts {
        assert!(said.contains(part), "without {part:?}: {said}");
    }
    assert_eq!(payments(&directory).len(), 10);
}

#[test]
fn a_second_service_is_told_why_it_cannot_be() {
    let (_temporary, directory) = directory();
    let service = Service::start(&directory);
    let refused = |directory: &std::path::Path, port: u16| {
        let mut command = support::example();
        command
            .args(["--serve", "--port", &port.to_string(), "--dir"])
            .arg(directory);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused(&directory, 0);
    assert!(said.contains("is already open"), "{said}");
    let said = refused(&directory.join("other"), service.address().port());
    assert!(said.contains("name another --port"), "{said}");
    assert!(!directory.join("other").exists());
    assert_eq!(service.order(&order("a", "ann")).status, 202);
}
