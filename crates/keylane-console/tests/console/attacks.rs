//! Each rule of access, attacked over a socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use axum::extract::{self, ConnectInfo};
use axum::middleware::{Next, from_fn};
use axum::{Extension, Router};
use keylane_console::{Action, ServeError};
use serde_json::json;
use tokio::net::TcpListener;

use crate::served::{AT, Served, Stream, Work, get, post};
use crate::shelf::Shelf;
use testkit_browser::{Answer, Request};

const TOKEN: &str = "a token of many bytes";

/// Everything that holds data, and its files.
const DATA: [&str; 6] = [
    "about",
    "feed",
    "lanes?dispatcher=orders",
    "lane?dispatcher=orders&id=1",
    "letters?name=dead",
    "letter?name=dead&id=1",
];
/// Everything that has an effect, but for `session`.
const EFFECTS: [&str; 4] = ["act", "find", "letters/act", "letters/stop"];
const FILES: [&str; 4] = ["", "app.css", "app.js", "icon.svg"];

fn local() -> Served {
    Served::start(|console| console.letters("dead", Shelf::with(1)).allow(Action::ALL))
}

fn refused(answer: &Answer) -> String {
    assert!(matches!(answer.status, 400..=499), "{answer:?}");
    answer.refusal().1
}

#[test]
fn a_foreign_host_is_refused_everywhere() {
    let served = local();
    for path in DATA.iter().chain(&FILES) {
        let port = served.address.port();
        for host in [
            &format!("evil.example:{port}"),
            "localhost.evil.example",
            "a@localhost",
        ] {
            let answer = get(path).host(host).send(served.address);
            assert_eq!(refused(&answer), "foreign_host", "{path} at {host}");
        }
    }
    for path in EFFECTS {
        let answer = served
            .ours(post(path))
            .host("evil.example")
            .json(&json!({}));
        assert_eq!(
            refused(&answer.send(served.address)),
            "foreign_host",
            "{path}"
        );
    }
    let named = format!("localhost:{}", served.address.port());
    assert_eq!(get("about").host(&named).send(served.address).status, 200);
}

#[test]
fn a_peer_of_another_machine_is_refused() {
    let far: SocketAddr = "192.0.2.7:9".parse().unwrap();
    let far = |app: Router| app.layer(Extension(ConnectInfo(far)));
    let served = Served::<String>::start_with(
        0,
        |console| console.letters("dead", Shelf::with(1)).allow(Action::ALL),
        far,
    );
    for path in EFFECTS {
        assert_eq!(
            refused(&served.post(path, &json!({}))),
            "foreign_peer",
            "{path}"
        );
    }
    for path in DATA.iter().chain(&FILES) {
        assert_eq!(refused(&served.get(path)), "foreign_peer", "{path}");
    }
    // A proxy on this machine that asks for another one.
    let served = local();
    for name in [
        "forwarded",
        "via",
        "x-forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-forwarded-server",
        "x-real-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-original-forwarded-for",
        "x-original-host",
        "x-envoy-external-address",
        "x-amzn-trace-id",
        "true-client-ip",
        "cf-connecting-ip",
        "cdn-loop",
        "fastly-client-ip",
        "fly-client-ip",
    ] {
        let answer = get("about").header(name, "192.0.2.7").send(served.address);
        assert_eq!(refused(&answer), "foreign_peer", "{name}");
    }
    // As nginx writes it: no header, the host of this machine, and HTTP/1.0.
    let old = old_request(served.address, "/ops/console/about");
    assert!(old.contains("foreign_peer"), "{old}");
}

