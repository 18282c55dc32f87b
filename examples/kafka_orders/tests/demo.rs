//! The command, as its first reader would start it, with fewer orders; no terminal is there.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use keylane::source::RawMessage;
use keylane_kafka::Producer;
use testkit_servers::Kafka;

fn example() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kafka_orders"))
}

fn started(arguments: &[&str]) -> (Output, String, String) {
    let output = example().args(arguments).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    (output, said, errors)
}

#[test]
fn the_order_is_proved_over_a_join_and_a_kill() {
    let (output, said, errors) = started(&["--demo", "--orders", "4000"]);
    assert!(output.status.success(), "{said}{errors}");
    let parts = [
        "3 workers begin",
        "worker 4 joins",
        "worker 4 has partitions",
        "is killed (SIGKILL)",
        "lanes in work",
        "held back by",
        "lost            0 of 4,000\n",
        "reordered       0, by the first handling, for 200 customers\n",
        "at once         0 of a customer, over all processes\n",
        "without reason  0\n",
        "verdict         the order is proved\n",
    ];
    for part in parts {
        assert!(said.contains(part), "without {part:?}: {said}");
    }
}

#[test]
fn help_and_bad_arguments_are_answered() {
    let (output, said, _) = started(&["--help"]);
    assert!(output.status.success());
    for option in [
        "--demo",
        "--orders",
        "--keys",
        "--seed",
        "--work",
        "--brokers",
        "--property",
    ] {
        assert!(said.contains(option), "without {option}: {said}");
    }
    let mut lines = said.lines();
    assert!(
        lines.all(|line| !line.trim().starts_with("worker")),
        "{said}"
    );
    let bad: [&[&str]; 7] = [
        &[],
        &["--demo", "--orders", "7"],
        &["--demo", "--keys", "x"],
        &["--brokers", "localhost:9092"],
        &["--demo", "--topic", "orders"],
        &["--demo", "--brokers", "b:1", "--topic", "t", "--group", "g"],
        &["--brokers", "b:1", "--topic", "", "--group", "g"],
    ];
    for bad in bad {
        let (output, _, errors) = started(bad);
        assert_eq!(output.status.code(), Some(2), "{bad:?}: {errors}");
        assert!(errors.contains("error: "), "{bad:?}: {errors}");
    }
}

#[test]
fn a_broker_that_cannot_be_reached_is_told() {
    let there = ["--brokers", "127.0.0.1:1", "--topic", "t", "--group", "g"];
    let unknown = [&there[..], &["--property", "no.such=secret"]].concat();
    let (output, _, errors) = started(&unknown);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("`no.such`") && !errors.contains("secret"),
        "{errors}"
    );
    let (output, _, errors) = started(&there);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("no broker answers at 127.0.0.1:1"),
        "{errors}"
    );
}

/// Until Ctrl-C, and the next time it goes on behind what it has committed.
#[tokio::test]
async fn a_topic_of_yours_is_consumed_and_committed() {
    let kafka = Kafka::start().await.expect("Java and Kafka are installed");
    let brokers = kafka.bootstrap();
    let there = ["--bootstrap-server", &brokers, "--create"];
    let create = [&there[..], &["--topic", "mine", "--partitions", "2"]].concat();
    let class = "org.apache.kafka.tools.TopicCommand";
    kafka.tool(class, create, "").await.expect("a topic");
    let producer = Producer::builder(&brokers).build().expect("a producer");
    for number in 0..40 {
        let record = RawMessage::new("a record").key(format!("key {}", number % 5));
        producer.send("mine", &record).await.expect("it is written");
    }
    for received in [40, 0] {
        let mut child = example()
            .args(["--brokers", &brokers, "--topic", "mine", "--group", "g"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = child.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        assert_eq!(the_console(&mut lines).status, 200);
        assert!(lines.any(|line| line.contains(", lag 0, ")));
        // A partition, with the member that has it.
        assert!(lines.any(|line| line.split_whitespace().nth(1) == Some("this")));
        let id = child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status();
        assert!(sent.expect("`kill` is there").success());
        let rest: Vec<_> = lines.collect();
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{rest:?}");
        let report = format!("{received} received = {received} acked + 0 dead-lettered");
        let is_report = |line: &String| line.starts_with(&report);
        assert!(rest.iter().any(is_report), "{rest:?}");
    }
    let (output, _, errors) = started(&["--brokers", &brokers, "--topic", "no", "--group", "g"]);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("there is no topic no at "), "{errors}");
}

/// Ctrl-C in the middle ends the workers and the broker.
#[test]
fn nothing_is_left_after_an_interruption() {
    let folder = temporary();
    let mut child = example()
        .arg("--demo")
        .env("TMPDIR", &folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let output = child.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    assert_eq!(the_console(&mut lines).status, 200);
    assert!(lines.any(|line| line.ends_with("workers begin")));
    let id = child.id().to_string();
    let processes = descendants(&id);
    assert!(processes.len() >= 4, "{processes:?}");
    let sent = Command::new("kill").args(["-INT", &id]).status();
    assert!(sent.expect("`kill` is there").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(2));
    let since = Instant::now();
    let is_left = || {
        let mut left = std::fs::read_dir(&folder).expect("it is there");
        processes.iter().any(|id| runs(id)) || left.next().is_some()
    };
    while is_left() {
        assert!(since.elapsed() < Duration::from_secs(20), "{processes:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::remove_dir(&folder).expect("it is ours");
}

/// A process that has ended stays in `/proc`, as a zombie, until its parent has asked for its status. Where
/// the parent has ended, that is the first process of the system, and in a container it may never ask.
fn runs(id: &str) -> bool {
    let stat = Path::new("/proc").join(id).join("stat");
    let stat = std::fs::read_to_string(stat).unwrap_or_default();
    // The name of the program comes before the state, and may have spaces and brackets in it.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| !state.starts_with(['Z', 'X']))
}

/// Asks for the page of the console whose address is said first.
fn the_console(lines: &mut impl Iterator<Item = String>) -> testkit_browser::Answer {
    let mut words = lines.flat_map(|line| {
        let words = line.split(' ').map(str::to_owned);
        words.collect::<Vec<_>>()
    });
    let address = words.find_map(|word| word.strip_prefix("http://").map(str::to_owned));
    let address = address.expect("an address").parse().expect("an address");
    let answer = testkit_browser::Request::new("GET", "/").send(address);
    assert!(answer.body.contains("keylane console"), "{answer:?}");
    answer
}

fn temporary() -> PathBuf {
    let name = format!("kafka-orders-test-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).expect("it is new");
    folder
}

/// The processes that this one has started, and those that they have started.
fn descendants(id: &str) -> Vec<String> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{id}/task")) else {
        return Vec::new();
    };
    let children = threads
        .flatten()
        .map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let mut all = Vec::new();
    for child in children.collect::<String>().split_whitespace() {
        all.push(child.to_owned());
        all.extend(descendants(child));
    }
    all
}
