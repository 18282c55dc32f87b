//! Messages that have headers.

use bytes::Bytes;
use keylane::source::RawMessage;

/// A message whose headers can be read. Implement it for a message type of your own.
pub trait Carrier {
    /// Returns the names and values of the headers, in their order. A header without a value is
    /// left out.
    fn headers(&self) -> impl Iterator<Item = (&str, &Bytes)>;
}

/// A message whose headers can be written. Implement it for a message type of your own.
pub trait CarrierMut: Carrier {
    /// Removes all headers with this name. Capital letters make no difference.
    fn remove(&mut self, name: &str);

    /// Adds a header behind the existing ones.
    fn add(&mut self, name: &'static str, value: Bytes);
}

impl Carrier for RawMessage {
    fn headers(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        let headers = self.headers.iter();
        headers.filter_map(|(name, value)| Some((name.as_str(), value.as_ref()?)))
    }
}

impl CarrierMut for RawMessage {
    fn remove(&mut self, name: &str) {
        self.headers
            .retain(|(other, _)| !other.eq_ignore_ascii_case(name));
    }

    fn add(&mut self, name: &'static str, value: Bytes) {
        self.headers.push((name.to_owned(), Some(value)));
    }
}

#[cfg(feature = "inbox")]
mod inbox {
    use bytes::Bytes;
    use keylane_inbox::{Header, NewMessage, StoredMessage};

    use super::{Carrier, CarrierMut};

    impl Carrier for StoredMessage {
        fn headers(&self) -> impl Iterator<Item = (&str, &Bytes)> {
            let headers = self.headers.iter();
            headers.map(|header| (header.name.as_str(), &header.value))
        }
    }

    impl Carrier for NewMessage {
        fn headers(&self) -> impl Iterator<Item = (&str, &Bytes)> {
            let headers = self.headers.iter();
            headers.map(|header| (header.name.as_str(), &header.value))
        }
    }

    impl CarrierMut for NewMessage {
        fn remove(&mut self, name: &str) {
            self.headers
                .retain(|header| !header.name.eq_ignore_ascii_case(name));
        }

        fn add(&mut self, name: &'static str, value: Bytes) {
            self.headers.push(Header::new(name, value));
        }
    }
}

#[cfg(feature = "spool")]
mod spool {
    use bytes::Bytes;
    use keylane_spool::{Headers, Message, Spooled};

    use super::{Carrier, CarrierMut};

    impl Carrier for Spooled {
        fn headers(&self) -> impl Iterator<Item = (&str, &Bytes)> {
            self.headers.iter()
        }
    }

    impl Carrier for Message {
        fn headers(&self) -> impl Iterator<Item = (&str, &Bytes)> {
            self.headers.iter()
        }
    }

    impl CarrierMut for Message {
        fn remove(&mut self, name: &str) {
            let is_it = |other: &str| other.eq_ignore_ascii_case(name);
            if self.headers.iter().any(|(other, _)| is_it(other)) {
                let mut others = Headers::default();
                for (other, value) in self.headers.iter().filter(|(other, _)| !is_it(other)) {
                    others.add(other, value.clone());
                }
                self.headers = others;
            }
        }

        fn add(&mut self, name: &'static str, value: Bytes) {
            self.headers.add(name, value);
        }
    }
}
