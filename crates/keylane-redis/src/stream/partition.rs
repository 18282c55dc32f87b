//! The partition of a key, and the slot of a name in a cluster.

/// Returns the partition of a key, out of this many: the CRC16 that Redis Cluster uses for its
/// slots (XMODEM: polynomial `0x1021`, beginning with 0), modulo `partitions`.
///
/// It never changes, so producers in other languages can compute it: a client of a cluster has the
/// function. Braces in a key have no meaning here. With 0 partitions the result is 0.
///
/// # Examples
///
/// ```
/// use keylane_redis::partition_of;
///
/// // To which of the streams `orders:0` to `orders:15` does an entry of this user go?
/// let stream = format!("orders:{}", partition_of(b"user-7", 16));
/// assert_eq!(stream, "orders:8");
/// ```
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    u32::from(crc16(key)).checked_rem(partitions).unwrap_or(0)
}

/// Whether two keys are in one slot of a cluster.
pub(super) fn share_slot(one: &[u8], other: &[u8]) -> bool {
    const SLOTS: u16 = 16_384;
    crc16(tag(one)) % SLOTS == crc16(tag(other)) % SLOTS
}

/// Returns the part of a name that is hashed: the text in its first braces, if there is any.
fn tag(name: &[u8]) -> &[u8] {
    let within = || {
        let open = name.iter().position(|byte| *byte == b'{')?;
        let rest = &name[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    };
    within().unwrap_or(name)
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0_u16, |crc, byte| {
        let crc = crc ^ (u16::from(*byte) << 8);
        (0..8).fold(crc, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_redis_cluster() {
        // From the specification of Redis Cluster.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(partition_of(b"123456789", 16_384), 0x31c3);
        assert_eq!(partition_of(b"", 7), 0);
        assert_eq!(partition_of(b"key", 0), 0);
    }

    #[test]
    fn keys_spread_over_all_partitions() {
        let mut counts = [0_u32; 16];
        for key in 0..16_000 {
            counts[partition_of(format!("user-{key}").as_bytes(), 16) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (800..1_200).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn braces_put_names_into_one_slot() {
        assert!(share_slot(b"{orders}:dead", b"orders"));
        assert!(share_slot(b"a{orders}b", b"{orders}:keylane"));
        assert!(!share_slot(b"orders:0", b"orders:1"));
        assert!(!share_slot(b"{}orders", b"orders"));
    }
}
