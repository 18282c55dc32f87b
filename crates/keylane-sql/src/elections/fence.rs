//! Whether a transaction may write for a term.

use keylane_leader::store::{History, Stage};
use keylane_leases::Token;

use super::row::number_of;
use crate::error::FenceError;

/// The last term of an election, whose row is locked.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    pub(super) token: Token,
    pub(super) stage: u8,
    /// The history in which it was recorded.
    pub(super) history: String,
    /// The history of the database.
    pub(super) here: String,
}

/// Judges a transaction that is to write for the term of this token, which was granted in this
/// history. Pure.
pub(super) fn judge(
    recent: Option<Recent>,
    token: Token,
    history: &History,
) -> Result<(), FenceError> {
    let last = recent.as_ref().map(|recent| recent.token);
    let is_it = recent.is_some_and(|recent| {
        let is_here = [&recent.history, &recent.here]
            .into_iter()
            .all(|of| of == history.as_str());
        recent.token == token && is_here && recent.stage < number_of(Stage::Ended)
    });
    match is_it {
        true => Ok(()),
        false => Err(FenceError::Fenced { token, last }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_term_of_this_history_may_write() {
        let recent = |token, stage, history: &str, here: &str| {
            let (history, here) = (history.to_owned(), here.to_owned());
            Some(Recent {
                token: Token(token),
                stage,
                history,
                here,
            })
        };
        let cases = [
            (recent(7, 0, "a", "a"), true),
            (recent(7, 1, "a", "a"), true),
            (recent(7, 2, "a", "a"), false),
            (recent(8, 0, "a", "a"), false),
            (recent(6, 0, "a", "a"), false),
            (recent(7, 0, "b", "b"), false),
            (recent(7, 0, "a", "b"), false),
            (recent(7, 0, "b", "a"), false),
            (None, false),
        ];
        for (recent, may) in cases {
            let judged = judge(recent.clone(), Token(7), &History::new("a"));
            assert_eq!(judged.is_ok(), may, "{recent:?}");
        }
    }
}
