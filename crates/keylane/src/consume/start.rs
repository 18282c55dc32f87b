//! Starts to consume a source, and says what holds it back.

use std::fmt;
use std::future::ready;
use std::hash::Hash;

use keylane_rt::Arc;
use keylane_source::SourceOf;

use super::control::Control;
use super::driver::Driver;
use super::figures::figures;
use super::holding::holding_back;
use super::intake::{Intake, IntakeWatch, Now};
use super::settings::{Guarantee, IntakeSettings};
use crate::dispatcher::Dispatcher;
use crate::error::ConsumeError;
use crate::lane::HoldingBack;
use crate::letter::OnExhausted;

impl<K, M, O, E> Dispatcher<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Consumes a source: takes its messages, and tells it how they settle.
    ///
    /// Several sources may feed one dispatcher, beside messages that are sent directly. Messages of
    /// the same key from two sources are in one lane. The dispatcher stays open until the intake
    /// has ended. See [`source`](crate::source) for the guarantees, and
    /// [`consume_with`](Self::consume_with) for limits and times.
    ///
    /// # Errors
    ///
    /// [`ConsumeError::Discards`] unless [`on_exhausted`](crate::Builder::on_exhausted) was set: a
    /// message of a source is never discarded by default. The other variants name a setting that
    /// does not fit.
    ///
    /// # Examples
    ///
    /// See [`Source`](crate::source::Source).
    pub fn consume<S: SourceOf<M>>(&self, source: S) -> Result<Intake, ConsumeError> {
        self.consume_with(source, IntakeSettings::new())
    }

    /// Like [`consume`](Self::consume), with settings.
    ///
    /// # Errors
    ///
    /// As [`consume`](Self::consume).
    pub fn consume_with<S: SourceOf<M>>(
        &self,
        source: S,
        settings: IntakeSettings,
    ) -> Result<Intake, ConsumeError> {
        settings.check()?;
        source.validate()?;
        let engine = &self.engine;
        if self.is_closed() {
            return Err(ConsumeError::Closed);
        }
        if !engine.settings.names_exhausted {
            return Err(ConsumeError::Discards);
        }
        let features = source.features();
        let keeps = features.keeps_dead_letters();
        if matches!(engine.settings.on_exhausted, OnExhausted::AtSource) && !keeps {
            return Err(ConsumeError::NoDeadLetters);
        }
        let effectively_once = settings.guarantee == Guarantee::EffectivelyOnce;
        if effectively_once && engine.settings.discipline.store().is_none() {
            return Err(ConsumeError::NoVersions);
        }
        engine.sources.expect();
        let name = source.name();
        let figures = figures(engine.settings.name.as_deref(), &name);
        let (control, commands) = Control::new(name, figures);
        let control = Arc::new(control);
        let driver = Driver::new(
            self.clone(),
            (source, features),
            settings,
            Arc::clone(&control),
            commands,
        )?;
        engine.spawn_beside(driver.run());
        let shown = Arc::clone(&control);
        engine.inside(|| keylane_metrics::repeat(move || ready(shown.show())));
        let engine = Arc::clone(engine);
        let now = Now(Arc::new(move || engine.clocks.now()));
        Ok(Intake::new(control, now))
    }

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
    /// - for a generation whose first message has no key, or waits for room in the dispatcher;
    /// - for a source whose messages are acked [before](Guarantee::AtMostOnce) they are handled;
    /// - for [`HashLanes`](crate::routing::HashLanes), whose messages may change their lanes.
    ///
    /// Of two keys with one hash, either is returned. A message that went back to its source, and
    /// comes again, is not counted: the key of the next one is returned. Compare the position with
    /// the frontier of the source, where it has one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does nothing.
    ///
    /// [generation]: crate::source::Generation
    pub async fn holding_back(&self, intake: &IntakeWatch) -> Vec<HoldingBack<K>> {
        holding_back(&self.engine, &intake.control).await
    }
}
