//! The headers of a message.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// Names with values, in the order in which they were added. Names may repeat. Cheap to clone.
///
/// # Examples
///
/// ```
/// use keylane_spool::Headers;
///
/// let mut headers = Headers::default();
/// headers.add("trace", "4bf92f35");
/// assert_eq!(headers.get("trace").map(|value| &value[..]), Some(&b"4bf92f35"[..]));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Option<Arc<Vec<(String, Bytes)>>>);

impl Headers {
    /// Adds a header behind the existing ones.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<Bytes>) {
        let headers = self.0.get_or_insert_default();
        Arc::make_mut(headers).push((name.into(), value.into()));
    }

    /// Returns the first value of this name.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.iter()
            .find_map(|(other, value)| (other == name).then_some(value))
    }

    /// Returns all headers, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0
            .iter()
            .flat_map(|headers| headers.iter().map(|(name, value)| (name.as_str(), value)))
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |headers| headers.len())
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

// Values belong to the user, and may be secret.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Headers({})", self.len())
    }
}
