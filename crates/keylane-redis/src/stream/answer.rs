//! Answers of the server, and the reaction when it cannot answer.

use bytes::Bytes;
use keylane_connector::ErrorKind;
use keylane_source::SourceError;
use redis::Value;

use super::id::EntryId;
use crate::error::RedisError;

/// The fields of an entry, in their order.
pub(super) type Fields = Vec<(Bytes, Bytes)>;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server cannot do it now, and has done nothing: ask again.
    Unable(RedisError),
    /// The server refuses this for the stream until an operator changes something: a key of another
    /// type, a missing right.
    Lasting(RedisError),
    /// The connection has failed: open the source again.
    Failed(RedisError),
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        match error.kind() {
            _ if error.breaks_connection() => Self::Failed(error),
            ErrorKind::Unable => Self::Unable(error),
            _ => Self::Lasting(error),
        }
    }
}

impl Failure {
    /// Returns the failure of a transaction one of whose commands was refused: nothing was done.
    pub(super) fn of_transaction(error: RedisError) -> Self {
        match error.kind() {
            ErrorKind::Denied => error.into(),
            _ => Self::Unable(error),
        }
    }

    /// Returns the failure that this is in a cluster, where another part may be well: the client
    /// finds the nodes again, and another connection would not help.
    pub(super) fn in_cluster(self) -> Self {
        match self {
            Self::Failed(error) if error.is_away() => Self::Unable(error),
            failure => failure,
        }
    }
}

impl From<Failure> for SourceError {
    fn from(failure: Failure) -> Self {
        let (Failure::Unable(error) | Failure::Lasting(error) | Failure::Failed(error)) = failure;
        Self::failed(error)
    }
}

/// The answer comes from another program, or from a later version.
pub(super) fn incomprehensible() -> Failure {
    Failure::Failed(RedisError::new(ErrorKind::Other, "unexpected answer"))
}

pub(super) fn bytes(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(bytes.into()),
        Value::SimpleString(text) => Some(text.into()),
        Value::VerbatimString { text, .. } => Some(text.into()),
        Value::Int(number) => Some(number.to_string().into()),
        _ => None,
    }
}

pub(super) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}

pub(super) fn id(value: &Value) -> Option<EntryId> {
    match value {
        Value::BulkString(bytes) => EntryId::of(bytes),
        Value::SimpleString(text) => EntryId::of(text.as_bytes()),
        _ => None,
    }
}

/// Returns the elements of an array; no element for nil.
pub(super) fn list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Nil => Some(Vec::new()),
        value => value.into_sequence().ok(),
    }
}

/// Returns exactly this many elements.
pub(super) fn tuple<const N: usize>(value: Value) -> Option<[Value; N]> {
    let mut values = list(value)?;
    values.truncate(N);
    values.try_into().ok()
}

pub(super) fn fields(value: Value) -> Option<Fields> {
    let pair = |(name, value)| Some((bytes(name)?, bytes(value)?));
    if let Value::Map(pairs) = value {
        return pairs.into_iter().map(pair).collect();
    }
    let mut flat = list(value)?.into_iter();
    let mut fields = Vec::with_capacity(flat.len() / 2);
    while let Some(name) = flat.next() {
        fields.push(pair((name, flat.next()?))?);
    }
    Some(fields)
}

/// Parses entries in the form of `XRANGE`.
pub(super) fn entries(value: Value) -> Option<Vec<(EntryId, Fields)>> {
    let entry = |value| {
        let [name, body] = tuple(value)?;
        Some((id(&name)?, fields(body)?))
    };
    list(value)?.into_iter().map(entry).collect()
}

/// Parses the entries of the first stream of an answer to `XREADGROUP`.
pub(super) fn read_of_one(value: Value) -> Option<Vec<(EntryId, Fields)>> {
    let first = match value {
        Value::Nil => return Some(Vec::new()),
        Value::Map(streams) => streams.into_iter().next()?.1,
        value => {
            let [stream] = tuple(value)?;
            let [_, entries] = tuple(stream)?;
            entries
        }
    };
    entries(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_read_is_understood_in_both_protocols() {
        let entry = Value::Array(vec![
            text("7-1"),
            Value::Array(vec![text("key"), text("a"), text("payload"), text("")]),
        ]);
        let entries = || Value::Array(vec![entry.clone()]);
        let array = Value::Array(vec![Value::Array(vec![text("orders"), entries()])]);
        let map = Value::Map(vec![(text("orders"), entries())]);
        let expected = vec![(
            "7-1".parse().unwrap(),
            vec![("key".into(), "a".into()), ("payload".into(), Bytes::new())],
        )];
        for answer in [array, map] {
            assert_eq!(read_of_one(answer), Some(expected.clone()));
        }
        assert_eq!(read_of_one(Value::Nil), Some(Vec::new()));
        assert_eq!(read_of_one(Value::Okay), None);
        assert_eq!(fields(Value::Array(vec![text("key")])), None);
    }
}
