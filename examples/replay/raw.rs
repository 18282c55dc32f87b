//! What git prints, read strictly: anything unexpected is an error, never a guess.
//!
//! With `-z` every field ends in a NUL byte and no name is quoted. A history is a run of these:
//!
//! ```text
//! commit <id> NUL
//! LF? :<mode> <mode> <id> <id> <A|D|M|T> NUL <path> NUL     once per changed path
//! ```
//!
//! and a tree of these: `<mode> SP <type> SP <id> TAB <path> NUL`.

use crate::event::{Change, Entry, ObjectId, RepoPath};

/// One field of a history, understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// A commit begins; its changes follow.
    Commit(ObjectId),
    /// The first half of a change; its path is the next field.
    Modes,
    Change(Change),
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("cannot read {what} in git's output: {:?}", String::from_utf8_lossy(.found))]
pub(crate) struct RawError {
    what: &'static str,
    found: Vec<u8>,
}

impl RawError {
    pub(crate) fn new(what: &'static str, found: &[u8]) -> Self {
        Self {
            what,
            found: found.to_vec(),
        }
    }
}

/// The fields of `git log --raw -z`, one after the other.
#[derive(Debug, Default)]
pub(crate) struct HistoryReader {
    /// Set between the two halves of a change. A path may look like anything at all, so only this
    /// tells a path from a commit.
    pending: Option<(Option<Entry>, Option<Entry>)>,
    in_commit: bool,
}

impl HistoryReader {
    /// Takes one field without its NUL.
    pub(crate) fn field(&mut self, field: &[u8]) -> Result<Field, RawError> {
        if let Some((before, after)) = self.pending.take() {
            let path = path(field)?;
            return Ok(Field::Change(Change {
                path,
                before,
                after,
            }));
        }
        // Git sets the changes apart from the commit's own line.
        let line = field.strip_prefix(b"\n").unwrap_or(field);
        if let Some(id) = line.strip_prefix(b"commit ") {
            self.in_commit = true;
            let id = ObjectId::from_hex(id).ok_or_else(|| RawError::new("a commit", field))?;
            return Ok(Field::Commit(id));
        }
        let modes = line
            .strip_prefix(b":")
            .filter(|_| self.in_commit)
            .and_then(modes);
        self.pending = Some(modes.ok_or_else(|| RawError::new("a change", field))?);
        Ok(Field::Modes)
    }

    /// Whether the output may end here.
    pub(crate) fn is_complete(&self) -> bool {
        self.pending.is_none()
    }
}

/// One record of `git ls-tree -r -z`, without its NUL.
pub(crate) fn tree_entry(record: &[u8]) -> Result<(RepoPath, Entry), RawError> {
    let bad = || RawError::new("a tree entry", record);
    // The first tab ends the fixed part; later ones belong to the name.
    let tab = record
        .iter()
        .position(|byte| *byte == b'\t')
        .ok_or_else(bad)?;
    let mut words = record[..tab].split(|byte| *byte == b' ');
    let (Some(mode), Some(_kind), Some(id), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad());
    };
    let entry = entry(mode, id).ok_or_else(bad)?.ok_or_else(bad)?;
    Ok((path(&record[tab + 1..])?, entry))
}

/// `<mode> <mode> <id> <id> <status>`, where the status must agree with what the modes say.
fn modes(line: &[u8]) -> Option<(Option<Entry>, Option<Entry>)> {
    let words: [&[u8]; 5] = line
        .split(|byte| *byte == b' ')
        .collect::<Vec<_>>()
        .try_into()
        .ok()?;
    let before = entry(words[0], words[2])?;
    let after = entry(words[1], words[3])?;
    let agrees = match words[4] {
        b"A" => before.is_none() && after.is_some(),
        b"D" => before.is_some() && after.is_none(),
        b"M" | b"T" => before.is_some() && after.is_some(),
        // Renames and copies have a second path, and were asked not to be looked for.
        _ => false,
    };
    agrees.then_some((before, after))
}

/// The outer `None`: unreadable. The inner one: nothing stands there.
fn entry(mode: &[u8], id: &[u8]) -> Option<Option<Entry>> {
    if mode.len() != 6 {
        return None;
    }
    let mode = u32::from_str_radix(str::from_utf8(mode).ok()?, 8).ok()?;
    let object = ObjectId::from_hex(id)?;
    match (mode, object.is_null()) {
        (0, true) => Some(None),
        (0, false) | (_, true) => None,
        (_, false) => Some(Some(Entry { mode, object })),
    }
}

fn path(bytes: &[u8]) -> Result<RepoPath, RawError> {
    if bytes.is_empty() {
        return Err(RawError::new("a path", bytes));
    }
    Ok(RepoPath::new(bytes))
}
