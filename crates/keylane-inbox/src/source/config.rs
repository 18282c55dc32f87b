//! How much of an inbox is in memory.

/// How much of an inbox is in memory while a dispatcher consumes it.
///
/// # Examples
///
/// ```
/// use keylane_inbox::SourceSettings;
///
/// let settings = SourceSettings::new().window(16).bytes(16 << 20);
/// # let _ = settings;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SourceSettings {
    pub(super) window: usize,
    pub(super) bytes: usize,
    pub(super) remembered: usize,
}

impl Default for SourceSettings {
    fn default() -> Self {
        Self::new()
    }
}

impl SourceSettings {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self {
            window: 64,
            bytes: 64 << 20,
            remembered: 32 << 20,
        }
    }

    /// Sets the most messages of one key that are handed over and not settled; 64 by default, and
    /// at least 1. Set it below the `lane_capacity` of the dispatcher.
    #[must_use]
    pub fn window(mut self, messages: usize) -> Self {
        self.window = messages.max(1);
        self
    }

    /// Sets the most bytes of payloads that are handed over and not settled; 64 MiB by default. One
    /// message is handed over even if it is larger.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets the most sequences that are remembered of keys whose windows are full; 33,554,432 by
    /// default. One takes two bytes if keys alternate regularly, up to ten if they do not, and some
    /// 40 if messages have versions. At the limit the source reads no further until some settle:
    /// then the keys with full windows delay the others.
    #[must_use]
    pub fn remembered(mut self, sequences: usize) -> Self {
        self.remembered = sequences.max(1);
        self
    }
}
