//! What a session has made, and until when it is to stay: pure, time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use keylane_leases::{Owner, Token};

use crate::timetable::Timetable;

/// When to try again to remove a node.
const AGAIN: Duration = Duration::from_millis(500);

/// A lease that was asked for, or granted.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) key: Bytes,
    pub(crate) owner: Owner,
    /// `None` until the server has answered.
    token: Option<Token>,
    /// It was released, or has run out: its nodes are to be removed.
    is_over: bool,
}

/// A node that is removed when its time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The two nodes of a grant of this key.
    Grant(u64, Bytes),
    /// The node of a candidate, by its path.
    Candidate(String),
}

/// The leases and candidates of one session. Nothing in it outlives the session.
#[derive(Debug)]
pub(crate) struct Book {
    grants: Timetable<Grant>,
    /// The last grant of each key.
    granted: HashMap<Bytes, u64>,
    /// Until when each candidate stays, by the path of its node: there are few.
    candidates: HashMap<String, Instant>,
}

impl Book {
    pub(crate) fn new() -> Self {
        Self {
            grants: Timetable::new(),
            granted: HashMap::new(),
            candidates: HashMap::new(),
        }
    }

    /// Records that a lease is about to be asked for, before it is: if the answer never comes, the
    /// lease runs out all the same.
    pub(crate) fn ask(&mut self, number: u64, key: &Bytes, owner: &Owner, ends_at: Instant) {
        let grant = Grant {
            key: key.clone(),
            owner: owner.clone(),
            token: None,
            is_over: false,
        };
        self.grants.insert(number, ends_at, grant);
    }

    /// Records that a lease which was asked for is granted. `instead` is the grant of the same key
    /// that it has replaced: a lease is never shortened by that, if its owner is the same.
    pub(crate) fn grant(
        &mut self,
        number: u64,
        token: Token,
        ends_at: Instant,
        instead: Option<u64>,
    ) {
        let was = instead.and_then(|instead| {
            let (ends_at, grant) = self.grants.get(instead)?;
            let owner = grant.owner.clone();
            self.forget(instead);
            Some((ends_at, owner))
        });
        let Some(grant) = self.grants.get_mut(number) else {
            return;
        };
        grant.token = Some(token);
        let earlier = was.filter(|(_, owner)| *owner == grant.owner);
        let key = grant.key.clone();
        let ends_at = earlier.map_or(ends_at, |(earlier, _)| ends_at.max(earlier));
        self.grants.move_to(number, ends_at);
        self.granted.insert(key, number);
    }

    /// Forgets a grant whose nodes are gone, or were never made.
    pub(crate) fn forget(&mut self, number: u64) {
        if let Some(grant) = self.grants.remove(number)
            && self.granted.get(&grant.key) == Some(&number)
        {
            self.granted.remove(&grant.key);
        }
    }

    /// Returns the grant of a key under this token, if this owner has it, and whether it is over.
    pub(crate) fn find(&self, owner: &Owner, key: &Bytes, token: Token) -> Option<(u64, bool)> {
        let number = self.number(key, token)?;
        let (_, grant) = self.grants.get(number)?;
        (grant.owner == *owner).then_some((number, grant.is_over))
    }

    /// Returns the grant of a key under this token.
    pub(crate) fn number(&self, key: &Bytes, token: Token) -> Option<u64> {
        let number = *self.granted.get(key)?;
        let (_, grant) = self.grants.get(number)?;
        (grant.token == Some(token)).then_some(number)
    }

    /// Returns how long a grant lasts; `None` if it is over.
    pub(crate) fn remaining(&self, number: u64, now: Instant) -> Option<Duration> {
        let (ends_at, grant) = self.grants.get(number)?;
        let remaining = ends_at.saturating_duration_since(now);
        (!grant.is_over && !remaining.is_zero()).then_some(remaining)
    }

    /// Lets a grant last at least until then, while its renewal is in progress. Returns whether it
    /// is held still.
    pub(crate) fn keep(&mut self, number: u64, ends_at: Instant, now: Instant) -> bool {
        if self.remaining(number, now).is_none() {
            return false;
        }
        if let Some((was, _)) = self.grants.get(number) {
            self.grants.move_to(number, was.max(ends_at));
        }
        true
    }

    /// Records that a grant was renewed until then. Returns whether it is held still.
    pub(crate) fn renew(&mut self, number: u64, ends_at: Instant, now: Instant) -> bool {
        let is_held = self.remaining(number, now).is_some();
        if is_held {
            self.grants.move_to(number, ends_at);
        }
        is_held
    }

    /// Ends a grant: its nodes are due at once.
    pub(crate) fn end(&mut self, number: u64, now: Instant) {
        if let Some(grant) = self.grants.get_mut(number) {
            grant.is_over = true;
            self.grants.move_to(number, now);
        }
    }

