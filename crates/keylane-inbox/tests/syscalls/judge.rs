//! What must hold of a run, judged from its system calls, and from what is in the inbox after it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::child::{Id, id_of, mark};
use crate::files::Files;
use crate::trace::Trace;

/// What was said about each message, in the end.
#[derive(Debug, Default)]
pub(crate) struct Said {
    asked: BTreeSet<Id>,
    pub(crate) acked: BTreeSet<Id>,
    /// It may be gone.
    leaving: BTreeSet<Id>,
    /// It must not wait any more.
    settled: BTreeSet<Id>,
    /// It may be a letter.
    burying: BTreeSet<Id>,
    buried: BTreeSet<Id>,
    pub(crate) refused: usize,
    /// What the first call was told that was refused.
    pub(crate) first_refusal: Option<String>,
    pub(crate) is_whole: bool,
}

/// Reads the log of a run.
///
/// An answer stands on a sync: a message is acked, settled or buried only after its record, or a
/// commit behind the call, was written to the database, and the next sync of the database came back
/// without an error.
pub(crate) fn judge(trace: &Trace, files: &Files) -> Result<Said, String> {
    let (database, journal) = (files.database(), files.journal());
    let mut said = Said::default();
    let mut disk = Disk::default();
    for call in trace.ended.iter().map(|at| &trace.calls[*at]) {
        if call.path == journal && call.name == "writev" {
            let text = call
                .arguments
                .split("iov_base=\"")
                .nth(1)
                .unwrap_or_default();
            let line = text.split('|').next().unwrap_or_default();
            said.hear(line, &mut disk)?;
        }
        if call.path != database {
            continue;
        }
        match &*call.name {
            "pread64" if call.is_ok() => disk.read = call.length_and_place(),
            "pwrite64" => {
                let at = call.length_and_place().ok_or("a write without a place")?;
                disk.write(at, &call.arguments, call.is_ok());
            }
            "fdatasync" | "fsync" => disk.sync(call.is_ok()),
            _ => {}
        }
    }
    Ok(said)
}

/// What of the messages has reached the disk.
#[derive(Default)]
struct Disk {
    /// Where each record was written last.
    places: BTreeMap<Id, Range<u64>>,
    /// Records that were written since the last sync.
    written: BTreeSet<Id>,
    synced: BTreeSet<Id>,
    /// Length and place of the last read.
    read: Option<(u64, u64)>,
    /// Calls that need a commit of their own.
    calls: BTreeMap<(&'static str, Id), Stage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asked,
    Written,
    Synced,
}

impl Disk {
    fn write(&mut self, (length, place): (u64, u64), bytes: &str, is_ok: bool) {
        let range = place..place + length;
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        // What was read and is written as it is holds the records that it held.
        let is_again = self.read == Some((length, place));
        if !is_again {
            self.places.retain(|_, place| !overlaps(place));
        }
        if !is_ok {
            return;
        }
        if let Some(id) = marked(bytes) {
            self.places.insert(id, range);
            self.written.insert(id);
        } else if is_again {
            let covered = self.places.iter().filter(|(_, place)| overlaps(place));
            self.written.extend(covered.map(|(id, _)| *id));
        }
        for stage in self.calls.values_mut().filter(|one| **one == Stage::Asked) {
            *stage = Stage::Written;
        }
    }

