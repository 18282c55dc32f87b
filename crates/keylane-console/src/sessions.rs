//! The token, and the sessions of those who have posted it.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a session lasts, and how many there are at most.
const LASTS: Duration = Duration::from_secs(12 * 60 * 60);
const MOST: usize = 64;

/// Wrong tokens are counted for so long.
const MINUTE: Duration = Duration::from_secs(60);

/// After so many wrong tokens of one address, no more tokens of it are looked at until the minute
/// is over.
const MOST_OF_ONE: u32 = 10;

/// The same for the clients of a proxy, and for those without an address of their own: many at
/// once, because one of them must not lock the others out. A token has at least 16 bytes, so this
/// many guesses a minute come no nearer.
const MOST_SHARED: u32 = 1_000;

/// Most addresses that are counted for themselves. Later ones count as shared: a client with very
/// many addresses must not fill the memory.
const MOST_ADDRESSES: usize = 1_024;

/// Whose wrong tokens are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// One client.
    Address(IpAddr),
    /// All clients of a proxy.
    Proxy(IpAddr),
    /// All users and forwarded ports of this machine, and those whose address is not known.
    Shared,
}

impl Client {
    /// By the peer of a request, and whether a proxy has forwarded it. A header in which a proxy
    /// names its client is not believed: a client can write it, too. One that says that it is a
    /// proxy has the count of a proxy at its own address.
    pub(crate) fn of(peer: Option<IpAddr>, is_forwarded: bool) -> Self {
        match peer.map(|peer| peer.to_canonical()) {
            Some(peer) if is_forwarded => Self::Proxy(network(peer)),
            Some(peer) if !peer.is_loopback() => Self::Address(network(peer)),
            _ => Self::Shared,
        }
    }
}

/// A client of IPv6 has at least the addresses of a network of 64 bits.
fn network(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(peer) => IpAddr::V6((peer.to_bits() >> 64 << 64).into()),
    }
}

/// The wrong tokens of the last minute.
#[derive(Default)]
struct Wrong {
    since: Option<Instant>,
    counts: HashMap<Client, u32>,
}

impl Wrong {
    /// The count of one who asks, if it may try one more.
    fn count(&mut self, client: Client, now: Instant) -> Option<&mut u32> {
        if self.since.is_none_or(|since| now - since >= MINUTE) {
            self.counts.clear();
            self.since = Some(now);
        }
        let is_counted = self.counts.len() < MOST_ADDRESSES || self.counts.contains_key(&client);
        let (client, most) = match client {
            Client::Address(_) if is_counted => (client, MOST_OF_ONE),
            Client::Proxy(_) if is_counted => (client, MOST_SHARED),
            _ => (Client::Shared, MOST_SHARED),
        };
        let count = self.counts.entry(client).or_default();
        (*count < most).then_some(count)
    }
}

/// The sessions of one token.
pub(crate) struct Sessions {
    token: String,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// By their secrets.
    sessions: HashMap<String, Session>,
    opened: u64,
    /// How often a session was asked for.
    uses: u64,
    wrong: Wrong,
}

struct Session {
    number: u64,
    began: Instant,
    /// The number of its last use.
    used: u64,
}

/// Why no session was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSession {
    WrongToken,
    TooManyWrong,
    /// The system has no random numbers.
    NoSecret,
}

impl Sessions {
    pub(crate) fn new(token: String) -> Self {
        Self {
            token,
            open: Mutex::default(),
        }
    }

    /// Opens a session, and returns its number and its secret.
    ///
    /// # Errors
    ///
    /// [`NoSession`] says why not.
    pub(crate) fn open(&self, token: &str, client: Client) -> Result<(u64, String), NoSession> {
        let now = Instant::now();
        let mut open = self.lock();
        let count = open.wrong.count(client, now);
        let count = count.ok_or(NoSession::TooManyWrong)?;
        if !same(token.as_bytes(), self.token.as_bytes()) {
            *count += 1;
            return Err(NoSession::WrongToken);
        }
        let secret = secret().ok_or(NoSession::NoSecret)?;
        Ok((open.begin(secret.clone(), now), secret))
    }

    /// The number of an open session, which is used now.
    pub(crate) fn number(&self, secret: &str) -> Option<u64> {
        let mut open = self.lock();
        open.uses += 1;
        let used = open.uses;
        let session = open.sessions.get_mut(secret)?;
        session.used = used;
        (session.began.elapsed() < LASTS).then_some(session.number)
    }

