//! The names of candidates' nodes.

use keylane_leader::store::CandidateId;

/// A candidate, as the name of its node says: it comes before those with a higher rank, and of the
/// same rank before those with a higher number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) rank: u16,
    pub(super) number: i64,
    pub(super) session: i64,
    pub(super) id: CandidateId,
    name: String,
}

/// Returns the name of a candidate's node, without the number that the server adds.
pub(super) fn prefix(rank: u16, session: i64, id: &CandidateId) -> String {
    format!("{rank:05}~{session:016x}~{id}~")
}

impl Candidate {
    /// Returns `None` if the node is not that of a candidate.
    pub(super) fn of(name: &str) -> Option<Self> {
        let (rank, rest) = name.split_once('~')?;
        let (session, rest) = rest.split_once('~')?;
        // An id may have this character too.
        let (id, number) = rest.rsplit_once('~')?;
        Some(Self {
            rank: rank.parse().ok()?,
            number: number.parse().ok()?,
            session: u64::from_str_radix(session, 16).ok()?.cast_signed(),
            id: CandidateId::new(id)?,
            name: name.to_owned(),
        })
    }

    /// Returns the path of its node in the folder of its election.
    pub(super) fn path(&self, folder: &str) -> String {
        format!("{folder}/{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for session in [7, -7, i64::MIN] {
            let id = CandidateId::new("a~b~").unwrap();
            let name = format!("{}0000000012", prefix(300, session, &id));
            let candidate = Candidate::of(&name).unwrap();
            assert_eq!((candidate.rank, candidate.number), (300, 12));
            assert_eq!((candidate.session, &candidate.id), (session, &id));
            assert_eq!(candidate.path("/a"), format!("/a/{name}"));
        }
        for other in ["", "a", "1~2~3", "x~7~a~1", "1~x~a~1", "1~7~~1", "1~7~a~x"] {
            assert_eq!(Candidate::of(other), None, "{other}");
        }
    }
}
