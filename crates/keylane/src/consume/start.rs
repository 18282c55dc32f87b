//! Starts to consume a source.

use std::fmt;
use std::future::ready;
use std::hash::Hash;

use keylane_rt::Arc;
use keylane_source::SourceOf;

use super::control::Control;
use super::driver::Driver;
use super::figures::figures;
use super::intake::{Intake, Now};
use super::settings::{Guarantee, IntakeSettings};
use crate::dispatcher::Dispatcher;
use crate::error::ConsumeError;
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
}
