//! What the drivers of sources are asked: where messages come from, and what holds a source back.

use keylane_rt::oneshot;

use crate::lane::MessageOrigin;

/// What a driver has to answer.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) origins: Vec<OriginsRequest>,
    pub(crate) fronts: Vec<oneshot::Sender<Vec<Front>>>,
}

/// A question for the origins of some messages.
pub(crate) struct OriginsRequest {
    pub(crate) slots: Vec<u32>,
    /// In the order of the slots.
    pub(crate) done: oneshot::Sender<Vec<Option<MessageOrigin>>>,
}

/// The message that one generation handed over before all others that have not settled.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    /// The hash of its key.
    pub(crate) hash: u64,
    pub(crate) origin: MessageOrigin,
}

impl Asked {
    pub(super) fn is_empty(&self) -> bool {
        self.origins.is_empty() && self.fronts.is_empty()
    }
}
