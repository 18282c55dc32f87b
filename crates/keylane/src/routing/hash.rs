//! The same key always goes to the same lane.

use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;

use crate::random::mix;

/// Returns the lane of a key, one of `lanes` that are numbered from 0. The same key always has the
/// same lane.
///
/// As a key function this is the classic way to keep order: a fixed number of workers, each with a
/// queue of its own. Keys that share a lane wait for each other (*false conflicts*), which does not
/// happen with the key itself as key function. Use this function only where something outside has a
/// fixed number: connections, files, partitions.
///
/// | design | key function |
/// | --- | --- |
/// | one worker | `\|_\| ()` |
/// | a queue and a worker per key | `\|m\| m.user`, with enough [`concurrency`] |
/// | static: worker = hash(key) mod N | `move \|m\| hash_lane(lanes, &m.user)` |
/// | dynamic | `\|m\| m.user` |
///
/// The second and the fourth have the same key function: a lane is the queue and the worker of its
/// key, and exists only while the key has messages.
///
/// [`lane_capacity`](crate::Builder::lane_capacity) is then the length of each worker's queue. At
/// that limit only senders to this lane wait. Behind one router all senders would wait.
///
/// # Growing
///
/// The mapping is *jump consistent hash* (Lamping and Veach, "A fast, minimal memory, consistent
/// hash algorithm", 2014, arXiv 1406.2294). From `n` lanes to `m` more of them, only the share
/// `(m - n) / m` of the keys moves, and only to the new lanes; a remainder would move almost all.
/// Going back to `n` moves only the keys of the lanes that are removed. It takes steps in the order
/// of `ln(lanes)`, and is even for up to 2^31 lanes.
///
/// A key that moves while messages of it are accepted and not settled is in two lanes: [`drain`]
/// the dispatcher before another one with another number of lanes takes its place.
///
/// # The same on every machine
///
/// The output of the key's `Hash` goes through 64-bit FNV-1a, numbers as little-endian bytes and
/// `usize` as 64 bits, and then the mixer of SplitMix64; there is no random seed. So a key has the
/// same lane in every process and with every release of this crate. The output of `Hash` depends on
/// the key's type. The standard library reserves the right to change it for its own types, and
/// writes slices of integers as the machine keeps them. For lane numbers that are stored, or shared
/// with other languages, use a key whose `Hash` you have written yourself.
///
/// # Hostile keys
///
/// The function has no secret. An attacker finds keys of one lane by trying, about `lanes` times
/// for each, and can fill that lane. Where strangers choose keys, use the key itself as key
/// function: the dispatcher hashes it with a random seed ([`hasher`](crate::Builder::hasher)).
///
/// # Panics
///
/// If the key's `Hash` panics.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::num::NonZeroUsize;
/// use keylane::routing::hash_lane;
/// use keylane::Dispatcher;
///
/// const LANES: NonZeroUsize = NonZeroUsize::new(8).expect("it is not zero");
///
/// struct Order { user: String }
///
/// let orders = Dispatcher::builder(|order: &Order| hash_lane(LANES, &order.user))
///     .spawn(|_: Order| async move { Ok::<(), std::io::Error>(()) })?;
/// orders.send(Order { user: "ada".to_owned() }).await?;
///
/// // What waits before Ada's next order?
/// let waiting = orders.inspect(&hash_lane(LANES, "ada"));
/// # drop(waiting);
/// # Ok(())
/// # }
/// ```
///
/// [`concurrency`]: crate::Builder::concurrency
/// [`drain`]: crate::Dispatcher::drain
#[must_use]
pub fn hash_lane<K: Hash + ?Sized>(lanes: NonZeroUsize, key: &K) -> usize {
    lane_of(point_of(key), lanes)
}

/// Where a key lies in the hash space, whatever the number of lanes.
pub(crate) fn point_of<K: Hash + ?Sized>(key: &K) -> u64 {
    let mut bytes = Fnv1a::new();
    key.hash(&mut bytes);
    // The last bytes of a key hardly reach the low half of FNV's result.
    mix(bytes.finish())
}

/// The lane at a point of the hash space: jump consistent hash, as in its paper.
///
/// With more lanes a point stays where it is or goes to one of the new lanes.
pub(crate) fn lane_of(point: u64, lanes: NonZeroUsize) -> usize {
    let lanes = lanes.get() as u64;
    let (mut lane, mut next, mut draws) = (0, 0, point);
    // `next` is the least number of lanes, less one, with which the point leaves `lane`.
    while next < lanes {
        lane = next;
        draws = draws
            .wrapping_mul(2_862_933_555_777_941_757)
            .wrapping_add(1);
        let draw = ((draws >> 33) + 1) as f64 / (1_u64 << 31) as f64;
        next = ((lane + 1) as f64 / draw) as u64;
    }
    lane as usize
}

/// 64-bit FNV-1a (Fowler, Noll and Vo; RFC 9923), with numbers as the same bytes on every machine.
struct Fnv1a(u64);

impl Fnv1a {
    const PRIME: u64 = 0x0000_0100_0000_01B3;

    fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Hasher for Fnv1a {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(Self::PRIME);
        }
    }

    fn write_u16(&mut self, number: u16) {
        self.write(&number.to_le_bytes());
    }

    fn write_u32(&mut self, number: u32) {
        self.write(&number.to_le_bytes());
    }

    fn write_u64(&mut self, number: u64) {
        self.write(&number.to_le_bytes());
    }

    fn write_u128(&mut self, number: u128) {
        self.write(&number.to_le_bytes());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as i64 as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(all(test, not(keylane_shuttle)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lanes(count: usize) -> NonZeroUsize {
        NonZeroUsize::new(count).expect("no test asks for none")
    }

    fn fnv(bytes: &[u8]) -> u64 {
        let mut hasher = Fnv1a::new();
        hasher.write(bytes);
        hasher.finish()
    }

    /// Test vectors of the FNV authors.
    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(fnv(b""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(fnv(b"a"), 0xAF63_DC4C_8601_EC8C);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_F739_67E8);
    }

    /// Test vectors of Guava's `Hashing.consistentHash`, another implementation of the paper.
    #[test]
    fn the_mapping_is_jump_consistent_hash() {
        let of_100 = [
            0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83,
        ];
        for (point, lane) in (0..).zip(of_100) {
            assert_eq!(lane_of(point, lanes(100)), lane, "{point}");
        }
        for (point, count, lane) in [
            (10_863_919_174_838_991, 11, 6),
            (2_016_238_256_797_177_309, 11, 3),
            (1_673_758_223_894_951_030, 11, 5),
            (2, 100_001, 80_343),
            (2_201, 100_001, 22_152),
            (2_202, 100_001, 15_018),
        ] {
            assert_eq!(lane_of(point, lanes(count)), lane, "{point}");
        }
    }

    /// Keys do not move with a release of this crate: the lanes were computed by a program of its
    /// own that shares no code with this. Should the toolchain's `Hash` change what it writes, this
    /// says so.
    #[test]
    fn keys_stay_in_their_lanes() {
        let numbers = [1_u64, 2, 3, 4].map(|key| hash_lane(lanes(8), &key));
        assert_eq!(numbers, [7, 3, 5, 3]);
        let users = ["ada", "bob", "eve", ""].map(|key| hash_lane(lanes(8), key));
        assert_eq!(users, [0, 6, 3, 6]);
        let device = ("eu", 7_u32, Some(-1_i16));
        assert_eq!(hash_lane(lanes(1_000), &device), 801);
    }

    #[test]
    fn an_owned_key_has_the_lane_of_a_borrowed_one() {
        let owned = String::from("ada");
        assert_eq!(point_of(&owned), point_of("ada"));
        assert_eq!(point_of(&&owned), point_of("ada"));
        assert_eq!(point_of(&vec![1_u8, 2]), point_of(&[1_u8, 2][..]));
    }

    #[test]
    fn a_size_is_hashed_as_64_bits() {
        assert_eq!(point_of(&7_usize), point_of(&7_u64));
        assert_eq!(point_of(&-7_isize), point_of(&-7_i64));
    }

    #[test]
    fn one_lane_takes_everything_and_no_number_of_lanes_is_too_large() {
        for point in [0, 1, 1 << 31, 1 << 63, u64::MAX] {
            assert_eq!(lane_of(point, lanes(1)), 0);
            assert!(lane_of(point, NonZeroUsize::MAX) < usize::MAX);
        }
    }

    #[test]
    fn names_with_a_number_at_the_end_are_spread() {
        for count in [2, 3, 8, 64] {
            let names = (0..1_000 * count).map(|n| point_of(&format!("user-{n}")));
            assert_even(count, names);
        }
    }

    proptest! {
        #![proptest_config(testkit_cases::cases(256))]

        #[test]
        fn a_lane_is_one_of_them(point: u64, count in 1..=usize::MAX) {
            prop_assert!(lane_of(point, lanes(count)) < count);
        }

        #[test]
        fn with_more_lanes_a_key_stays_or_goes_to_a_new_one(
            key: u64, few in 1_usize..5_000, more in 0_usize..5_000,
        ) {
            let before = hash_lane(lanes(few), &key);
            let after = hash_lane(lanes(few + more), &key);
            prop_assert!(after == before || after >= few, "{before} -> {after}");
        }
    }

    proptest! {
        #![proptest_config(testkit_cases::cases(24))]

        #[test]
        fn keys_in_any_distance_are_spread(
            first: u64, distance in 1..=u64::MAX, count in 1_usize..32,
        ) {
            let keys = (0..1_000 * count as u64)
                .map(|n| point_of(&first.wrapping_add(n.wrapping_mul(distance))));
            assert_even(count, keys);
        }

        #[test]
        fn growing_moves_the_share_of_the_new_lanes(
            first: u64, few in 1_usize..20, more in 1_usize..20,
        ) {
            const KEYS: u64 = 10_000;
            let moved = (0..KEYS)
                .map(|n| point_of(&first.wrapping_add(n)))
                .filter(|point| lane_of(*point, lanes(few)) != lane_of(*point, lanes(few + more)))
                .count() as f64;
            let expected = KEYS as f64 * more as f64 / (few + more) as f64;
            // Six standard deviations at most.
            prop_assert!((moved - expected).abs() < 300.0, "{moved}, expected {expected}");
        }
    }

    /// Each lane has its share, give or take a fifth: more than six standard deviations.
    fn assert_even(count: usize, points: impl Iterator<Item = u64>) {
        let mut found = vec![0_usize; count];
        for point in points {
            found[lane_of(point, lanes(count))] += 1;
        }
        assert!(found.iter().all(|n| (800..=1_200).contains(n)), "{found:?}");
    }
}
