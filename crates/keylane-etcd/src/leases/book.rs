//! Which lease of etcd each key is on: pure.
//!
//! The keys of an owner with the same time to live share a *carrier*, which is a lease of etcd. To
//! keep it alive keeps all of them. So a key that its owner has given up would stay for ever with
//! the others: a key that was not renewed, not released, or asked for without an answer. As soon as
//! such a key has outlived its time, the carrier is *abandoned*: it is not kept alive any more, and
//! the keys that are renewed move to a new one. The others end with the old one.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use keylane_leases::{Owner, Token};
use tokio::time::Instant;

/// How often to forget what has ended.
const SWEEP: Duration = Duration::from_secs(60);

/// The id of a lease of etcd.
pub(crate) type CarrierId = i64;

/// The carriers of all owners, and the keys on them.
#[derive(Debug, Default)]
pub(super) struct Book {
    owners: HashMap<Owner, Account>,
    swept: Option<Instant>,
}

/// The carriers and keys of an owner.
#[derive(Debug)]
struct Account {
    /// By their time to live, in seconds.
    carriers: HashMap<u64, Carrier>,
    keys: HashMap<Bytes, Entry>,
    used: Instant,
    longest: u64,
}

#[derive(Debug)]
struct Carrier {
    id: CarrierId,
    /// No key on it was confirmed earlier.
    since: Instant,
}

/// A key that is on a carrier, or may be.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// `None`: it was asked for, without an answer so far.
    token: Option<Token>,
    /// The revision of its last write; `None` while that has no answer.
    written: Option<i64>,
    carrier: CarrierId,
    /// Where a write without an answer may have put it.
    moving: Option<CarrierId>,
    secs: u64,
    /// When the last call was sent that has confirmed it.
    confirmed: Instant,
}

/// Where a key is put: the carrier, and its time to live in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) carrier: CarrierId,
    pub(super) secs: u64,
}

impl Book {
    /// Returns the carrier for this time to live, if there is one that may be kept alive.
    pub(super) fn carrier(&mut self, owner: &Owner, secs: u64, now: Instant) -> Option<CarrierId> {
        self.sweep(now);
        let account = self.owners.get_mut(owner)?;
        account.used = now;
        let carrier = account.carriers.get_mut(&secs)?;
        let id = carrier.id;
        let lasts = Duration::from_secs(secs);
        if carrier.since + lasts < now {
            let on_it = account.keys.values().filter(|entry| entry.is_on(id));
            carrier.since = on_it.map(|entry| entry.confirmed).min().unwrap_or(now);
        }
        if carrier.since + lasts < now {
            account.carriers.remove(&secs);
            let is_left = |entry: &Entry| entry.is_on(id) && entry.has_ended(now);
            account.keys.retain(|_, entry| !is_left(entry));
            return None;
        }
        Some(id)
    }

    /// Records a new carrier.
    pub(super) fn began(&mut self, owner: &Owner, place: Place, now: Instant) {
        let account = self.owners.entry(owner.clone()).or_insert_with(|| Account {
            carriers: HashMap::new(),
            keys: HashMap::new(),
            used: now,
            longest: 0,
        });
        account.used = now;
        account.longest = account.longest.max(place.secs);
        let carrier = Carrier {
            id: place.carrier,
            since: now,
        };
        account.carriers.insert(place.secs, carrier);
    }

    /// Records that etcd does not know a carrier any more.
    pub(super) fn ended(&mut self, owner: &Owner, id: CarrierId) {
        if let Some(account) = self.owners.get_mut(owner) {
            account.carriers.retain(|_, carrier| carrier.id != id);
            account.keys.retain(|_, entry| entry.carrier != id);
        }
    }

    /// Forgets everything: the data of etcd are other ones.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Records that etcd is about to be asked to put a key there. Until there is an answer, it may
    /// be there.
    pub(super) fn asking(&mut self, owner: &Owner, key: &Bytes, place: Place, sent: Instant) {
        let entry = Entry {
            token: None,
            written: None,
            carrier: place.carrier,
            moving: None,
            secs: place.secs,
            confirmed: sent,
        };
        self.keys(owner, |keys| keys.insert(key.clone(), entry));
    }

    /// Records that a key was put there, by a call that was sent then.
    pub(super) fn granted(
        &mut self,
        owner: &Owner,
        key: &Bytes,
        token: Token,
        place: Place,
        sent: Instant,
    ) {
        self.wrote(owner, key, token, revision(token), place, sent);
    }

    /// Records that a key is not held.
    pub(super) fn gone(&mut self, owner: &Owner, key: &Bytes) {
        self.keys(owner, |keys| keys.remove(key));
    }

