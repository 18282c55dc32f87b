//! Which keys hold a source back.

use std::fmt;
use std::hash::Hash;

use super::intake::IntakeWatch;
use crate::dispatcher::Dispatcher;
use crate::lane::HoldingBack;

impl<K, M, O, E> Dispatcher<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Returns the keys that hold a source back: of each [generation] the key of the message that
    /// was handed over first and has not settled. A source that forgets in order, such as a
    /// partition of a topic, cannot forget what is behind it. Up to one key for each generation, in
    /// their order.
    ///
    /// It asks the driver of the source, for a quarter of a second at most, and nothing else waits
    /// for that. The driver looks at all messages that the source has handed over and that have not
    /// settled; no walk over the lanes. It returns none
    ///
    /// - for an intake of another dispatcher, or one that has ended;
    /// - if the driver does not answer in time, because it is in a call of its source;
    /// - for a generation whose first message has no key;
    /// - for [`HashLanes`](crate::routing::HashLanes), whose messages may change their lanes.
    ///
    /// Of two keys with one hash, either is returned.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does nothing.
    ///
    /// [generation]: crate::source::Generation
    pub async fn holding_back(&self, intake: &IntakeWatch) -> Vec<HoldingBack<K>> {
        match intake.control.place.get() {
            Some((engine, source)) if *engine == self.engine.id() => {
                self.engine.holding_back(*source).await
            }
            _ => Vec::new(),
        }
    }
}