    pub(crate) fn close(&self, secret: &str) {
        self.lock().sessions.remove(secret);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Begins a session, and returns its number. The one that was used longest ago makes room.
    fn begin(&mut self, secret: String, now: Instant) -> u64 {
        self.sessions.retain(|_, it| now - it.began < LASTS);
        if self.sessions.len() >= MOST {
            let idle = self.sessions.iter().min_by_key(|(_, it)| it.used);
            if let Some(idle) = idle.map(|(secret, _)| secret.clone()) {
                self.sessions.remove(&idle);
            }
        }
        self.opened += 1;
        self.uses += 1;
        let session = Session {
            number: self.opened,
            began: now,
            used: self.uses,
        };
        self.sessions.insert(secret, session);
        self.opened
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

/// Compares without a hint, by its time, at how much is right. The length is no secret.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |bits, (a, b)| bits | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differ) == 0
}

fn secret() -> Option<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "correct horse battery";

    #[tokio::test(start_paused = true)]
    async fn the_token_opens_a_session_that_ends() {
        let sessions = Sessions::new(TOKEN.to_owned());
        let (number, secret) = sessions.open(TOKEN, Client::Shared).unwrap();
        let (other, _) = sessions.open(TOKEN, Client::Shared).unwrap();
        assert_eq!((number, other, secret.len()), (1, 2, 64));
        assert_eq!(sessions.number(&secret), Some(1));
        assert_eq!(sessions.number(TOKEN), None);
        assert_eq!(sessions.number(""), None);
        tokio::time::advance(LASTS).await;
        assert_eq!(sessions.number(&secret), None);
        let (_, secret) = sessions.open(TOKEN, Client::Shared).unwrap();
        sessions.close(&secret);
        assert_eq!(sessions.number(&secret), None);
    }

    fn from(peer: &str) -> Client {
        Client::of(Some(peer.parse().unwrap()), false)
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_of_one_address_are_few_and_lock_no_other_out() {
        let sessions = Sessions::new(TOKEN.to_owned());
        let (attacker, operator) = (from("192.0.2.7"), from("192.0.2.8"));
        for n in 0..MOST_OF_ONE {
            let wrong = ["", "correct horse batter", "correct horse batterY"][n as usize % 3];
            assert_eq!(sessions.open(wrong, attacker), Err(NoSession::WrongToken));
        }
        for token in [TOKEN, "wrong"] {
            assert_eq!(sessions.open(token, attacker), Err(NoSession::TooManyWrong));
        }
        assert!(sessions.open(TOKEN, operator).is_ok());
        assert!(sessions.open(TOKEN, Client::Shared).is_ok());
        tokio::time::advance(MINUTE).await;
        assert!(sessions.open(TOKEN, attacker).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_of_all_others_are_many_and_bounded() {
        let sessions = Sessions::new(TOKEN.to_owned());
        // Each address that finds room has its own count.
        let address = |n: usize| from(&format!("10.0.{}.{}", n / 256, n % 256));
        let wrong = |client| sessions.open("wrong", client) == Err(NoSession::WrongToken);
        assert!((0..MOST_ADDRESSES).all(|n| wrong(address(n))));
        let looked_at = (0..2_000).filter(|n| wrong(address(MOST_ADDRESSES + n)));
        assert_eq!(looked_at.count(), MOST_SHARED as usize);
        let open = |client| sessions.open(TOKEN, client).map(|(number, _)| number);
        assert_eq!(open(Client::Shared), Err(NoSession::TooManyWrong));
        assert_eq!(open(address(3)), Ok(1));
        tokio::time::advance(MINUTE).await;
        assert_eq!(open(Client::Shared), Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_says_that_it_is_a_proxy_locks_out_its_own_address_alone() {
        let sessions = Sessions::new(TOKEN.to_owned());
        let proxy = |peer: &str| Client::of(Some(peer.parse().unwrap()), true);
        let wrong = |client| sessions.open("wrong", client) == Err(NoSession::WrongToken);
        let looked_at = (0..2_000).filter(|_| wrong(proxy("192.0.2.7")));
        assert_eq!(looked_at.count(), MOST_SHARED as usize);
        for client in [
            Client::Shared,
            proxy("127.0.0.1"),
            proxy("10.0.0.1"),
            from("192.0.2.8"),
        ] {
            assert!(sessions.open(TOKEN, client).is_ok(), "{client:?}");
        }
    }

    #[test]
    fn an_address_is_counted_for_itself_if_it_is_that_of_one_client() {
        assert_eq!(from("192.0.2.7"), from("::ffff:192.0.2.7"));
        assert_eq!(from("2001:db8::1"), from("2001:db8::ffff:1"));
        assert_ne!(from("2001:db8::1"), from("2001:db8:0:1::1"));
        assert_eq!(from("127.0.0.1"), Client::Shared);
        assert_eq!(from("::1"), Client::Shared);
        assert_eq!(Client::of(None, false), Client::Shared);
        let proxy = [192, 0, 2, 7].into();
        assert_eq!(Client::of(Some(proxy), true), Client::Proxy(proxy));
    }

    #[tokio::test(start_paused = true)]
    async fn the_session_that_was_used_longest_ago_makes_room() {
        let sessions = Sessions::new(TOKEN.to_owned());
        let open = || sessions.open(TOKEN, Client::Shared).unwrap().1;
        let (first, second, third) = (open(), open(), open());
        for _ in 4..=MOST {
            open();
        }
        // The oldest one is that of a viewer.
        assert_eq!(sessions.number(&first), Some(1));
        open();
        assert_eq!(sessions.number(&second), None);
        assert_eq!(sessions.number(&first), Some(1));
        assert_eq!(sessions.number(&third), Some(3));
    }
}