    /// Records that a key is not held under this token.
    pub(super) fn lost(&mut self, owner: &Owner, key: &Bytes, token: Token) {
        self.keys(owner, |keys| {
            // It may have been granted again meanwhile.
            if keys
                .get(key)
                .is_some_and(|entry| entry.token == Some(token))
            {
                keys.remove(key);
            }
        });
    }

    /// Returns the revision of the last write of a key, if it is known to be on this carrier.
    pub(super) fn written(
        &self,
        owner: &Owner,
        key: &Bytes,
        token: Token,
        carrier: CarrierId,
    ) -> Option<i64> {
        let entry = self.owners.get(owner)?.keys.get(key)?;
        let is_there = entry.token == Some(token) && entry.carrier == carrier;
        entry.written.filter(|_| is_there)
    }

    /// Records that etcd is about to be asked to move a key there.
    ///
    /// Until there is an answer, the write may still come. A later write makes it void, because
    /// each one names the write before it: so the key is written again, and not only looked at.
    pub(super) fn moving(&mut self, owner: &Owner, key: &Bytes, place: Place) {
        self.keys(owner, |keys| {
            if let Some(entry) = keys.get_mut(key) {
                entry.written = None;
                entry.moving = Some(place.carrier);
            }
        });
    }

    /// Records that a key was moved there, by a call that was sent then.
    pub(super) fn wrote(
        &mut self,
        owner: &Owner,
        key: &Bytes,
        token: Token,
        written: i64,
        place: Place,
        sent: Instant,
    ) {
        let entry = Entry {
            token: Some(token),
            written: Some(written),
            carrier: place.carrier,
            moving: None,
            secs: place.secs,
            confirmed: sent,
        };
        self.keys(owner, |keys| keys.insert(key.clone(), entry));
    }

    /// Records that a key is still where it was, by a call that was sent then.
    pub(super) fn confirmed(&mut self, owner: &Owner, key: &Bytes, token: Token, sent: Instant) {
        self.keys(owner, |keys| {
            if let Some(entry) = keys.get_mut(key).filter(|entry| entry.token == Some(token)) {
                entry.confirmed = entry.confirmed.max(sent);
            }
        });
    }

    fn keys<R>(&mut self, owner: &Owner, change: impl FnOnce(&mut HashMap<Bytes, Entry>) -> R) {
        if let Some(account) = self.owners.get_mut(owner) {
            change(&mut account.keys);
        }
    }

    /// Forgets owners that have left, and keys that have ended with their carriers.
    fn sweep(&mut self, now: Instant) {
        if *self.swept.get_or_insert(now) + SWEEP > now {
            return;
        }
        self.swept = Some(now);
        self.owners
            .retain(|_, account| account.used + Duration::from_secs(2 * account.longest) > now);
        for account in self.owners.values_mut() {
            let kept = Vec::from_iter(account.carriers.values().map(|carrier| carrier.id));
            let is_kept = |entry: &Entry| kept.iter().any(|id| entry.is_on(*id));
            account
                .keys
                .retain(|_, entry| is_kept(entry) || !entry.has_ended(now));
        }
    }
}

impl Entry {
    fn is_on(&self, id: CarrierId) -> bool {
        self.carrier == id || self.moving == Some(id)
    }

    fn has_ended(&self, now: Instant) -> bool {
        self.confirmed + Duration::from_secs(self.secs) < now
    }
}

