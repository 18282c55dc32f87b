//! What MariaDB reads to find the next messages: never a whole table.

use tokio::time::Instant;

use crate::plans::{KEYS, MESSAGES, consume};
use crate::support::{Kind, Place};

const TABLES: [&str; 4] = ["messages", "lanes", "keys", "workers"];

/// Also where the database takes its tables for empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_reads_no_table_as_a_whole() {
    for is_known in [false, true] {
        let place = Place::new(Kind::MariaDb).await;
        // Who opens the first one in a history of the database looks at all.
        drop(place.inbox().await);
        for table in TABLES {
            // Its own idea of a good moment would make this test another one each time.
            let alter = format!(
                "alter table keylane_{table} stats_persistent = 1, stats_auto_recalc = 0;
                 analyze table keylane_{table}"
            );
            place.execute(alter).await;
        }
        fill(&place).await;
        if is_known {
            let analyze = TABLES.map(|table| format!("analyze table keylane_{table}"));
            place.execute(analyze.join(";")).await;
        }
        place.execute("set global userstat = 1").await;
        let before = rows_read(&place).await;
        let began = Instant::now();
        consume(&place, 20_000).await;
        let read = rows_read(&place).await - before;
        println!(
            "is_known {is_known}: {read} rows read, {:?}",
            began.elapsed()
        );
        assert!(read < 1_000_000, "is_known {is_known}: {read} rows read");
    }
}

async fn fill(place: &Place) {
    let numbers = format!("seq_0_to_{}", KEYS - 1);
    let lane = "unhex(sha2(concat('key ', seq), 256))";
    place
        .execute(format!(
            "insert into keylane_keys (lane, last, redriven) select {lane}, 2, 0 from {numbers};
             insert into keylane_lanes (lane, ready_at)
             select {lane}, utc_timestamp(6) - interval 1 minute + interval seq * 100 microsecond
             from {numbers}"
        ))
        .await;
    for _ in 0..MESSAGES / KEYS {
        place
            .execute(format!(
                "insert into keylane_messages (lane, `key`, payload, payload_bytes, accepted_at)
                 select {lane}, concat('key ', seq), 'a payload of some bytes', 23, utc_timestamp(6)
                 from {numbers}"
            ))
            .await;
    }
}

/// Rows that were read of the tables on the way of a claim.
async fn rows_read(place: &Place) -> i64 {
    place
        .number(
            "select cast(coalesce(sum(rows_read), 0) as signed)
             from information_schema.table_statistics
             where table_schema = database()
               and table_name in ('keylane_messages', 'keylane_lanes', 'keylane_keys')",
        )
        .await
}
