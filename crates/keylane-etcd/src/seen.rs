//! What the answers of etcd say about its data and its leader.

use std::sync::Mutex;

use etcd_client::ResponseHeader;
use keylane_connector::{ErrorKind, lock};

use crate::error::EtcdError;

/// The newest state of etcd that this process has seen.
#[derive(Debug, Default)]
pub(crate) struct Watchman(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    newest: Seen,
    /// The revision that a later call has seen, after the data went back from the newest.
    back_to: Option<i64>,
}

/// A state of etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The revision of the data.
    pub(crate) revision: i64,
    /// The term of the leader: it rises with each election among the servers.
    pub(crate) term: u64,
}

impl Watchman {
    /// Returns the newest state so far: the answer to a call that is sent now is not older.
    pub(crate) fn before(&self) -> Seen {
        lock(&self.0).newest
    }

    /// Takes the head of an answer to a call of which a majority knows. Returns the term.
    ///
    /// # Errors
    ///
    /// If the data went back, then or before: tokens would repeat.
    pub(crate) fn answered(
        &self,
        before: Seen,
        header: Option<&ResponseHeader>,
    ) -> Result<Seen, EtcdError> {
        let answer = Seen::of(header)?;
        lock(&self.0).take(before, answer)?;
        Ok(answer)
    }

    /// Goes on after the data went back: from this state on.
    pub(crate) fn go_on(&self, from: Seen) {
        *lock(&self.0) = State {
            newest: from,
            back_to: None,
        };
    }
}

impl Seen {
    pub(crate) fn of(header: Option<&ResponseHeader>) -> Result<Self, EtcdError> {
        let header = header.ok_or_else(EtcdError::incomprehensible)?;
        Ok(Self {
            revision: header.revision(),
            term: header.raft_term(),
        })
    }
}

impl State {
    fn take(&mut self, before: Seen, answer: Seen) -> Result<(), EtcdError> {
        if answer.revision < before.revision {
            self.back_to.get_or_insert(answer.revision);
        }
        if let Some(is) = self.back_to {
            let was = self.newest.revision;
            return Err(EtcdError::new(
                ErrorKind::Other,
                format!(
                    "the data of etcd went back from revision {was} to {is}, so tokens would \
                     repeat: restore with `--bump-revision`, or start all processes again after \
                     the targets of their writes have forgotten the old tokens"
                ),
            ));
        }
        self.newest.revision = self.newest.revision.max(answer.revision);
        self.newest.term = self.newest.term.max(answer.term);
        Ok(())
    }
}

/// Returns whether the leader that has renewed a lease was the leader until all answers came that
/// followed: `before` is from before the renewal.
///
/// A leader that was deposed, and does not know it yet, confirms renewals that its successor has
/// never seen. The successor counts the lease from its own election. But then a majority knows the
/// term of the successor, and a read of which a majority knows has that term, or the term is not
/// the one before.
pub(crate) fn is_same_leader(before: Seen, after: impl IntoIterator<Item = Seen>) -> bool {
    after.into_iter().all(|seen| seen.term == before.term)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seen(revision: i64, term: u64) -> Seen {
        Seen { revision, term }
    }

    #[test]
    fn data_that_go_back_are_an_error() {
        let mut state = State::default();
        state.take(seen(0, 0), seen(7, 2)).unwrap();
        // Two answers may overtake each other.
        state.take(seen(0, 0), seen(6, 2)).unwrap();
        assert_eq!(state.newest, seen(7, 2));
        let error = state.take(seen(7, 2), seen(6, 3)).unwrap_err();
        assert!(
            error.to_string().contains("from revision 7 to 6"),
            "{error}"
        );
        assert!(!error.is_retryable());
        // Also when the revisions have caught up.
        assert!(state.take(seen(7, 2), seen(9, 3)).is_err());
    }

    #[test]
    fn a_renewal_counts_if_no_election_came_between() {
        assert!(is_same_leader(seen(7, 2), [seen(7, 2), seen(9, 2)]));
        assert!(!is_same_leader(seen(7, 2), [seen(7, 2), seen(9, 3)]));
        // Nothing was seen before the renewal.
        assert!(!is_same_leader(seen(0, 0), [seen(9, 3)]));
    }
}
