//! The spans of a destination.

mod attempt;
mod batch;
mod handler;
mod send;
mod settle;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use opentelemetry::global::{self, BoxedTracer, ObjectSafeTracer};
use opentelemetry::{InstrumentationScope, Key, KeyValue, StringValue};

use crate::names::{DESTINATION, GROUP, OPERATION, OPERATION_TYPE, SYSTEM};
pub use batch::{TracedAnswers, TracedBatches};
pub use handler::TracedHandler;
pub use settle::TracedSource;

/// How the span of an attempt relates to the span that sent its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Relation {
    /// The attempt has a trace of its own, with a link to the span that sent the message. A message
    /// that is handled late, or often, does not make the sender's trace longer.
    #[default]
    Link,
    /// The attempt is a child of the span that sent the message, in the same trace, and has the
    /// link too. A batch has links alone.
    Parent,
}

/// A topic, stream, list or table whose messages are handled or sent, and the settings of their
/// spans. Cheap to clone.
///
/// | method | span | kind |
/// | --- | --- | --- |
/// | [`process`](Self::process) | `process orders`, one for each attempt | `CONSUMER` |
/// | [`process_batches`](Self::process_batches) | the same, one for each batch | `CONSUMER` |
/// | [`send`](Self::send), [`send_all`](Self::send_all) | `send orders` | `PRODUCER` |
/// | [`settle`](Self::settle) | `settle orders`; none unless you call it | `CLIENT` |
///
/// No span has the key or the payload of a message. The names of the attributes are in
/// [`names`](crate::names).
///
/// Without [`tracer`](Self::tracer) the spans come from the global provider that is set when the
/// destination is created: set it before.
///
/// # Examples
///
/// ```
/// use keylane::source::RawMessage;
/// use keylane::{Dispatcher, OnExhausted};
/// use keylane_otel::Destination;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = Destination::kafka("orders").group("billing");
/// let billing = Dispatcher::key_by_opt(|order: &RawMessage| order.key.clone())
///     .on_exhausted(OnExhausted::Halt)
///     .spawn(orders.process(|order: RawMessage| async move {
///         println!("{} bytes", order.payload.len());
///         Ok::<(), std::io::Error>(())
///     }))?;
/// billing.send(RawMessage::new("250").key("user-7")).await?;
/// assert_eq!(billing.drain().await.done, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a destination makes spans only for what is passed to it"]
pub struct Destination {
    system: StringValue,
    name: StringValue,
    group: Option<StringValue>,
    relation: Relation,
    shows_errors: bool,
    /// `None`: no spans.
    tracer: Option<Arc<BoxedTracer>>,
}

impl Destination {
    /// Creates a destination in this system. The conventions have a list of names for it.
    pub fn new(system: impl Into<Cow<'static, str>>, name: impl Into<Cow<'static, str>>) -> Self {
        let scope = InstrumentationScope::builder("keylane-otel")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        Self {
            system: shared(system),
            name: shared(name),
            group: None,
            relation: Relation::default(),
            shows_errors: false,
            tracer: Some(Arc::new(global::tracer_with_scope(scope))),
        }
    }

    /// Creates a destination for a topic of Kafka. A span has the topic, the partition and the
    /// offset of its record, also where a source reads several topics.
    pub fn kafka(topic: impl Into<Cow<'static, str>>) -> Self {
        Self::new("kafka", topic)
    }

    /// Creates a destination for a stream or a list of Redis.
    pub fn redis(name: impl Into<Cow<'static, str>>) -> Self {
        Self::new("redis", name)
    }

    /// Creates a destination for an inbox, in files or in a database, or for a spool.
    pub fn keylane(name: impl Into<Cow<'static, str>>) -> Self {
        Self::new("keylane", name)
    }

    /// Sets the consumer group, an attribute of the spans.
    pub fn group(mut self, group: impl Into<Cow<'static, str>>) -> Self {
        self.group = Some(shared(group));
        self
    }

    /// Sets how the span of an attempt relates to the span that sent its message.
    /// [`Relation::Link`] by default.
    pub fn relation(mut self, relation: Relation) -> Self {
        self.relation = relation;
        self
    }

    /// Shows the `Debug` text of errors in the status of a span, up to 256 bytes. By default it has
    /// the type of the error alone, because a text may contain a key.
    pub fn show_errors(mut self) -> Self {
        self.shows_errors = true;
        self
    }

    /// Sets the tracer that makes the spans.
    pub fn tracer<T: ObjectSafeTracer + Send + Sync + 'static>(mut self, tracer: T) -> Self {
        self.tracer = Some(Arc::new(BoxedTracer::new(Box::new(tracer))));
        self
    }

    /// Makes no spans, reads no headers and writes none. What is passed to this destination costs
    /// nothing then.
    pub fn off(mut self) -> Self {
        self.tracer = None;
        self
    }

    /// The attributes that all spans of an operation have.
    fn attributes(&self, operation: &'static str, name: StringValue) -> Vec<KeyValue> {
        let mut attributes = Vec::with_capacity(12);
        attributes.push(attribute(SYSTEM, self.system.clone()));
        attributes.push(attribute(DESTINATION, name));
        attributes.push(attribute(OPERATION, operation));
        attributes.push(attribute(OPERATION_TYPE, operation));
        attributes
    }

    /// The same for a consumer, which may have a group.
    fn attributes_of_consumer(&self, operation: &'static str, name: StringValue) -> Vec<KeyValue> {
        let mut attributes = self.attributes(operation, name);
        let group = self.group.as_ref();
        attributes.extend(group.map(|group| attribute(GROUP, group.clone())));
        attributes
    }

    /// The text of an error, if it is shown.
    fn text_of(&self, error: &impl fmt::Debug) -> String {
        match self.shows_errors {
            false => String::new(),
            true => {
                let mut text = format!("{error:?}");
                text.truncate(text.floor_char_boundary(256));
                text
            }
        }
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination")
            .field("system", &self.system.as_str())
            .field("name", &self.name.as_str())
            .field("relation", &self.relation)
            .field("is_off", &self.tracer.is_none())
            .finish_non_exhaustive()
    }
}

fn shared(text: impl Into<Cow<'static, str>>) -> StringValue {
    match text.into() {
        Cow::Borrowed(text) => text.into(),
        Cow::Owned(text) => Arc::<str>::from(text).into(),
    }
}

fn attribute(name: &'static str, value: impl Into<opentelemetry::Value>) -> KeyValue {
    KeyValue::new(Key::from_static_str(name), value)
}
