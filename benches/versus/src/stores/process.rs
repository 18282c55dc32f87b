//! What the system says of this process and its files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Bytes of a directory.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Size {
    /// As the files say.
    pub length: u64,
    /// On the disk.
    pub blocks: u64,
}

/// The bytes of all files below a directory.
pub fn size(directory: &Path) -> Size {
    let mut size = Size::default();
    let Ok(entries) = fs::read_dir(directory) else {
        return size;
    };
    for entry in entries.flatten() {
        // A file may be gone by now: fjall removes some in the background.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if metadata.is_dir() {
            let below = self::size(&entry.path());
            size.length += below.length;
            size.blocks += below.blocks;
        } else {
            size.length += metadata.len();
            size.blocks += metadata.blocks() * 512;
        }
    }
    size
}

/// The most memory this process has had, in bytes.
pub fn high_water() -> u64 {
    field("/proc/self/status", "VmHWM:").unwrap_or_default() * 1024
}

/// The bytes this process has had written to the disk.
pub fn written() -> u64 {
    field("/proc/self/io", "write_bytes:").unwrap_or_default()
}

fn field(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