    fn sync(&mut self, is_ok: bool) {
        // After a sync that has failed, what was written before it may never reach the disk.
        let written = std::mem::take(&mut self.written);
        if is_ok {
            self.synced.extend(written);
        }
        let stages = self
            .calls
            .values_mut()
            .filter(|one| **one == Stage::Written);
        for stage in stages {
            *stage = if is_ok { Stage::Synced } else { Stage::Asked };
        }
    }
}

/// The message whose record is in these bytes.
fn marked(bytes: &str) -> Option<Id> {
    let (_, rest) = bytes.split_once("message ")?;
    let id = rest.split_once(';')?.0.parse().ok()?;
    bytes.contains(&mark(id)).then_some(id)
}

impl Said {
    fn hear(&mut self, line: &str, disk: &mut Disk) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let id = || {
            rest.parse::<Id>()
                .map_err(|_| format!("not understood: {line}"))
        };
        let confirmed = |call, id| match disk.calls.get(&(call, id)) {
            Some(Stage::Synced) => Ok(()),
            stage => Err(format!("`{line}` without a sync: {stage:?}")),
        };
        match word {
            "asked" => drop(self.asked.insert(id()?)),
            "acked" => {
                let id = id()?;
                if !disk.synced.contains(&id) {
                    return Err(format!("`{line}` without a sync of its record"));
                }
                self.acked.insert(id);
            }
            "settled" => {
                confirmed("settling", id()?)?;
                self.settled.insert(id()?);
            }
            "buried" => {
                confirmed("burying", id()?)?;
                self.buried.insert(id()?);
            }
            "settling" => {
                self.leaving.insert(id()?);
                disk.calls
                    .entry(("settling", id()?))
                    .or_insert(Stage::Asked);
            }
            "burying" => {
                self.burying.insert(id()?);
                disk.calls.entry(("burying", id()?)).or_insert(Stage::Asked);
            }
            "handled" => drop(self.leaving.insert(id()?)),
            "refused" => {
                self.refused += 1;
                self.first_refusal.get_or_insert_with(|| rest.to_owned());
            }
            "intake" | "gave" => {}
            "the" => self.is_whole = true,
            "unfair" => return Err(line.to_owned()),
            _ => return Err(format!("not understood: {line}")),
        }
        Ok(())
    }

    /// Whether the inbox, opened again on a disk that works, holds what it must and nothing else.
    pub(crate) fn check(&self, waiting: &[Vec<u8>], letters: &[Vec<u8>]) -> Result<(), String> {
        let waits = ids(waiting)?;
        let buried = ids(letters)?;
        let found: BTreeSet<Id> = waits.union(&buried).copied().collect();
        let missing = self.acked.iter();
        let missing = missing.filter(|id| !found.contains(id) && !self.leaving.contains(id));
        let unburied = self.buried.difference(&buried);
        let again = self
            .settled
            .union(&self.buried)
            .filter(|id| waits.contains(id));
        let invented = found.iter().filter(|id| !self.asked.contains(id));
        let wrongly_buried = buried.iter().filter(|id| !self.burying.contains(id));
        for (fault, ids) in [
            ("acked and lost", Vec::from_iter(missing)),
            (
                "a letter that was confirmed is lost",
                Vec::from_iter(unburied),
            ),
            ("settled, and it waits again", Vec::from_iter(again)),
            ("it was never sent", Vec::from_iter(invented)),
            ("it was never given up on", Vec::from_iter(wrongly_buried)),
            (
                "both waiting and a letter",
                Vec::from_iter(waits.intersection(&buried)),
            ),
        ] {
            if !ids.is_empty() {
                return Err(format!("{fault}: {ids:?}"));
            }
        }
        Ok(())
    }
}

fn ids(payloads: &[Vec<u8>]) -> Result<BTreeSet<Id>, String> {
    let mut ids = BTreeSet::new();
    for bytes in payloads {
        let id = id_of(bytes);
        if *bytes != crate::child::payload(id) {
            return Err(format!("message {id} has other bytes"));
        }
        if !ids.insert(id) {
            return Err(format!("message {id} is there twice"));
        }
    }
    Ok(ids)
}