fn old_request(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// What the README says of a proxy that adds nothing, and asks for this machine in HTTP/1.1: it may
/// read without a token, and cannot act or read with one, whatever origin it names.
#[test]
fn a_proxy_that_says_nothing_reads_without_a_token_only() {
    let open = Served::<String>::start(|console| console);
    let with_token = Served::<String>::start(|console| console.allow(Action::ALL).token(TOKEN));
    assert_eq!(open.get("about").status, 200);
    for path in DATA {
        assert_eq!(with_token.get(path).refusal().1, "sign_in", "{path}");
    }
    let body = json!({ "dispatcher": "orders", "id": "1", "action": "purge" });
    let act = with_token.ours(post("act")).json(&body);
    assert_eq!(act.send(with_token.address).refusal().1, "sign_in");
    assert_eq!(open.post("act", &body).refusal().1, "not_allowed");
    // Nothing is allowed by mistake.
    let built = keylane_console::Console::builder()
        .allow([Action::Pause])
        .build();
    assert_eq!(
        built.unwrap_err().to_string(),
        "actions are allowed, and there is no token: set `token`, or `without_token` if no proxy leads here"
    );
}

#[test]
fn a_server_that_does_not_know_the_peer_is_refused() {
    let served = local();
    let app = Router::new().nest(AT, served.console.router());
    let address = served.runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        address
    });
    assert_eq!(refused(&get("about").send(address)), "unknown_peer");
}

#[test]
fn serve_refuses_an_address_that_others_reach() {
    let served = local();
    let listener = served
        .runtime
        .block_on(TcpListener::bind("0.0.0.0:0"))
        .unwrap();
    let ended = served.runtime.block_on(served.console.serve(listener));
    assert!(
        matches!(ended, Err(ServeError::NotLoopback { .. })),
        "{ended:?}"
    );
    // And serves this machine until it is closed.
    let listener = served
        .runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let address = listener.local_addr().unwrap();
    let console = served.console.clone();
    let serving = served
        .runtime
        .spawn(async move { console.serve(listener).await });
    assert_eq!(Request::new("GET", "/about").send(address).status, 200);
    served.console.close();
    assert!(served.runtime.block_on(serving).unwrap().is_ok());
}

#[test]
fn a_foreign_page_neither_reads_nor_acts() {
    let served = local();
    served.send("ann".into(), Work::Holds);
    let id = served.find("ann")["id"].clone();
    let body = json!({ "dispatcher": "orders", "id": id, "action": "pause" });
    let ours = ("origin", format!("http://{}", served.address));
    let own = ("x-keylane-console", "1".to_owned());
    let same = ("sec-fetch-site", "same-origin".to_owned());
    let of = |name, value: &str| (name, value.to_owned());
    let attacks = [
        ("foreign_origin", vec![own.clone()]),
        ("no_header", vec![ours.clone()]),
        ("no_header", vec![same.clone()]),
        (
            "foreign_origin",
            vec![of("origin", "http://evil.example"), own.clone()],
        ),
        (
            "foreign_origin",
            vec![of("origin", "null"), same, own.clone()],
        ),
        (
            "foreign_origin",
            vec![
                ours.clone(),
                of("sec-fetch-site", "cross-site"),
                own.clone(),
            ],
        ),
        (
            "foreign_origin",
            vec![ours.clone(), of("sec-fetch-site", "same-site"), own.clone()],
        ),
        (
            "foreign_origin",
            vec![ours.clone(), ours.clone(), own.clone()],
        ),
    ];
    for (name, headers) in attacks {
        for path in EFFECTS.into_iter().chain(["session"]) {
            let request = headers.iter().fold(post(path), |request, (name, value)| {
                request.header(name, value)
            });
            let answer = request.json(&body).send(served.address);
            assert_eq!(refused(&answer), name, "{path} {headers:?}");
        }
    }
    for path in DATA {
        let answer = get(path)
            .header("sec-fetch-site", "cross-site")
            .send(served.address);
        assert_eq!(refused(&answer), "foreign_origin", "{path}");
    }
    // A form, which can send no JSON.
    let form = served
        .ours(post("act"))
        .header("content-type", "text/plain");
    assert_eq!(
        refused(&form.body(body.to_string()).send(served.address)),
        "bad_request"
    );
    assert_eq!(served.orders.stats().paused, 0);
    assert_eq!(served.post("act", &body).status, 200);
    assert_eq!(served.orders.stats().paused, 1);
}

