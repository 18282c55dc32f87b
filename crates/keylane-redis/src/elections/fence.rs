//! Writes that only the leader of a term can make.

use std::fmt;

use keylane_connector::ErrorKind;
use keylane_leader::store::History;
use keylane_leases::Token;
use keylane_rt::text_in_debug;
use redis::Cmd;
use thiserror::Error;

use super::calls::FENCED;
use crate::error::RedisError;
use crate::link::Link;
use crate::reconnecting_link::ReconnectingLink;

/// The most words of one write: a script passes those of a command on at once.
const MOST_WORDS: usize = 4_000;

/// Commands that the server executes only if the term is still the last one of its election:
/// [`RedisElections::fence`](crate::RedisElections::fence).
///
/// The record of the term and the commands are in one script. So once the next leader has recorded
/// its term, no write of this one is executed, however late it comes. The same is true once this
/// term is recorded as ended.
///
/// # Limits
///
/// - In a cluster, all keys must be in the slot of the elections: for elections of `{shop}jobs`,
///   keys that have the tag `{shop}`. Otherwise the server answers `CROSSSLOT`.
/// - Nothing is undone: if a command fails, those before it stay.
/// - After an error of the connection it is not known whether the commands were executed. They are
///   not sent again; in a cluster the client may do that, and execute them twice.
/// - The fence is as durable as the server. A replica that is promoted may lack the record of the
///   next term, and so may a server that has lost the end of its log. Set the
///   [`history`](Self::history): the server has another one then, and refuses. A primary that is
///   cut off and does not know it goes on with its own data, and executes writes that are lost
///   with it.
#[must_use = "nothing is written before `run`"]
pub struct Fence<'a> {
    link: &'a ReconnectingLink,
    /// The key of the record.
    record: Vec<u8>,
    token: Token,
    history: String,
    /// The keys of the commands, and their names with the number of the words behind the key and
    /// these words.
    keys: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

/// Why a fenced write failed.
#[non_exhaustive]
#[derive(Clone, Error)]
pub enum FenceError {
    /// The term is over, or the server is in another history. Nothing was written.
    #[error("the term is over: stop leading")]
    Fenced,
    /// The server cannot be asked, or refuses. Some or all may be written.
    #[error(transparent)]
    Redis(#[from] RedisError),
}

text_in_debug! { FenceError: Fenced, Redis }

impl<'a> Fence<'a> {
    pub(super) fn new(link: &'a ReconnectingLink, record: Vec<u8>, token: Token) -> Self {
        Self {
            link,
            record,
            token,
            history: String::new(),
            keys: Vec::new(),
            words: Vec::new(),
        }
    }

    /// Also requires that the server is in the history of the grant. By default any will do.
    pub fn history(mut self, history: &History) -> Self {
        self.history = history.as_str().to_owned();
        self
    }

    /// Adds a command: its name, its key, and the words behind that, as in `HSET key field value`.
    /// Its answer is not returned.
    pub fn command<W: AsRef<[u8]>>(
        mut self,
        name: &str,
        key: impl AsRef<[u8]>,
        words: impl IntoIterator<Item = W>,
    ) -> Self {
        let words = words.into_iter().map(|word| word.as_ref().to_vec());
        let words = Vec::from_iter(words);
        self.keys.push(key.as_ref().to_vec());
        self.words.push(name.into());
        self.words.push(words.len().to_string().into());
        self.words.extend(words);
        self
    }

    /// Executes the commands in their order, as one step.
    ///
    /// # Errors
    ///
    /// [`FenceError::Fenced`] if the term is over: nothing was written, and the caller must
    /// stop leading. [`FenceError::Redis`] if the server cannot be reached; if it refuses a
    /// command, after it has executed those before it; and for more than 4,000 words in all, where
    /// each command counts two words more than stand behind its key.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the commands are executed as a whole, later, or not at all.
    pub async fn run(self) -> Result<(), FenceError> {
        if self.words.len() > MOST_WORDS {
            let what = "a fenced write has too many words: split it";
            return Err(RedisError::new(ErrorKind::TooLarge, what).into());
        }
        let arguments = |command: &mut Cmd| {
            command.arg(self.keys.len() + 1).arg(&self.record);
            command.arg(&self.keys);
            command.arg(self.token.0).arg(&self.history);
            command.arg(&self.words);
        };
        // It is not repeated: it may be executed although there was no answer.
        let run = async |link: &mut Link| FENCED.run(link, arguments).await;
        match self.link.with(run).await? {
            true => Ok(()),
            false => Err(FenceError::Fenced),
        }
    }
}

impl fmt::Debug for Fence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("token", &self.token)
            .field("commands", &self.keys.len())
            .finish_non_exhaustive()
    }
}
