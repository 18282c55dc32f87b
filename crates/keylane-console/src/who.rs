//! Who has asked, for the log.

use std::net::SocketAddr;

/// The number of the session, 0 without a token, and the peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Who {
    pub(crate) session: u64,
    pub(crate) peer: Option<SocketAddr>,
}

impl Who {
    /// The peer as text.
    pub(crate) fn peer(self) -> String {
        match self.peer {
            Some(peer) => peer.to_string(),
            None => "unknown".to_owned(),
        }
    }
}
