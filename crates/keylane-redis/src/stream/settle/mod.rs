//! Settlements on their way to the server.

mod outbox;
pub(super) use outbox::StreamOutbox;

mod sender;
pub(super) use sender::tell;
