//! Which messages their sources have taken back.

use std::task;

use keylane_rt::atomic::Ordering;

use super::{Revoked, Sources};
use crate::engine::message::Obligation;
use crate::types::Spec;

impl Sources {
    /// Whether a message is to be handed back because its source has taken it back.
    ///
    /// A message for which this one stands changes nothing about it. What the user's function has
    /// merged is one message: if a part of it came from no source, nothing can give that part
    /// again, and it runs; otherwise all of it goes back with the part that is taken back.
    pub(crate) fn is_revoked<T: Spec>(&self, obligation: &Obligation<T>) -> bool {
        if !self.has_any() {
            return false;
        }
        let is_revoked = |part: &Obligation<T>| {
            let slot = part.source();
            slot.map(|at| self.revoked(at) > Revoked::No)
        };
        let merged = obligation.options().filter(|_| self.merges);
        let merged = merged.map(|options| &options.merged);
        let parts = std::iter::once(obligation).chain(merged.into_iter().flatten());
        let mut any = false;
        for part in parts {
            match is_revoked(part) {
                None => return false,
                Some(revoked) => any |= revoked,
            }
        }
        any
    }

    /// Takes the messages out for which this one stands and which their sources have taken back.
    pub(crate) fn shed<T: Spec>(
        &self,
        obligation: &mut Obligation<T>,
        shed: &mut Vec<Obligation<T>>,
    ) {
        if self.merges || !obligation.has_options() {
            return;
        }
        let is_revoked = |part: &mut Obligation<T>| {
            let slot = part.source();
            slot.is_some_and(|at| self.revoked(at) > Revoked::No)
        };
        shed.extend(obligation.options_mut().merged.extract_if(.., is_revoked));
    }

    /// Has the sources of a message in flight wake this task when it is to end. True: it is to end
    /// now.
    pub(crate) fn watch<T: Spec>(
        &self,
        obligation: &Obligation<T>,
        cx: &task::Context<'_>,
    ) -> bool {
        let mut ends = false;
        let mut watch = |at| {
            ends |= self.watch_attempt(at, cx.waker());
            false
        };
        if self.merges {
            obligation.any_source(&mut watch);
        } else if let Some(at) = obligation.source() {
            watch(at);
        }
        ends
    }

    pub(crate) fn has_revoked_member<T: Spec>(&self, obligation: &Obligation<T>) -> bool {
        let members = obligation.options().map(|options| &options.members);
        let mut members = members.into_iter().flatten();
        members.any(|member| self.is_revoked(&member.envelope.obligation))
    }

    /// Whether any source was ever consumed.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// The first message of a source is about to come.
    pub(crate) fn expect(&self) {
        self.used.store(true, Ordering::Relaxed);
    }
}
