//! What the database reads to find the next messages: never a whole table.

use std::time::Duration;

use keylane::source::{Deliveries, Outcome, Settlement, Source};
use keylane_inbox::NewMessage;
use keylane_sql::SourceSettings;
use tokio::time::Instant;

use crate::support::{Kind, Place};

pub(crate) const MESSAGES: usize = 1_000_000;
pub(crate) const KEYS: usize = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_reads_no_table_as_a_whole() {
    let place = Place::new(Kind::Postgres).await;
    // Who opens the first one in a history of the database looks at all.
    drop(place.inbox().await);
    for table in ["messages", "lanes", "keys", "workers"] {
        // Its own idea of a good moment would make this test another one each time.
        let alter = format!("alter table keylane_{table} set (autovacuum_enabled = false)");
        place.execute(alter).await;
    }
    // What the database believes of its tables is wrong at first, and right then.
    let analyze = "analyze keylane_messages, keylane_lanes, keylane_keys, keylane_workers";
    place.execute(analyze).await;
    fill(&place).await;
    for known in ["while they were empty", "now"] {
        if known == "now" {
            place.execute(analyze).await;
        }
        leave_lanes_of_the_dead(&place).await;
        let before = read_by_scans(&place).await;
        consume(&place, 20_000).await;
        let still = "select count(*) from keylane_lanes where worker < 0";
        assert_eq!(place.number(still).await, 0, "they are freed");
        let read = read_by_scans(&place).await - before;
        assert!(
            read < 10_000,
            "looked at {known}: {read} rows by sequential scans"
        );
    }
}

/// Workers that have died with some hundred lanes.
async fn leave_lanes_of_the_dead(place: &Place) {
    let workers = "insert into keylane_workers (id, name, runs_out, history)
        select -n, 'dead', now(), 'another' from generate_series(1, 5) as n
        on conflict (id) do update set runs_out = now()";
    place.execute(workers).await;
    let lanes = "update keylane_lanes set worker = -1 - get_byte(lane, 0) % 5
        where lane in (select lane from keylane_lanes where worker is null order by ready_at desc limit 500)";
    place.execute(lanes).await;
}

async fn fill(place: &Place) {
    let lane = format!("sha256(('key ' || n % {KEYS})::bytea)");
    let messages = format!(
        "insert into keylane_messages (sequence, lane, key, payload)
         select n, {lane}, ('key ' || n % {KEYS})::bytea, 'a payload of some bytes'::bytea
         from generate_series(1, {MESSAGES}) as n"
    );
    place.execute(messages).await;
    let keys = format!(
        "insert into keylane_keys (lane, last) select {lane}, n from generate_series(0, {KEYS} - 1) as n"
    );
    place.execute(keys).await;
    place
        .execute(
            "insert into keylane_lanes (lane, ready_at)
             select lane, now() - interval '1 minute' + last * interval '100 microseconds'
             from keylane_keys",
        )
        .await;
    let sequence = format!("select setval('keylane_sequence', {MESSAGES})");
    place.execute(sequence).await;
}

/// Takes messages, and settles them as done; meanwhile others are accepted.
pub(crate) async fn consume(place: &Place, count: usize) {
    let place = Place::at(place.kind, place.address.clone()).await;
    let inbox = place.inbox().await;
    let mut source = inbox.source_with(SourceSettings::new());
    source.open().await.unwrap();
    let mut handed = 0;
    while handed < count {
        let until = Instant::now() + Duration::from_secs(10);
        let mut into = Deliveries::new(2_048, until);
        source.receive(&mut into).await.unwrap();
        let taken = into.take();
        assert!(!taken.is_empty(), "there are a million");
        handed += taken.len();
        let key = format!("key {}", handed % KEYS);
        inbox
            .inbox()
            .accept_message(NewMessage::new(key, "one more"))
            .await
            .unwrap();
        let done: Vec<_> = (taken.into_iter())
            .map(|delivery| Settlement::new(delivery.position, Outcome::Done))
            .collect();
        source.settle(&done).await.unwrap();
    }
    // Meanwhile dead workers are looked for.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    source.close().await.unwrap();
    place.database.close().await;
}

/// Rows that were read by sequential scans of the tables on the way of a claim.
async fn read_by_scans(place: &Place) -> i64 {
    // What a connection has read is counted a moment after it has ended.
    tokio::time::sleep(Duration::from_secs(1)).await;
    place
        .number(
            "select sum(seq_tup_read)::bigint from pg_stat_user_tables
             where relname in ('keylane_messages', 'keylane_lanes', 'keylane_keys')",
        )
        .await
}
