//! The token, and the sessions of those who have posted it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a session lasts, and how many there are at most.
const LASTS: Duration = Duration::from_secs(12 * 60 * 60);
const MOST: usize = 64;

/// So many wrong tokens in a minute, and no more tokens are looked at until it is over.
const MOST_WRONG: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// The sessions of one token.
pub(crate) struct Sessions {
    token: String,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// By their secrets: number and start.
    sessions: HashMap<String, (u64, Instant)>,
    opened: u64,
    wrong: u32,
    wrong_since: Option<Instant>,
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
    pub(crate) fn open(&self, token: &str) -> Result<(u64, String), NoSession> {
        let now = Instant::now();
        let mut open = self.lock();
        if open.wrong_since.is_none_or(|since| now - since >= MINUTE) {
            (open.wrong, open.wrong_since) = (0, Some(now));
        }
        if open.wrong >= MOST_WRONG {
            return Err(NoSession::TooManyWrong);
        }
        if !same(token.as_bytes(), self.token.as_bytes()) {
            open.wrong += 1;
            return Err(NoSession::WrongToken);
        }
        let secret = secret().ok_or(NoSession::NoSecret)?;
        open.sessions.retain(|_, (_, began)| now - *began < LASTS);
        if open.sessions.len() >= MOST {
            let oldest = open.sessions.iter().min_by_key(|(_, (number, _))| *number);
            if let Some(oldest) = oldest.map(|(secret, _)| secret.clone()) {
                open.sessions.remove(&oldest);
            }
        }
        open.opened += 1;
        let number = open.opened;
        open.sessions.insert(secret.clone(), (number, now));
        Ok((number, secret))
    }

    /// The number of an open session.
    pub(crate) fn number(&self, secret: &str) -> Option<u64> {
        let open = self.lock();
        let (number, began) = open.sessions.get(secret)?;
        (began.elapsed() < LASTS).then_some(*number)
    }

    pub(crate) fn close(&self, secret: &str) {
        self.lock().sessions.remove(secret);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (number, secret) = sessions.open(TOKEN).unwrap();
        let (other, _) = sessions.open(TOKEN).unwrap();
        assert_eq!((number, other, secret.len()), (1, 2, 64));
        assert_eq!(sessions.number(&secret), Some(1));
        assert_eq!(sessions.number(TOKEN), None);
        assert_eq!(sessions.number(""), None);
        tokio::time::advance(LASTS).await;
        assert_eq!(sessions.number(&secret), None);
        let (_, secret) = sessions.open(TOKEN).unwrap();
        sessions.close(&secret);
        assert_eq!(sessions.number(&secret), None);
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_are_few() {
        let sessions = Sessions::new(TOKEN.to_owned());
        for n in 0..MOST_WRONG {
            let wrong = ["", "correct horse batter", "correct horse batterY"][n as usize % 3];
            assert_eq!(sessions.open(wrong), Err(NoSession::WrongToken));
        }
        assert_eq!(sessions.open(TOKEN), Err(NoSession::TooManyWrong));
        tokio::time::advance(MINUTE).await;
        assert!(sessions.open(TOKEN).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_session_makes_room() {
        let sessions = Sessions::new(TOKEN.to_owned());
        let first = sessions.open(TOKEN).unwrap().1;
        let second = sessions.open(TOKEN).unwrap().1;
        for _ in 2..=MOST {
            sessions.open(TOKEN).unwrap();
        }
        assert_eq!(sessions.number(&first), None);
        assert_eq!(sessions.number(&second), Some(2));
    }
}
