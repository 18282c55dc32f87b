//! The messages about changes. Pure.

use std::time::Duration;

use keylane_leader::store::{CandidateId, Election, Holder, decode};
use keylane_leases::Token;

/// Parses a message: an election as it has become, and its name. It does not say how long the lease
/// lasts.
pub(super) fn parse(message: &[u8]) -> Option<(Election, &[u8])> {
    let mut parts = message.splitn(4, |byte| *byte == b'\n');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let (token, term, next) = (text()?, text()?, text()?);
    let token = some(token, |token| token.parse().ok().map(Token))?;
    let election = Election {
        holder: token.map(|token| Holder {
            token,
            remaining: Duration::ZERO,
        }),
        term: some(term, decode)?,
        next: some(next, CandidateId::new)?,
        revision: 0,
    };
    Some((election, parts.next()?))
}

/// Parses a text that is empty for nothing. Returns `None` if it cannot be parsed.
fn some<'a, T>(text: &'a str, parse: impl FnOnce(&'a str) -> Option<T>) -> Option<Option<T>> {
    match text {
        "" => Some(None),
        text => parse(text).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use keylane_leader::store::{Stage, TermRecord};

    use super::*;

    fn id(name: &str) -> CandidateId {
        CandidateId::new(name).expect("an id")
    }

    #[test]
    fn messages_are_parsed() {
        let message = b"7\n7/leader/leaving/b\nb\na name\nof two lines";
        let leaving = Election {
            holder: Some(Holder {
                token: Token(7),
                remaining: Duration::ZERO,
            }),
            term: Some(TermRecord {
                token: Token(7),
                leader: id("leader"),
                stage: Stage::Leaving,
                chosen: Some(id("b")),
            }),
            next: Some(id("b")),
            revision: 0,
        };
        assert_eq!(
            parse(message),
            Some((leaving, &b"a name\nof two lines"[..]))
        );
        let empty = Election {
            holder: None,
            term: None,
            next: None,
            revision: 0,
        };
        assert_eq!(parse(b"\n\n\n"), Some((empty, &b""[..])));
        for other in [
            "",
            "7",
            "7\n\n",
            "x\n\n\nname",
            "7\n7\nb\nname",
            "7\n\na/b\nname",
        ] {
            assert_eq!(parse(other.as_bytes()), None, "{other:?}");
        }
    }
}
