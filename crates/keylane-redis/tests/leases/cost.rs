//! The costs of leases for the server and for their holder. By hand, in release: `cargo test
//! --release -p keylane-redis --test leases cost -- --ignored --nocapture`

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use keylane_leases::Settings;
use testkit_servers::{Redis, RedisKind};

use crate::support::{execute, store};

/// How long processors have worked for a process.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields = Vec::from_iter(fields.split_whitespace());
    let ticks: u64 = fields[11..13]
        .iter()
        .map(|field| field.parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(ticks * 10)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes, and measures"]
async fn a_hundred_thousand_leases() {
    const COUNT: u32 = 100_000;
    for kind in RedisKind::ALL {
        for log in ["no", "yes"] {
            for ttl in [10, 30].map(Duration::from_secs) {
                let builder = Redis::builder(kind).argument("appendonly", log);
                let server = builder
                    .argument("appendfsync", "everysec")
                    .start()
                    .await
                    .unwrap();
                let store = store(&server.url(), "leases");
                let settings = Settings::new().most(COUNT as usize);
                let leases = keylane_leases::Leases::open_with(store, settings).unwrap();
                let pid = server.pid().unwrap();
                let both = || (processor_time(pid), processor_time(std::process::id()));

                let (server_before, client_before) = both();
                let keys = (0..COUNT).map(|n| format!("account-{n}"));
                let held = try_join_all(keys.map(|key| leases.acquire(key, ttl)));
                let held = held.await.unwrap();
                let (server_after, client_after) = both();
                let each =
                    |after: Duration, before: Duration| (after - before).as_nanos() as f64 / 1e3;
                println!(
                    "{kind}, log {log}, {ttl:?}: acquired for {:.2} us of the server and {:.2} us of \
                     the holder each",
                    each(server_after, server_before) / f64::from(COUNT),
                    each(client_after, client_before) / f64::from(COUNT),
                );

                execute(&server, "CONFIG RESETSTAT").await;
                let (server_before, client_before) = both();
                let began = Instant::now();
                tokio::time::sleep(ttl).await;
                let lasted = began.elapsed();
                let (server_after, client_after) = both();
                held.iter().for_each(|lease| lease.check().unwrap());
                let stats = execute(&server, "INFO commandstats").await;
                let calls = |name: &str| {
                    let line = stats.lines().find(|line| line.starts_with(name)).unwrap();
                    line.split(['=', ','])
                        .nth(1)
                        .unwrap()
                        .parse::<f64>()
                        .unwrap()
                };
                let renewed = calls("cmdstat_pexpireat:");
                let share = |after, before| each(after, before) / lasted.as_secs_f64() / 1e4;
                println!(
                    "  {renewed} renewed in {} calls: {:.2} us of the server and {:.2} us of the \
                     holder each; {:.1} % and {:.1} % of a core",
                    calls("cmdstat_evalsha:"),
                    each(server_after, server_before) / renewed,
                    each(client_after, client_before) / renewed,
                    share(server_after, server_before),
                    share(client_after, client_before),
                );
                println!(
                    "  {}",
                    stats.lines().find(|line| line.contains("evalsha")).unwrap()
                );
                leases.close().await;
            }
        }
    }
}