    /// Keeps a candidate until then.
    pub(crate) fn candidate(&mut self, path: String, ends_at: Instant) {
        self.candidates.insert(path, ends_at);
    }

    /// Forgets a candidate whose node is gone.
    pub(crate) fn forget_candidate(&mut self, path: &str) {
        self.candidates.remove(path);
    }

    /// Returns what is to be removed now. It is due again a little later, unless it is forgotten.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Due> {
        let mut due = Vec::new();
        for number in self.grants.due(now) {
            self.end(number, now);
            self.grants.move_to(number, now + AGAIN);
            if let Some((_, grant)) = self.grants.get(number) {
                due.push(Due::Grant(number, grant.key.clone()));
            }
        }
        let candidates = self.candidates.iter_mut();
        for (path, ends_at) in candidates.filter(|(_, ends_at)| **ends_at <= now) {
            *ends_at = now + AGAIN;
            due.push(Due::Candidate(path.clone()));
        }
        due
    }

    /// Returns when something is due.
    pub(crate) fn first(&self) -> Option<Instant> {
        let candidates = self.candidates.values().copied();
        candidates.chain(self.grants.first()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "key";

    struct Scene {
        book: Book,
        begin: Instant,
        owner: Owner,
    }

    impl Scene {
        fn new() -> Self {
            Self {
                book: Book::new(),
                begin: Instant::now(),
                owner: Owner::random(),
            }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.begin + Duration::from_secs(seconds)
        }

        fn granted(&mut self, number: u64, ends_at: u64, instead: Option<u64>) {
            let ends_at = self.at(ends_at);
            self.book.ask(number, &KEY.into(), &self.owner, ends_at);
            self.book.grant(number, Token(number), ends_at, instead);
        }

        fn held_for(&self, number: u64, at: u64) -> Option<u64> {
            let remaining = self.book.remaining(number, self.at(at));
            remaining.map(|remaining| remaining.as_secs())
        }
    }

    #[test]
    fn a_grant_runs_out_also_if_its_answer_never_came() {
        let mut scene = Scene::new();
        let (ends_at, late) = (scene.at(10), scene.at(10));
        scene.book.ask(1, &KEY.into(), &scene.owner, ends_at);
        assert_eq!(scene.book.first(), Some(ends_at));
        assert_eq!(scene.book.due(scene.at(9)), []);
        assert_eq!(scene.book.due(late), [Due::Grant(1, KEY.into())]);
        assert_eq!(scene.book.due(late), [], "a little later again");
        assert_eq!(scene.book.due(scene.at(12)).len(), 1);
        scene.book.forget(1);
        assert_eq!(scene.book.first(), None);
    }

    #[test]
    fn what_is_over_is_neither_renewed_nor_kept() {
        let mut scene = Scene::new();
        scene.granted(1, 10, None);
        let (five, ten, late) = (scene.at(5), scene.at(10), scene.at(60));
        assert!(scene.book.keep(1, late, five));
        assert_eq!(scene.held_for(1, 10), Some(50));
        assert!(scene.book.renew(1, ten, five), "a renewal may shorten");
        assert!(!scene.book.keep(1, late, ten) && !scene.book.renew(1, late, ten));
        scene.granted(2, 60, None);
        scene.book.end(2, five);
        assert!(!scene.book.keep(2, late, five));
        let over = scene.book.find(&scene.owner, &KEY.into(), Token(2));
        assert_eq!(over, Some((2, true)));
    }

    #[test]
    fn a_candidate_that_is_not_kept_is_due() {
        let mut scene = Scene::new();
        let (five, ten, late) = (scene.at(5), scene.at(10), scene.at(20));
        scene.book.candidate("/a".to_owned(), five);
        assert_eq!(scene.book.first(), Some(five));
        scene.book.candidate("/a".to_owned(), ten);
        assert_eq!(scene.book.due(five), []);
        assert_eq!(scene.book.due(ten), [Due::Candidate("/a".to_owned())]);
        scene.book.forget_candidate("/a");
        assert_eq!(scene.book.due(late), []);
    }

    #[test]
    fn a_new_grant_takes_the_place_of_the_old_one_and_is_no_shorter() {
        let mut scene = Scene::new();
        scene.granted(1, 60, None);
        scene.granted(2, 10, Some(1));
        assert_eq!(scene.held_for(2, 0), Some(60));
        let found = |token| scene.book.find(&scene.owner, &KEY.into(), Token(token));
        assert_eq!((found(1), found(2)), (None, Some((2, false))));
        // Another owner has a time of its own.
        scene.owner = Owner::random();
        scene.granted(3, 10, Some(2));
        assert_eq!(scene.held_for(3, 0), Some(10));
    }
}
