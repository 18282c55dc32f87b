//! Random faults, and what they may not do.

use std::num::NonZeroU64;

use keylane_testkit::scenario::{MS, Random, cases};
use testkit_servers::proxy::Direction::{ToClient, ToServer};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::*;

const LEN: u32 = 1 << 20;

/// Orders random faults, and in the end none.
async fn disturb(proxy: &Proxy, random: &mut Random, resets: bool) {
    for _ in 0..60 {
        let direction = [ToServer, ToClient][random.below(2) as usize];
        match random.below(if resets { 11 } else { 9 }) {
            0 => proxy.cut(),
            1 => proxy.cut_to_server(),
            2 => proxy.cut_to_client(),
            3 | 4 => proxy.heal(),
            5 | 6 => proxy.delay(direction, random.below(20) as u32 * MS),
            7 => proxy.throttle(direction, NonZeroU64::new(random.below(8 << 20))),
            8 => proxy.refuse(random.one_in(2)),
            9 => proxy.reset_after(direction, random.below(u64::from(LEN))),
            _ if random.one_in(8) => proxy.reset(),
            _ => {}
        }
        tokio::time::sleep(random.below(4) as u32 * MS).await;
    }
    proxy.heal();
    for direction in [ToServer, ToClient] {
        proxy.delay(direction, Duration::ZERO);
        proxy.throttle(direction, None);
    }
}

/// Writes all bytes in pieces of random length. Returns whether it could.
async fn write(mut to: OwnedWriteHalf, bytes: &[u8], mut random: Random) -> bool {
    let mut left = bytes;
    while !left.is_empty() {
        let len = left.len().min(1 + random.below(20_000) as usize);
        if to.write_all(&left[..len]).await.is_err() {
            return false;
        }
        left = &left[len..];
    }
    to.shutdown().await.is_ok()
}

/// Reads to the end. Returns how much has arrived, and whether it ended cleanly.
async fn read(mut from: OwnedReadHalf, bytes: &[u8]) -> (usize, bool) {
    let mut read = Vec::new();
    let ended = from.read_to_end(&mut read).await;
    assert!(bytes.starts_with(&read), "not what was sent");
    (read.len(), ended.is_ok())
}

/// Returns how much has arrived at each end.
async fn run(seed: u64, resets: bool) -> [usize; 2] {
    let mut random = Random::new(seed);
    let rig = Rig::new().await;
    let (client, served) = rig.connect().await;
    let ((client_reads, client_writes), (server_reads, server_writes)) =
        (client.into_split(), served.into_split());
    let question = known_bytes(LEN);
    let answer: Vec<u8> = question.iter().rev().copied().collect();
    for direction in [ToServer, ToClient] {
        rig.proxy.throttle(direction, NonZeroU64::new(8 << 20)); // it lasts as long as the faults
    }
    let (client_wrote, server_wrote, at_server, at_client, ()) = within(async {
        tokio::join!(
            write(client_writes, &question, Random::new(seed + 1)),
            write(server_writes, &answer, Random::new(seed + 2)),
            read(server_reads, &question),
            read(client_reads, &answer),
            disturb(&rig.proxy, &mut random, resets),
        )
    })
    .await;
    // The kernel tells of a reset once: the call that reads, or the one that writes.
    for ((len, ended), wrote) in [(at_server, server_wrote), (at_client, client_wrote)] {
        let (is_whole, is_clean) = (len == LEN as usize, ended && wrote);
        assert!(
            is_whole || !is_clean,
            "seed {seed}: {len} bytes, and a clean end"
        );
        assert!(
            resets || (is_whole && is_clean),
            "seed {seed}: {len} bytes, without a reset"
        );
    }
    rig.open(0).await;
    [at_server.0, at_client.0]
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_reset_all_bytes_arrive() {
    for seed in 0..cases(12).into() {
        run(seed, false).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_resets_what_arrives_is_a_prefix_and_never_ends_cleanly() {
    let mut torn = 0;
    for seed in 100..100 + u64::from(cases(24)) {
        let lens = run(seed, true).await;
        torn += lens
            .iter()
            .filter(|len| (1..LEN as usize).contains(len))
            .count();
    }
    assert!(torn > 10, "only {torn} directions ended in the middle");
}
