//! Builds the source from its settings.

use keylane_connector::ConfigError;

use super::state::KafkaSource;
use crate::config::KafkaSourceBuilder;
use crate::record::{Keyless, Maker, Record};

impl KafkaSource {
    /// Begins to build a source with these brokers (each as `host:port`, several with commas
    /// between them) and this group, whose members share the partitions.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylane_kafka::{KafkaSource, StartAt};
    ///
    /// # fn main() -> Result<(), keylane_kafka::ConfigError> {
    /// let source = KafkaSource::builder("localhost:9092", "billing")
    ///     .topic("orders")
    ///     .pattern("refunds-.*")
    ///     .start_at(StartAt::Latest)
    ///     .property("fetch.wait.max.ms", "100")
    ///     .build()?;
    /// # let _ = source;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(brokers: impl Into<String>, group: impl Into<String>) -> KafkaSourceBuilder {
        KafkaSourceBuilder::new(brokers, group)
    }
}

impl KafkaSourceBuilder {
    /// Checks the settings. The source connects when it is consumed, not before.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if a setting is missing or refused, or if the client does not know
    /// it.
    pub fn build(self) -> Result<KafkaSource, ConfigError> {
        let (keyless, config) = (self.keyless, self.check()?);
        let maker = match keyless {
            Some(keyless) => Maker::raw(keyless),
            None => Maker::raw(Keyless::default()).warning(config.name()),
        };
        Ok(KafkaSource::new(config, maker))
    }

    /// Checks the settings, as [`build`](Self::build) does, and makes each message with this
    /// function. The function sees the record in the memory of the client, so parts that it does
    /// not need are not copied.
    ///
    /// The function cannot return an error. Let the message say that it cannot be decoded, and let
    /// its handler fail. Then its key waits for it as for any other message, and its dead letter is
    /// the record as it is in the log. [`decode`](keylane::source::Source::decode) does that by
    /// itself, with copies.
    ///
    /// # Panics
    ///
    /// The function must not panic. If it does, the source is opened again, and comes to the same
    /// record again.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] as `build` does.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use keylane::error::BoxError;
    /// use keylane::{Dispatcher, OnExhausted};
    /// use keylane_kafka::{KafkaSource, Record};
    ///
    /// #[derive(Clone)]
    /// struct Booking {
    ///     account: u64,
    ///     /// `None`: the payload is no amount.
    ///     cents: Option<u64>,
    /// }
    ///
    /// impl Booking {
    ///     fn of(record: &Record<'_>) -> Self {
    ///         let number = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.try_into().ok()?));
    ///         Self {
    ///             account: record.key().and_then(number).unwrap_or_default(),
    ///             cents: record.payload().and_then(number),
    ///         }
    ///     }
    /// }
    ///
    /// async fn book(booking: Booking) -> Result<(), &'static str> {
    ///     let cents = booking.cents.ok_or("no amount")?;
    ///     println!("{}: {cents}", booking.account);
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), BoxError> {
    /// let source = KafkaSource::builder("localhost:9092", "ledger")
    ///     .topic("bookings")
    ///     .dead_letters("bookings.dead")
    ///     .build_with(Booking::of)?;
    /// let accounts = Dispatcher::builder(|booking: &Booking| booking.account)
    ///     .on_exhausted(OnExhausted::AtSource)
    ///     .spawn(book)?;
    /// let intake = accounts.consume(source)?;
    /// # drop(intake);
    /// # Ok(())
    /// # }
    /// ```
    pub fn build_with<M>(
        self,
        make: impl Fn(&Record<'_>) -> M + Send + Sync + 'static,
    ) -> Result<KafkaSource<M>, ConfigError> {
        let maker = Maker::by(make, self.keyless.unwrap_or_default());
        Ok(KafkaSource::new(self.check()?, maker))
    }
}
