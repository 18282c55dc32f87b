//! The program on PostgreSQL.

use std::time::Duration;

use testkit_servers::Postgres;
use tokio::time::{sleep, timeout};

use crate::program::{Program, program};

#[tokio::test]
async fn each_payment_is_booked_once_although_its_process_is_killed() {
    let server = Postgres::start().await.unwrap();
    let url = server.create_database().await.unwrap();
    let name = url.rsplit('/').next().unwrap();
    let mut killed = Program::start(program!("sql_once"), ("DATABASE_URL", &url));
    killed.until("the payments are accepted").await;
    killed.kill().await;

    let mut program = Program::start(program!("sql_once"), ("DATABASE_URL", &url));
    program.until("the payments are accepted").await;
    let all_handled = async {
        let count = "select count(*) from keylane_messages";
        while server.execute(name, count).await.unwrap().trim() != "0" {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(60), all_handled)
        .await
        .expect("all payments are handled");
    program.stop().await;
    let sums = "select string_agg(name || ' ' || cents, ', ' order by name) from accounts";
    let sums = server.execute(name, sums).await.unwrap();
    assert_eq!(sums.trim(), "ada 400, bob 198");
}
