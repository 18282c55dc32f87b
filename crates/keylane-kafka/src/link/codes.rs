//! What the codes of errors say.

use rdkafka::error::RDKafkaErrorCode;

/// Whether an error says that another member has the static name of this one.
pub(crate) fn is_name_conflict(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(code, Code::FencedInstanceId | Code::UnreleasedInstanceId)
}

/// Whether an error says that a topic of the subscription cannot be read.
pub(super) fn is_about_topic(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::TopicAuthorizationFailed | Code::UnknownTopicOrPartition | Code::UnknownTopic
    )
}
