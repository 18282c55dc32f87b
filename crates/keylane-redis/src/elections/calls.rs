//! The scripts of elections, and their answers.

use std::sync::LazyLock;
use std::time::Duration;

use keylane_leader::store::{CandidateId, Election, Holder, decode};
use keylane_leases::Token;
use redis::Value;

use crate::script::Script;

/// What takes no memory, or little for each election, goes on where there is none.
const FRUGAL: &str = "#!lua flags=allow-oom\n";
const COMMON: &str = include_str!("lua/common.lua");
const HISTORY_OF: &str = include_str!("lua/history.lua");

macro_rules! scripts {
    ($($name:ident: $($part:expr),+;)*) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(&[$($part),+]));)*
    };
}

scripts! {
    ENTER: "#!lua\n", COMMON, include_str!("lua/enter.lua");
    LOOK: FRUGAL, COMMON, include_str!("lua/look.lua");
    WITHDRAW: FRUGAL, COMMON, include_str!("lua/withdraw.lua");
    RECORD: FRUGAL, COMMON, include_str!("lua/record.lua");
    RELEASE: FRUGAL, COMMON, include_str!("lua/release.lua");
    HISTORY: "#!lua flags=no-writes\n", HISTORY_OF, include_str!("lua/history_now.lua");
    FENCED: "#!lua\n", HISTORY_OF, include_str!("lua/fenced.lua");
}

/// Reads an election. Returns `None` for what is not from these scripts.
pub(super) fn election(answer: &Value) -> Option<Election> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [token, left, term, next] = &parts[..] else {
        return None;
    };
    let holder = match (text(token)?, left) {
        (None, _) => None,
        (Some(token), Value::Int(left)) => Some(Holder {
            token: Token(token.parse().ok()?),
            remaining: Duration::from_millis(u64::try_from(*left).ok()?),
        }),
        _ => return None,
    };
    Some(Election {
        holder,
        term: match text(term)? {
            None => None,
            Some(term) => Some(decode(term)?),
        },
        next: match text(next)? {
            None => None,
            Some(next) => Some(CandidateId::new(next)?),
        },
        revision: 0,
    })
}

/// Reads a text that may not be there.
pub(super) fn text(answer: &Value) -> Option<Option<&str>> {
    match answer {
        Value::Nil => Some(None),
        Value::BulkString(text) => Some(Some(std::str::from_utf8(text).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use keylane_leader::store::{Stage, TermRecord};

    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn answers_are_elections() {
        let nothing = Value::Array(vec![Value::Nil, Value::Nil, Value::Nil, Value::Nil]);
        let empty = election(&nothing).expect("an election");
        assert_eq!((empty.holder, empty.term, empty.next), (None, None, None));
        let token = Token(u64::MAX);
        let (held, term) = (token.to_string(), format!("{token}/a/ended/"));
        let all = Value::Array(vec![bulk(&held), Value::Int(7), bulk(&term), bulk("b")]);
        let all = election(&all).expect("an election");
        let remaining = Duration::from_millis(7);
        assert_eq!(all.holder, Some(Holder { token, remaining }));
        let leader = CandidateId::new("a").expect("an id");
        let stage = Stage::Ended;
        let ended = TermRecord {
            token,
            leader,
            stage,
            chosen: None,
        };
        assert_eq!(all.term, Some(ended));
        assert_eq!(all.next, CandidateId::new("b"));
        // It is never taken for an election without a holder, or without a term.
        for strange in [
            Value::Nil,
            Value::Array(vec![Value::Nil, Value::Nil, Value::Nil]),
            Value::Array(vec![bulk("7"), Value::Nil, Value::Nil, Value::Nil]),
            Value::Array(vec![Value::Nil, Value::Nil, bulk("7"), Value::Nil]),
            Value::Array(vec![Value::Nil, Value::Nil, Value::Nil, bulk("a/b")]),
        ] {
            assert_eq!(election(&strange), None, "{strange:?}");
        }
    }
}
