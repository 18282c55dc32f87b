//! How a candidate waits for a change.

use bytes::Bytes;
use etcd_client::{Event, EventType, Txn, WatchOptions, WatchResponse, WatchStream};
use keylane_connector::ErrorKind;
use keylane_leader::store::{CandidateId, Election, matters};
use keylane_leases::Token;

use super::board::Target;
use super::desk::Desk;
use crate::error::EtcdError;
use crate::leases::calls::Calls;
use crate::leases::core::token;

impl Desk {
    /// Reads the election, and waits for a change after that if there was none before.
    pub(super) async fn wait(
        &self,
        calls: &Calls<'_>,
        key: &Bytes,
        candidate: Option<&CandidateId>,
        seen: &Election,
    ) -> Result<(), EtcdError> {
        let done = calls.txn(Txn::new().and_then(self.reads(key))).await?;
        let from = done.seen.revision + 1;
        let board = self.read(key, done.answers)?.board;
        if matters(candidate, seen, &board.election()) {
            return Ok(());
        }
        let targets = board.targets(candidate);
        let names = targets
            .iter()
            .map(|target| self.name(key, candidate, target));
        let watched = Watched {
            names: names.collect(),
            targets,
            holder: board.holder,
        };
        let mut stream = watched.begin(calls, from).await?;
        loop {
            match calls.connection.listen(stream.message()).await? {
                Some(message) if watched.is_over(&message)? => return Ok(()),
                Some(_) => {}
                None => return Err(ended("the server has closed it")),
            }
        }
    }

    fn name(&self, key: &Bytes, candidate: Option<&CandidateId>, target: &Target) -> Vec<u8> {
        let names = &self.core.names;
        match (target, candidate) {
            (Target::Other(other), _) => self.name_of(key, other),
            (Target::Own, Some(own)) => self.name_of(key, own),
            (Target::Record, _) => names.record(key),
            (Target::Lease | Target::Own, _) => names.lease(key),
        }
    }
}

/// The keys that are watched.
struct Watched {
    targets: Vec<Target>,
    /// In the order of the targets.
    names: Vec<Vec<u8>>,
    holder: Option<Token>,
}

impl Watched {
    /// Watches all keys, from a revision on.
    async fn begin(&self, calls: &Calls<'_>, from: i64) -> Result<WatchStream, EtcdError> {
        let options = WatchOptions::new().with_start_revision(from);
        let mut client = calls.connection.client().watch_client();
        let first = client.watch(&*self.names[0], Some(options.clone()));
        let mut stream = calls.connection.listen(first).await?;
        for name in &self.names[1..] {
            let next = stream.watch(&**name, Some(options.clone()));
            calls.connection.listen(next).await?;
        }
        Ok(stream)
    }

    /// Returns whether something has changed that matters, or whether the revision was compacted:
    /// then the caller looks again.
    fn is_over(&self, message: &WatchResponse) -> Result<bool, EtcdError> {
        if message.compact_revision() > 0 {
            return Ok(true);
        }
        if message.canceled() {
            return Err(ended(message.cancel_reason()));
        }
        Ok(message.events().iter().any(|event| self.matters(event)))
    }

    fn matters(&self, event: &Event) -> bool {
        let Some(key) = event.kv() else {
            return false;
        };
        let is_end = event.event_type() == EventType::Delete;
        let is_other = || Some(token(key.create_revision())) != self.holder;
        let targets = self.targets.iter().zip(&self.names);
        let mut targets = targets.filter(|(_, name)| *name == key.key());
        targets.any(|(target, _)| match target {
            // A renewal may write the key.
            Target::Lease => is_end || is_other(),
            Target::Record | Target::Own => true,
            // It may move to another lease of etcd.
            Target::Other(_) => is_end,
        })
    }
}

fn ended(why: &str) -> EtcdError {
    let kind = match why.contains("permission denied") {
        true => ErrorKind::Denied,
        false => ErrorKind::Unreachable,
    };
    EtcdError::new(kind, format!("a watch of an election has ended: {why}"))
}
