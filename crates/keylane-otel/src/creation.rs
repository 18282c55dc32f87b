//! The context in which a message was made.

use std::sync::Arc;

use bytes::Bytes;
use opentelemetry::Context;
use opentelemetry::baggage::{Baggage, BaggageExt as _, KeyValueMetadata};
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceState};

use crate::carrier::{Carrier, CarrierMut};
use crate::names::{BAGGAGE, TRACEPARENT, TRACESTATE};
use crate::w3c::{baggage, traceparent, tracestate};

/// The context in which a message was made: the span that sent it, and the baggage. Cheap to clone.
///
/// It keeps the headers as they were. What nothing has changed is [written](inject) again byte for
/// byte.
#[derive(Clone, Debug, Default)]
pub struct CreationContext(Option<Arc<Parts>>);

#[derive(Debug)]
struct Parts {
    span: Option<Sender>,
    baggage: Option<(Bytes, Baggage)>,
}

/// The span that has sent the message, and its headers.
#[derive(Debug)]
struct Sender {
    context: SpanContext,
    traceparent: Bytes,
    /// `None` if it is malformed.
    tracestate: Option<Bytes>,
}

impl CreationContext {
    /// Reads the headers of a message.
    ///
    /// Malformed headers are ignored as the W3C says: without one valid `traceparent` there is no
    /// span, and a malformed `tracestate` is dropped. Capital letters in the names make no
    /// difference.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylane::source::RawMessage;
    /// use keylane_otel::CreationContext;
    ///
    /// let mut message = RawMessage::new("250");
    /// let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// message.headers.push(("traceparent".into(), Some(header.into())));
    /// let creation = CreationContext::of(&message);
    /// assert!(creation.span_context().is_some_and(|span| span.is_sampled()));
    /// ```
    pub fn of(message: &impl Carrier) -> Self {
        let (mut parents, mut states, mut baggages) = (Header::None, Header::None, Header::None);
        for (name, value) in message.headers() {
            let is_named = |ours: &str| name.eq_ignore_ascii_case(ours);
            match name.len() {
                11 if is_named(TRACEPARENT) => parents.add(value),
                10 if is_named(TRACESTATE) => states.add(value),
                7 if is_named(BAGGAGE) => baggages.add(value),
                _ => {}
            }
        }
        let baggage = baggages.joined();
        let baggage = baggage.and_then(|raw| Some((raw.clone(), baggage::parse(&raw)?)));
        let span = Sender::of(parents, states);
        let is_there = span.is_some() || baggage.is_some();
        Self(is_there.then(|| Arc::new(Parts { span, baggage })))
    }

    /// Returns the span that sent the message.
    pub fn span_context(&self) -> Option<&SpanContext> {
        Some(&self.0.as_ref()?.span.as_ref()?.context)
    }

    /// Returns `base` with the baggage. [`inject`] writes what nothing has changed as it was.
    pub(crate) fn baggage_in(&self, base: &Context) -> Context {
        let Some(parts) = &self.0 else {
            return base.clone();
        };
        let context = base.with_value(self.clone());
        match &parts.baggage {
            Some((_, baggage)) => context.with_baggage(entries(baggage)),
            None => context,
        }
    }

    /// Returns `base` with the baggage, and with the span as the current one.
    pub(crate) fn all_in(&self, base: &Context) -> Context {
        let context = self.baggage_in(base);
        match self.span_context() {
            Some(span) => context.with_remote_span_context(span.clone()),
            None => context,
        }
    }
}

impl Sender {
    fn of(parents: Header, states: Header) -> Option<Self> {
        let Header::One(traceparent) = parents else {
            return None;
        };
        let (trace, span, flags) = traceparent::parse(&traceparent)?;
        let tracestate = states.joined();
        let state = tracestate.as_deref().and_then(tracestate::parse);
        Some(Self {
            tracestate: tracestate.filter(|_| state.is_some()),
            context: SpanContext::new(trace, span, flags, true, state.unwrap_or(TraceState::NONE)),
            traceparent,
        })
    }
}

/// The values of the headers with one name.
enum Header {
    None,
    One(Bytes),
    Many(Vec<u8>),
}

