//! What the disk can do: the same bytes at the end of a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::stores::message::Message;
use crate::stores::store::Result;

/// A file that grows.
#[derive(Debug)]
pub struct Floor {
    file: File,
    buffer: Vec<u8>,
}

impl Floor {
    /// Opens or creates it.
    ///
    /// # Errors
    ///
    /// Where it cannot be opened.
    pub fn open(directory: &Path) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        Ok(Self {
            file: OpenOptions::new()
                .append(true)
                .create(true)
                .open(directory.join("inbox.log"))?,
            buffer: Vec::new(),
        })
    }

    /// Writes the messages and waits for the disk.
    ///
    /// # Errors
    ///
    /// Where it cannot write.
    pub fn append(&mut self, messages: &[Message]) -> Result {
        self.buffer.clear();
        for message in messages {
            self.buffer
                .extend_from_slice(&message.sequence.to_be_bytes());
            self.buffer.extend_from_slice(&message.record);
        }
        self.file.write_all(&self.buffer)?;
        self.file.sync_data()?;
        Ok(())
    }
}
