//! Server-sent events.

use std::mem;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::error::ConsoleError;

/// A feed has an event a second, and a comment after 15 seconds without one.
const SILENCE: Duration = Duration::from_secs(20);

/// Most bytes of a line.
const MOST_BYTES: usize = 16 << 20;

/// An event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) data: String,
}

/// An open feed.
pub(crate) struct Events {
    url: String,
    body: Incoming,
    lines: Lines,
}

impl Events {
    pub(crate) fn new(url: String, body: Incoming) -> Self {
        Self {
            url,
            body,
            lines: Lines::default(),
        }
    }

    /// The next event. `NoAnswer` if the feed has ended, or is silent.
    pub(crate) async fn next(&mut self) -> Result<Event, ConsoleError> {
        loop {
            if let Some(event) = self.lines.event() {
                return Ok(event);
            }
            let frame = match timeout(SILENCE, self.body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(self.lost(&error.to_string())),
                Ok(None) => return Err(self.lost("the feed has ended")),
                Err(_) => return Err(self.lost("the feed is silent")),
            };
            if let Some(bytes) = frame.data_ref() {
                self.lines.push(bytes);
            }
            if self.lines.unread.len() > MOST_BYTES {
                return Err(self.lost("an event is too long"));
            }
        }
    }

    fn lost(&self, why: &str) -> ConsoleError {
        ConsoleError::NoAnswer {
            url: self.url.clone(),
            why: why.to_owned(),
        }
    }
}

/// Makes events of lines. Pure.
#[derive(Debug, Default)]
struct Lines {
    unread: Vec<u8>,
    event: Event,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// The next event that is whole.
    fn event(&mut self) -> Option<Event> {
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                let event = mem::take(&mut self.event);
                if !event.data.is_empty() {
                    return Some(event);
                }
            }
            let value = |name: &str| line.strip_prefix(name).map(str::trim_start);
            if let Some(id) = value("id:") {
                self.event.id = id.to_owned();
            } else if let Some(data) = value("data:") {
                self.event.data.push_str(data);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_pieces_of_any_length() {
        let text = b": hello\n\nid: a-1\ndata: {\"x\":\n\nid: a-2\r\ndata: {}\r\n\r\n";
        for length in 1..text.len() {
            let (mut lines, mut events) = (Lines::default(), Vec::new());
            for piece in text.chunks(length) {
                lines.push(piece);
                events.extend(std::iter::from_fn(|| lines.event()));
            }
            let pairs: Vec<_> = events.iter().map(|it| (&*it.id, &*it.data)).collect();
            assert_eq!(pairs, [("a-1", "{\"x\":"), ("a-2", "{}")], "{length}");
        }
    }
}