impl Header {
    fn add(&mut self, value: &Bytes) {
        *self = match std::mem::replace(self, Self::None) {
            Self::None => Self::One(value.clone()),
            Self::One(first) => Self::Many([&*first, b",", value].concat()),
            Self::Many(mut all) => {
                all.push(b',');
                all.extend_from_slice(value);
                Self::Many(all)
            }
        };
    }

    /// Several headers with one name mean the same as one with commas between the values.
    fn joined(self) -> Option<Bytes> {
        match self {
            Self::None => None,
            Self::One(value) => Some(value),
            Self::Many(all) => Some(all.into()),
        }
    }
}

/// Returns the context of a message: the span that sent it as the current one, and its baggage. For
/// code that handles messages without a [`Destination`](crate::Destination).
pub fn extract(message: &impl Carrier) -> Context {
    CreationContext::of(message).all_in(&Context::new())
}

/// Writes a context into the headers of a message, in place of what was there.
///
/// Without a span in the context, `traceparent` and `tracestate` stay as they were. Without a span
/// and without baggage, all headers stay: a message that is only passed on keeps the context in
/// which it was made.
///
/// # Examples
///
/// ```
/// use keylane::source::RawMessage;
/// use keylane_otel::inject;
/// use opentelemetry::Context;
///
/// let mut invoice = RawMessage::new("42 EUR").key("user-7");
/// inject(&Context::current(), &mut invoice);
/// ```
pub fn inject(context: &Context, message: &mut impl CarrierMut) {
    let creation = context.get::<CreationContext>();
    let parts = creation.and_then(|creation| creation.0.as_deref());
    let span = context.span();
    let span = span.span_context();
    if span.is_valid() {
        let sender = parts.and_then(|parts| parts.span.as_ref());
        let [traceparent, tracestate] = headers_of(span, sender);
        replace(message, TRACEPARENT, traceparent);
        replace(message, TRACESTATE, tracestate);
    }
    let baggage = context.baggage();
    if span.is_valid() || !baggage.is_empty() {
        let known = parts.and_then(|parts| parts.baggage.as_ref());
        let raw = match known {
            Some((raw, known)) if is_same(known, baggage) => raw.clone(),
            _ => baggage.to_string().into(),
        };
        replace(message, BAGGAGE, Some(raw));
    }
}

/// Returns `traceparent` and `tracestate`, as they were if this is still the sender's span.
fn headers_of(span: &SpanContext, sender: Option<&Sender>) -> [Option<Bytes>; 2] {
    let traceparent = match sender {
        Some(sender) if sender.context == *span => sender.traceparent.clone(),
        _ => traceparent::format(span).into(),
    };
    let tracestate = match sender {
        Some(sender) if sender.context.trace_state() == span.trace_state() => {
            sender.tracestate.clone()
        }
        _ => Some(span.trace_state().header().into()),
    };
    [Some(traceparent), tracestate]
}

fn replace(message: &mut impl CarrierMut, name: &'static str, value: Option<Bytes>) {
    message.remove(name);
    if let Some(value) = value.filter(|value| !value.is_empty()) {
        message.add(name, value);
    }
}

fn is_same(one: &Baggage, other: &Baggage) -> bool {
    let mut entries = one.iter();
    one.len() == other.len()
        && entries.all(|(key, value)| other.get_with_metadata(key.as_str()) == Some(value))
}

fn entries(baggage: &Baggage) -> impl Iterator<Item = KeyValueMetadata> {
    let entries = baggage.iter();
    entries.map(|(key, (value, metadata))| {
        KeyValueMetadata::new(key.clone(), value.clone(), metadata.clone())
    })
}

#[cfg(test)]
mod tests {
    use keylane::source::RawMessage;
    use opentelemetry::KeyValue;
    use opentelemetry::trace::{SpanId, TraceFlags};

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const STATE: &str = "rojo=00f067aa0ba902b7 ,, congo=t61rcWkgMzE";
    const BAG: &str = "user=%37 ;p=1,city=Z%C3%BCrich , user@=x";

    fn message(headers: &[(&str, &str)]) -> RawMessage {
        let mut message = RawMessage::new("250");
        for (name, value) in headers {
            let header = ((*name).to_owned(), Some(Bytes::from((*value).to_owned())));
            message.headers.push(header);
        }
        message
    }

    fn child(of: &Context) -> Context {
        let span = of.span().span_context().clone();
        let (trace, state) = (span.trace_id(), span.trace_state().clone());
        let flags = TraceFlags::SAMPLED;
        of.with_remote_span_context(SpanContext::new(
            trace,
            SpanId::from(7),
            flags,
            false,
            state,
        ))
    }