/// The judge finds what it is there for.
#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(events: &[&str]) -> Result<Said, String> {
        let files = Files::at("/t");
        let lines = events.iter().map(|event| {
            let (word, rest) = event.split_once(' ').unwrap_or((event, ""));
            let (d, j) = (files.database(), files.journal());
            match word {
                "write" => format!("1 pwrite64(9<{d}>, \"\\1message {rest};\"..., 4096, 8192) = 4096\n"),
                "torn" => format!("1 pwrite64(9<{d}>, \"\\1message {rest};\"..., 4096, 8192) = -1 EIO (x) (INJECTED)\n"),
                "other" => format!("1 pwrite64(9<{d}>, \"\"..., 4096, {rest}) = 4096\n"),
                "read" => format!("1 pread64(9<{d}>, \"\"..., 65536, 0) = 65536\n"),
                "rewrite" => format!("1 pwrite64(9<{d}>, \"\"..., 65536, 0) = 65536\n"),
                "sync" => format!("1 fdatasync(9<{d}>) = 0\n"),
                "fail" => format!("1 fdatasync(9<{d}>) = -1 EIO (Input/output error) (INJECTED)\n"),
                _ => format!("1 writev(3<{j}>, [{{iov_base=\"{event}|\", iov_len=9}}], 1) = 9\n"),
            }
        });
        judge(&Trace::parse(&lines.collect::<String>())?, &files)
    }

    #[test]
    fn an_answer_stands_on_a_sync() {
        let acked = |events: &[&str]| verdict(events).is_ok();
        assert!(acked(&["asked 1", "write 1", "sync", "acked 1"]));
        assert!(!acked(&["asked 1", "write 1", "acked 1", "sync"]));
        assert!(!acked(&["asked 1", "sync", "write 1", "acked 1"]));
        assert!(!acked(&["asked 1", "torn 1", "sync", "acked 1"]));
        assert!(!acked(&["asked 1", "write 2", "sync", "acked 1"]));
        assert!(!acked(&["asked 1", "write 1", "fail", "sync", "acked 1"]));
        assert!(acked(&[
            "asked 1", "write 1", "fail", "write 1", "sync", "acked 1"
        ]));
        let again = [
            "asked 1", "write 1", "fail", "read", "rewrite", "sync", "acked 1",
        ];
        assert!(acked(&again));
        let without_a_read = ["asked 1", "write 1", "fail", "rewrite", "sync", "acked 1"];
        assert!(!acked(&without_a_read));
        let elsewhere = ["asked 1", "write 1", "other 65536", "sync", "acked 1"];
        assert!(acked(&elsewhere));
        assert!(acked(&["settling 1", "write 2", "sync", "settled 1"]));
        assert!(!acked(&["settling 1", "sync", "settled 1"]));
        assert!(!acked(&[
            "settling 1",
            "write 2",
            "fail",
            "sync",
            "settled 1"
        ]));
        assert!(!acked(&["unfair open: Damaged"]));
        assert!(!acked(&["what is this"]));
    }

    #[test]
    fn what_is_left_is_what_was_said() {
        let said = |events: &[&str]| verdict(events).unwrap();
        let bytes = |ids: &[Id]| Vec::from_iter(ids.iter().map(|id| crate::child::payload(*id)));
        let acked = ["asked 1", "write 1", "sync", "acked 1"];
        let check = |said: &Said, waiting: &[Id], letters: &[Id]| {
            said.check(&bytes(waiting), &bytes(letters)).is_ok()
        };
        let waits = said(&acked);
        assert!(check(&waits, &[1], &[]));
        assert!(!check(&waits, &[], &[]));
        assert!(!check(&waits, &[1, 1], &[]));
        assert!(!check(&waits, &[1, 2], &[]));
        assert!(!check(&waits, &[], &[1]));
        let leaves = said(&[&acked[..], &["settling 1"]].concat());
        assert!(check(&leaves, &[1], &[]) && check(&leaves, &[], &[]));
        let gone = said(&[&acked[..], &["settling 1", "write 2", "sync", "settled 1"]].concat());
        assert!(check(&gone, &[], &[]) && !check(&gone, &[1], &[]));
        let letter = said(&[&acked[..], &["burying 1", "write 2", "sync", "buried 1"]].concat());
        assert!(check(&letter, &[], &[1]));
        assert!(!check(&letter, &[1], &[]) && !check(&letter, &[], &[]));
        let unsure = said(&["asked 1"]);
        assert!(check(&unsure, &[1], &[]) && check(&unsure, &[], &[]));
        assert!(unsure.check(&[b"message 1;".to_vec()], &[]).is_err());
    }
}