/// Returns the revision that is a token.
pub(crate) fn revision(token: Token) -> i64 {
    // No revision is above the highest number, so no key has this token.
    i64::try_from(token.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place = Place {
        carrier: 1,
        secs: 10,
    };

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// A book with two keys on one carrier.
    fn book(now: Instant) -> (Book, Owner, [Bytes; 2]) {
        let (mut book, owner) = (Book::default(), Owner::random());
        let keys = ["a", "b"].map(Bytes::from_static_str);
        book.began(&owner, HERE, now);
        for key in &keys {
            book.asking(&owner, key, HERE, now);
            book.granted(&owner, key, Token(7), HERE, now);
        }
        (book, owner, keys)
    }

    trait FromStaticStr {
        fn from_static_str(text: &'static str) -> Self;
    }

    impl FromStaticStr for Bytes {
        fn from_static_str(text: &'static str) -> Self {
            Self::from_static(text.as_bytes())
        }
    }

    #[test]
    fn keys_of_one_time_share_a_carrier() {
        let now = Instant::now();
        let (mut book, owner, [a, _]) = book(now);
        assert_eq!(book.carrier(&owner, 10, now), Some(1));
        assert_eq!(book.carrier(&owner, 20, now), None);
        assert_eq!(book.carrier(&Owner::random(), 10, now), None);
        assert_eq!(book.written(&owner, &a, Token(7), 1), Some(7));
        assert_eq!(book.written(&owner, &a, Token(8), 1), None);
        assert_eq!(book.written(&owner, &a, Token(7), 2), None);
    }

    #[test]
    fn a_carrier_is_abandoned_when_a_key_on_it_was_not_renewed() {
        let start = Instant::now();
        let (mut book, owner, [a, b]) = book(start);
        let mut now = start;
        for _ in 0..5 {
            now += secs(4);
            for key in [&a, &b] {
                book.confirmed(&owner, key, Token(7), now);
            }
            assert_eq!(book.carrier(&owner, 10, now), Some(1));
        }
        let given_up = now;
        while now < given_up + secs(8) {
            now += secs(4);
            book.confirmed(&owner, &a, Token(7), now);
            assert_eq!(book.carrier(&owner, 10, now), Some(1));
        }
        now += secs(4);
        assert_eq!(book.carrier(&owner, 10, now), None);
        assert_eq!(book.written(&owner, &b, Token(7), 1), None, "forgotten");
        // The other one moves.
        let there = Place {
            carrier: 2,
            secs: 10,
        };
        book.began(&owner, there, now);
        assert_eq!(book.carrier(&owner, 10, now), Some(2));
        assert_eq!(book.written(&owner, &a, Token(7), 2), None);
        book.wrote(&owner, &a, Token(7), 9, there, now);
        assert_eq!(book.written(&owner, &a, Token(7), 2), Some(9));
    }

    #[test]
    fn a_released_key_abandons_nothing() {
        let now = Instant::now();
        let (mut book, owner, [a, b]) = book(now);
        book.gone(&owner, &b);
        let later = now + secs(9);
        book.confirmed(&owner, &a, Token(7), later);
        assert_eq!(book.carrier(&owner, 10, later + secs(9)), Some(1));
        book.gone(&owner, &a);
        assert_eq!(book.carrier(&owner, 10, later + secs(19)), Some(1), "empty");
    }

    #[test]
    fn a_key_that_was_asked_for_without_an_answer_abandons_its_carrier() {
        let now = Instant::now();
        let (mut book, owner, [a, b]) = book(now);
        book.gone(&owner, &b);
        book.asking(&owner, &b, HERE, now);
        let later = now + secs(11);
        book.confirmed(&owner, &a, Token(7), later);
        assert_eq!(book.carrier(&owner, 10, later), None);
    }

    #[test]
    fn a_write_without_an_answer_is_repeated() {
        let now = Instant::now();
        let (mut book, owner, [a, b]) = book(now);
        let there = Place {
            carrier: 2,
            secs: 20,
        };
        book.began(&owner, there, now);
        book.moving(&owner, &a, there);
        assert_eq!(book.written(&owner, &a, Token(7), 1), None);
        assert_eq!(book.written(&owner, &a, Token(7), 2), None);
        // It may be on either, and is not renewed: neither may be kept alive for long.
        let later = now + secs(21);
        book.confirmed(&owner, &b, Token(7), later);
        assert_eq!(book.carrier(&owner, 10, later), None);
        let mut again = book;
        again.began(&owner, there, now);
        again.moving(&owner, &b, there);
        assert_eq!(again.carrier(&owner, 20, later + secs(21)), None);
    }

    #[test]
    fn what_etcd_does_not_know_is_forgotten() {
        let now = Instant::now();
        let (mut book, owner, [a, _]) = book(now);
        book.ended(&owner, 1);
        assert_eq!(book.carrier(&owner, 10, now), None);
        assert_eq!(book.written(&owner, &a, Token(7), 1), None);
    }

    #[test]
    fn nothing_gathers() {
        let mut now = Instant::now();
        let mut book = Book::default();
        for number in 0..1_000 {
            let owner = Owner::random();
            let place = Place {
                carrier: number,
                secs: 10,
            };
            book.began(&owner, place, now);
            book.asking(&owner, &Bytes::from_static(b"a"), place, now);
            now += secs(1);
            assert_eq!(book.carrier(&owner, 10, now), Some(number));
        }
        assert!(book.owners.len() < 100, "{}", book.owners.len());
        // One owner that stays, with carriers that it abandons.
        let owner = Owner::random();
        for number in 0..1_000 {
            let place = Place {
                carrier: number,
                secs: 10,
            };
            book.began(&owner, place, now);
            let key = Bytes::from(number.to_string());
            book.asking(&owner, &key, place, now);
            now += secs(1);
            let _ = book.carrier(&owner, 10, now);
        }
        let keys = book.owners[&owner].keys.len();
        assert!(keys < 100, "{keys}");
    }
}
