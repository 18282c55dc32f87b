//! Attempts at a message that its source notes on a server.

/// The attempts at one message that a source notes on a server before they start.
///
/// ```
/// use keylane::source::{NotedAttempts, StartLater};
///
/// let mut attempts = NotedAttempts::default();
/// // Each time before the second attempt starts:
/// assert_eq!(attempts.ask(2), Some(0), "the server is to be told");
/// assert_eq!(attempts.ask(2), Some(1), "it is not told yet");
/// assert!(StartLater::until_noted(1).wait() > StartLater::until_noted(0).wait());
/// attempts.note(2);
/// assert_eq!(attempts.ask(2), None, "it starts");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NotedAttempts {
    noted: u32,
    wanted: u32,
    /// How often the `wanted` attempt was asked for.
    asked: u32,
}

impl NotedAttempts {
    /// Returns how often this attempt was asked for before, for
    /// [`StartLater::until_noted`](super::StartLater::until_noted); `None` if it is noted. The
    /// first time, the caller has to tell the server.
    pub fn ask(&mut self, attempt: u32) -> Option<u32> {
        if self.noted >= attempt {
            return None;
        }
        if self.wanted < attempt {
            (self.wanted, self.asked) = (attempt, 0);
        }
        let before = self.asked;
        self.asked = before.saturating_add(1);
        Some(before)
    }

    /// Notes that the server knows of this attempt, and of those before.
    pub fn note(&mut self, attempt: u32) {
        self.noted = self.noted.max(attempt);
    }

    /// Returns the last attempt that is noted; 0 if none is.
    pub fn noted(&self) -> u32 {
        self.noted
    }

    /// Returns the attempt that was asked for last; 0 if none was.
    pub fn wanted(&self) -> u32 {
        self.wanted
    }
}
