//! The offset of a record, as the client has it.

use rdkafka::topic_partition_list::Offset;

pub(super) fn offset(at: u64) -> Offset {
    Offset::Offset(i64::try_from(at).unwrap_or(i64::MAX))
}