#[test]
fn without_permission_it_only_shows() {
    let served = Served::<String>::start(|console| console.allow([Action::Resume]));
    served.send("ann".into(), Work::Fails);
    served.until_in("ann", "halted");
    for action in ["pause", "skip", "retry_now", "purge"] {
        assert_eq!(
            refused(&served.act("ann", action)),
            "not_allowed",
            "{action}"
        );
    }
    assert_eq!(served.find("ann")["state"], "halted");
    assert_eq!(served.get("about").json()["actions"], json!(["resume"]));
    assert_eq!(served.act("ann", "resume").status, 200);
}

/// A console for other machines, asked from one.
fn remote() -> Served {
    let far: SocketAddr = "192.0.2.7:9".parse().unwrap();
    let far = |app: Router| app.layer(Extension(ConnectInfo(far)));
    let set = |console: keylane_console::Builder| {
        console
            .token(TOKEN)
            .remote(["ops.example"])
            .letters("dead", Shelf::with(1))
            .allow(Action::ALL)
    };
    Served::start_with(0, set, far)
}

fn from_page(path: &str) -> Request {
    post(path)
        .host("ops.example")
        .header("origin", "https://ops.example")
        .header("x-keylane-console", "1")
}

#[test]
fn without_a_session_there_is_no_data() {
    let served = remote();
    let sign_in = from_page("session").json(&json!({ "token": TOKEN }));
    let cookie = cookie_of(&sign_in.send(served.address));
    let name = cookie.split('=').next().unwrap();
    let with_token = format!("feed?token={}", TOKEN.replace(' ', "%20"));
    for path in DATA.into_iter().chain([&*with_token]) {
        let plain = get(path).host("ops.example").send(served.address);
        assert_eq!(plain.refusal(), (401, "sign_in".to_owned()), "{path}");
        for (name, value) in [
            ("authorization", format!("Bearer {TOKEN}")),
            ("cookie", format!("{name}={TOKEN}")),
            ("cookie", format!("{name}=")),
            ("cookie", format!("{name}={}", "0".repeat(64))),
        ] {
            let answer = get(path)
                .host("ops.example")
                .header(name, &value)
                .send(served.address);
            assert_eq!(answer.status, 401, "{path} {name}");
        }
    }
    for path in EFFECTS {
        let answer = from_page(path).json(&json!({})).send(served.address);
        assert_eq!(answer.refusal(), (401, "sign_in".to_owned()), "{path}");
    }
    for path in FILES {
        assert_eq!(
            get(path).host("ops.example").send(served.address).status,
            200,
            "{path}"
        );
    }
}

#[test]
fn the_token_is_posted_once_and_a_cookie_stands_for_it() {
    let served = remote();
    let sign_in = |token: &str| {
        from_page("session")
            .json(&json!({ "token": token }))
            .send(served.address)
    };
    assert_eq!(refused(&sign_in("wrong")), "wrong_token");
    assert_eq!(refused(&sign_in(&TOKEN[1..])), "wrong_token");
    let answer = sign_in(TOKEN);
    assert_eq!(answer.status, 204, "{answer:?}");
    let line = answer
        .head
        .lines()
        .find(|line| line.starts_with("set-cookie: "))
        .unwrap();
    for part in [
        "; httponly",
        "; samesite=strict",
        "; secure",
        "; path=/ops/console;",
    ] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert!(!line.contains("domain"), "{line}");
    let cookie = cookie_of(&answer);
    assert!(!cookie.contains(TOKEN) && cookie.len() > 64);
    let about = || {
        get("about")
            .host("ops.example")
            .header("cookie", &cookie)
            .send(served.address)
            .status
    };
    assert_eq!(about(), 200);
    // A foreign page that makes the browser send the cookie gets no further.
    let stolen = get("about").host("ops.example").header("cookie", &cookie);
    let stolen = stolen
        .header("origin", "https://evil.example")
        .send(served.address);
    assert_eq!(refused(&stolen), "foreign_origin");
    let out = Request::new("DELETE", &format!("{AT}/session")).host("ops.example");
    let out = out
        .header("origin", "https://ops.example")
        .header("x-keylane-console", "1");
    assert_eq!(
        out.header("cookie", &cookie).send(served.address).status,
        204
    );
    assert_eq!(about(), 401);
}

