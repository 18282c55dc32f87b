//! What the codes of errors say.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// The codes by which a broker refuses a user.
pub(crate) const REFUSALS: [RDKafkaErrorCode; 5] = [
    RDKafkaErrorCode::TopicAuthorizationFailed,
    RDKafkaErrorCode::GroupAuthorizationFailed,
    RDKafkaErrorCode::ClusterAuthorizationFailed,
    RDKafkaErrorCode::SaslAuthenticationFailed,
    RDKafkaErrorCode::Authentication,
];

/// Whether an error says that another member has the static name of this one.
pub(crate) fn is_name_conflict(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(code, Code::FencedInstanceId | Code::UnreleasedInstanceId)
}

/// Whether an error says that a topic does not exist.
pub(crate) fn is_missing_topic(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    let code = error.rdkafka_error_code();
    code.is_some_and(|code| matches!(code, Code::UnknownTopicOrPartition | Code::UnknownTopic))
}

/// Whether an error says that a group takes no commit from a client that is not one of its members.
pub(crate) fn is_group_in_use(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    let code = error.rdkafka_error_code();
    code.is_some_and(|code| {
        matches!(
            code,
            Code::UnknownMemberId | Code::IllegalGeneration | Code::RebalanceInProgress
        )
    })
}

/// Whether an error says that a topic of the subscription cannot be read.
pub(super) fn is_about_topic(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::TopicAuthorizationFailed | Code::UnknownTopicOrPartition | Code::UnknownTopic
    )
}

/// Whether a broker has not answered.
pub(crate) fn is_silence(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    if matches!(error, KafkaError::NoMessageReceived) {
        return true;
    }
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::OperationTimedOut
                | Code::BrokerTransportFailure
                | Code::RequestTimedOut
                // The client has found another address of the broker meanwhile.
                | Code::DestroyBroker
        )
    )
}
