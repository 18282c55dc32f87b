//! The programs on PostgreSQL and MariaDB.

use std::time::Duration;

use testkit_servers::{MariaDb, Postgres};
use tokio::time::{sleep, timeout};

use crate::program::{Program, program};

#[tokio::test]
async fn each_payment_is_booked_once_although_its_process_is_killed() {
    let server = Postgres::start().await.unwrap();
    let url = server.create_database().await.unwrap();
    let name = url.rsplit('/').next().unwrap();
    let run = async |sql: &str| server.execute(name, sql).await.unwrap();
    kill_and_start_again(program!("sql_once"), &url, run).await;
    let sums = "select string_agg(name || ' ' || cents, ', ' order by name) from accounts";
    assert_eq!(run(sums).await.trim(), "ada 400, bob 198");
}

#[tokio::test]
async fn each_payment_in_mariadb_is_booked_once_too() {
    let server = MariaDb::start().await.unwrap();
    let url = server.create_database().await.unwrap();
    let name = url.rsplit('/').next().unwrap();
    let run = async |sql: &str| server.execute(name, sql).await.unwrap();
    kill_and_start_again(program!("mysql_once"), &url, run).await;
    let sums = "select group_concat(name, ' ', cents order by name separator ', ') from accounts";
    let sums = run(sums).await;
    assert!(sums.contains("ada 400, bob 198"), "{sums}");
}

/// Three payments twice, and a kill between.
async fn kill_and_start_again(path: &str, url: &str, run: impl AsyncFn(&str) -> String) {
    let mut killed = Program::start(path, ("DATABASE_URL", url));
    killed.until("the payments are accepted").await;
    killed.kill().await;

    let mut program = Program::start(path, ("DATABASE_URL", url));
    program.until("the payments are accepted").await;
    let all_handled = async {
        let left = "select concat('left: ', count(*)) from keylane_messages";
        while !run(left).await.trim().ends_with("left: 0") {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(60), all_handled)
        .await
        .expect("all payments are handled");
    program.stop().await;
}