#[test]
fn a_feed_ends_with_its_session() {
    let served = Served::<String>::start(|console| console.token(TOKEN));
    let sign_in = served
        .ours(post("session"))
        .json(&json!({ "token": TOKEN }));
    let cookie = cookie_of(&sign_in.send(served.address));
    for path in ["feed", "lanes?dispatcher=orders"] {
        let cookie = if path == "feed" {
            &cookie
        } else {
            &cookie_of(
                &served
                    .ours(post("session"))
                    .json(&json!({ "token": TOKEN }))
                    .send(served.address),
            )
        };
        let path = format!("{AT}/{path}");
        let mut viewer = Stream::open_with(served.address, &path, &format!("cookie: {cookie}\r\n"));
        assert!(viewer.next().is_some() && viewer.next().is_some(), "{path}");
        let out = served.ours(Request::new("DELETE", &format!("{AT}/session")));
        assert_eq!(
            out.header("cookie", cookie).send(served.address).status,
            204
        );
        // An event may have been on its way.
        assert!(
            std::iter::from_fn(|| viewer.next()).take(5).count() <= 1,
            "{path}"
        );
    }
}

/// The cookie that an answer sets, without its attributes.
fn cookie_of(answer: &Answer) -> String {
    let mut lines = answer.head.lines();
    let line = lines.find_map(|line| line.strip_prefix("set-cookie: "));
    line.unwrap().split(';').next().unwrap().to_owned()
}

/// A browser sends each cookie of a host to all of its ports.
#[test]
fn two_consoles_of_one_host_keep_their_own_sessions() {
    let consoles = [remote(), remote()];
    let cookies = consoles.each_ref().map(|served| {
        let sign_in = from_page("session").json(&json!({ "token": TOKEN }));
        cookie_of(&sign_in.send(served.address))
    });
    let names = cookies.each_ref().map(|it| it.split_once('=').unwrap().0);
    assert_ne!(names[0], names[1]);
    let both = cookies.join("; ");
    for served in &consoles {
        let about = get("about").host("ops.example").header("cookie", &both);
        assert_eq!(about.send(served.address).status, 200, "{both}");
    }
}

/// A console for other machines. The header `test-peer` says from which one a request comes.
fn remote_from_many() -> Served {
    let from = async |mut request: extract::Request, next: Next| {
        let peer = request.headers().get("test-peer").unwrap();
        let peer: SocketAddr = peer.to_str().unwrap().parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        next.run(request).await
    };
    let set = |console: keylane_console::Builder| console.token(TOKEN).remote(["ops.example"]);
    Served::start_with(0, set, |app| app.layer(from_fn(from)))
}

#[test]
fn tokens_cannot_be_tried_one_after_the_other_and_lock_no_other_out() {
    let served = remote_from_many();
    let sign_in = |token: &str, peer: &str| {
        let request = from_page("session").header("test-peer", peer);
        request.json(&json!({ "token": token }))
    };
    let guess = |n: u32| format!("a token of many bytez {n}");
    // Each connection has a port of its own.
    let answers: Vec<u16> = (0..12)
        .map(|n| sign_in(&guess(n), &format!("192.0.2.7:{n}")))
        .map(|guess| guess.send(served.address).status)
        .collect();
    assert_eq!(answers, [[403; 10].as_slice(), &[429; 2]].concat());
    let right = sign_in(TOKEN, "192.0.2.7:99").send(served.address);
    assert_eq!(right.status, 429, "the attacker has found it");
    for peer in ["192.0.2.8:1", "127.0.0.1:1"] {
        assert_eq!(sign_in(TOKEN, peer).send(served.address).status, 204);
    }
    // All whom a proxy serves have its address.
    let forwarded = |token: &str, client: &str| {
        let request = sign_in(token, "10.0.0.1:1").header("x-forwarded-for", client);
        request.send(served.address).status
    };
    for n in 0..20 {
        assert_eq!(forwarded(&guess(n), "192.0.2.7"), 403);
    }
    assert_eq!(forwarded(TOKEN, "192.0.2.9"), 204);
}

