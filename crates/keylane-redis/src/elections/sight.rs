//! What those that wait for a change see of an election. Pure.

use keylane_leader::store::{CandidateId, Election, TermRecord, decode};
use keylane_leases::Token;

/// What of an election matters to those that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    /// The token of the lease, if it is held.
    pub(super) token: Option<Token>,
    pub(super) term: Option<TermRecord>,
    pub(super) next: Option<CandidateId>,
}

impl From<&Election> for Sight {
    fn from(election: &Election) -> Self {
        Self {
            token: election.holder.as_ref().map(|holder| holder.token),
            term: election.term.clone(),
            next: election.next.clone(),
        }
    }
}

impl Sight {
    /// Whether a candidate must look, or for `None` a watcher, that has seen the election so, if it
    /// is now as `self`. What the leader does matters to the next candidate alone.
    pub(super) fn concerns(&self, candidate: Option<&CandidateId>, seen: &Self) -> bool {
        let Some(candidate) = candidate else {
            return (self.token, &self.term) != (seen.token, &seen.term);
        };
        let is_next = self.next.as_ref() == Some(candidate);
        let was_next = seen.next.as_ref() == Some(candidate);
        is_next != was_next || is_next && self != seen
    }
}

/// Parses a message: an election as it has become, and its name.
pub(super) fn parse(message: &[u8]) -> Option<(Sight, &[u8])> {
    let mut parts = message.splitn(4, |byte| *byte == b'\n');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let (token, term, next) = (text()?, text()?, text()?);
    let sight = Sight {
        token: some(token, |token| token.parse().ok().map(Token))?,
        term: some(term, decode)?,
        next: some(next, CandidateId::new)?,
    };
    Some((sight, parts.next()?))
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
    use keylane_leader::store::Stage;

    use super::*;

    fn id(name: &str) -> CandidateId {
        CandidateId::new(name).expect("an id")
    }

    fn sight(token: u64, stage: Stage, chosen: Option<&str>, next: &str) -> Sight {
        let term = TermRecord {
            token: Token(token),
            leader: id("leader"),
            stage,
            chosen: chosen.map(id),
        };
        Sight {
            token: Some(Token(token)),
            term: Some(term),
            next: Some(id(next)),
        }
    }

    #[test]
    fn messages_are_parsed() {
        let message = b"7\n7/leader/leaving/b\nb\na name\nof two lines";
        let leaving = sight(7, Stage::Leaving, Some("b"), "b");
        assert_eq!(
            parse(message),
            Some((leaving, &b"a name\nof two lines"[..]))
        );
        let empty = Sight {
            token: None,
            term: None,
            next: None,
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

    #[test]
    fn what_the_leader_does_concerns_the_next_one_alone() {
        let seen = sight(7, Stage::Began, None, "a");
        let free = Sight {
            token: None,
            ..seen.clone()
        };
        let leaving = sight(7, Stage::Leaving, None, "a");
        let chosen = sight(7, Stage::Leaving, Some("b"), "b");
        for (now, concerned) in [
            (&seen, [false, false, false, false]),
            (&free, [true, false, false, true]),
            (&leaving, [true, false, false, true]),
            (&chosen, [true, true, false, true]),
        ] {
            let candidates = [Some(id("a")), Some(id("b")), Some(id("c")), None];
            let found = candidates.map(|one| now.concerns(one.as_ref(), &seen));
            assert_eq!(found, concerned, "{now:?}");
        }
    }
}
