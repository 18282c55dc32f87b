//! The programs that are explored.

/// Most messages, stripes, senders and runners. A runner that leaves has its place until it is gone.
pub(super) const MESSAGES: usize = 4;
pub(super) const STRIPES: usize = 2;
pub(super) const SENDERS: usize = 2;
pub(super) const RUNNERS: usize = 7;

/// What the handler of a message does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It ends in its first poll. A handler that panics in its first poll does the same.
    Ready,
    /// It returns `Pending` from its first poll, and ends at any time after that.
    Waits,
    /// Its first poll ends when all messages that are not behind it in its lane have settled.
    Blocks,
}

/// What senders send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) key: u8,
    pub(super) kind: Kind,
    pub(super) sender: u8,
}

/// How the dispatcher ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Not at all: a handle is kept.
    Never,
    /// The last handle is dropped.
    LastHandle,
    /// It is drained, at any time.
    Drain,
    /// What has not started is handed back, at any time.
    HandBack,
    /// It is drained, and what has not started later is handed back.
    Both,
}

/// What is explored.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// In the order in which their senders send them.
    pub(super) messages: Vec<Message>,
    pub(super) stripes: u8,
    pub(super) concurrency: usize,
    pub(super) pollers: usize,
    pub(super) end: End,
    /// Whether a runner may start the only message that it has placed.
    pub(super) starts_alone: bool,
    /// Whether a holder steps aside for a runner that it has recruited for the next job of its lane,
    /// before it asks for a job itself.
    pub(super) holder_steps_aside: bool,
    /// Whether the router, too, cannot run before the runner yields that has woken it.
    pub(super) router_waits: bool,
}

impl Program {
    pub(super) fn message(&self, message: u8) -> Message {
        self.messages[usize::from(message)]
    }

    pub(super) fn stripe_of(&self, message: u8) -> u8 {
        self.message(message).key % self.stripes
    }

    pub(super) fn hands_back(&self) -> bool {
        matches!(self.end, End::HandBack | End::Both)
    }
}