#[test]
fn every_answer_forbids_what_the_page_does_not_need() {
    let served = local();
    let foreign = get("about").host("evil.example").send(served.address);
    let answers = FILES.map(|path| served.get(path));
    for answer in answers
        .iter()
        .chain([&foreign, &served.get("nothing"), &served.get("about")])
    {
        let head = &answer.head;
        assert!(head.contains("content-security-policy: default-src 'none'; script-src 'self';"));
        assert!(!head.contains("unsafe-"), "{head}");
        for line in [
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "cross-origin-resource-policy: same-origin",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(head.contains(line), "{line} is not in {head}");
        }
        assert!(!head.contains("access-control-allow"), "{head}");
    }
    for answer in &answers {
        let named = answer.body.replace("http://www.w3.org/2000/svg", "");
        assert!(!named.contains("http:") && !named.contains("https:"));
    }
    for inline in ["style=", "onclick", "<style", "<script>", "javascript:"] {
        assert!(!answers[0].body.contains(inline), "{inline}");
    }
    assert!(!answers[2].body.contains("innerHTML"));
}

#[test]
fn the_page_finds_its_files_wherever_it_is_nested() {
    let served = local();
    assert!(served.get("").body.contains("src=\"./console/app.js\""));
    let app = Router::new().nest_service("/deep/er", served.console.router());
    let address = served.runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        address
    });
    for (path, file) in [("/deep/er", "./er/app.js"), ("/deep/er/", "./app.js")] {
        let page = Request::new("GET", path).send(address);
        assert!(
            page.body.contains(&format!("src=\"{file}\"")),
            "{path}: {page:?}"
        );
    }
}

#[test]
fn bytes_that_are_no_request_are_refused() {
    let served = local();
    let large = served.post(
        "find",
        &json!({ "dispatcher": "orders", "key": "k".repeat(300_000) }),
    );
    assert_eq!(refused(&large), "bad_request");
    // A key that is searched for is remembered, also without messages.
    let find = |bytes: usize| json!({ "dispatcher": "orders", "key": "k".repeat(bytes) });
    let long = served.post("find", &find((16 << 10) + 1));
    assert_eq!(long.refusal(), (422, "key_too_long".to_owned()));
    assert_eq!(served.post("find", &find(16 << 10)).status, 200);
    assert_eq!(refused(&served.post("find", &json!([1, 2]))), "bad_request");
    let unknown = json!({ "dispatcher": "orders", "id": "../../x", "action": "purge" });
    assert_eq!(refused(&served.post("act", &unknown)), "unknown_lane");
    let unknown = json!({ "dispatcher": "none", "id": "1", "action": "purge" });
    assert_eq!(refused(&served.post("act", &unknown)), "no_such_dispatcher");
    let unknown = json!({ "dispatcher": "orders", "id": "1", "action": "drop_all" });
    assert_eq!(refused(&served.post("act", &unknown)), "bad_request");
    assert_eq!(
        refused(&served.get("lanes?dispatcher=none")),
        "no_such_dispatcher"
    );
    assert_eq!(refused(&served.get("lanes")), "bad_request");
    assert_eq!(refused(&served.get("app.js/..%2f..%2fetc")), "no_such_page");
    assert_eq!(served.get("about").status, 200);
}