    fn written(context: &Context) -> Vec<(String, String)> {
        let mut message = message(&[("a", "1"), ("TraceParent", "old"), ("baggage", "old=1")]);
        inject(context, &mut message);
        let headers = message.headers().map(|(name, value)| {
            let value = String::from_utf8(value.to_vec()).expect("text");
            (name.to_owned(), value)
        });
        headers.collect()
    }

    fn named(headers: &[(&str, &str)]) -> Vec<(String, String)> {
        let headers = headers.iter();
        headers
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn what_nothing_has_changed_is_written_byte_for_byte() {
        // A later version, too, whose additions are unknown here.
        for parent in [PARENT, &format!("{PARENT}-more").replacen("00", "cc", 1)] {
            let headers = [(TRACEPARENT, parent), (TRACESTATE, STATE), (BAGGAGE, BAG)];
            let context = extract(&message(&headers));
            let mut wanted = named(&[("a", "1")]);
            wanted.extend(named(&headers));
            assert_eq!(written(&context), wanted);
        }
    }

    #[test]
    fn a_child_has_its_own_parent_and_the_rest_as_it_was() {
        let headers = [(TRACEPARENT, PARENT), (TRACESTATE, STATE), (BAGGAGE, BAG)];
        let context = child(&extract(&message(&headers)));
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000007-01";
        let wanted = [
            ("a", "1"),
            (TRACEPARENT, parent),
            (TRACESTATE, STATE),
            (BAGGAGE, BAG),
        ];
        assert_eq!(written(&context), named(&wanted));
    }

    #[test]
    fn what_the_handler_changes_is_written() {
        let headers = [(TRACEPARENT, PARENT), (TRACESTATE, STATE), (BAGGAGE, BAG)];
        let context = extract(&message(&headers));
        let fewer = context.with_baggage([KeyValue::new("user", "Z\u{fc}")]);
        let wanted = [
            ("a", "1"),
            (TRACEPARENT, PARENT),
            (TRACESTATE, STATE),
            (BAGGAGE, "user=Z%C3%BC"),
        ];
        assert_eq!(written(&fewer), named(&wanted));
        let none = context.with_cleared_baggage();
        assert_eq!(written(&none), named(&wanted[..3]));
    }

    #[test]
    fn without_a_span_the_headers_stay() {
        let stay = [("a", "1"), ("TraceParent", "old"), ("baggage", "old=1")];
        assert_eq!(written(&Context::new()), named(&stay));
        let bagged = extract(&message(&[(BAGGAGE, BAG)]));
        assert_eq!(written(&bagged), named(&[stay[0], stay[1], (BAGGAGE, BAG)]));
    }

    #[test]
    fn malformed_headers_are_ignored() {
        let of = |headers: &[(&str, &str)]| CreationContext::of(&message(headers));
        assert!(of(&[]).0.is_none());
        assert!(of(&[(TRACEPARENT, "x"), (TRACESTATE, STATE)]).0.is_none());
        let twice = of(&[(TRACEPARENT, PARENT), ("TRACEPARENT", PARENT)]);
        assert!(twice.0.is_none());
        let odd = of(&[(TRACEPARENT, PARENT), (TRACESTATE, "a")]);
        let span = odd.span_context().expect("a span");
        assert_eq!(span.trace_state(), &TraceState::NONE);
        // And it is not passed on.
        let wanted = [("a", "1"), (TRACEPARENT, PARENT)];
        let context = odd.all_in(&Context::new());
        assert_eq!(written(&context), named(&wanted));
    }

    #[test]
    fn several_headers_of_a_name_are_one() {
        let headers = [
            (TRACEPARENT, PARENT),
            (TRACESTATE, "a=1"),
            (TRACESTATE, "b=2"),
            (BAGGAGE, "a=1"),
            (BAGGAGE, "b=2"),
            (BAGGAGE, "c=3"),
        ];
        let wanted = [
            ("a", "1"),
            (TRACEPARENT, PARENT),
            (TRACESTATE, "a=1,b=2"),
            (BAGGAGE, "a=1,b=2,c=3"),
        ];
        assert_eq!(written(&extract(&message(&headers))), named(&wanted));
    }
}
