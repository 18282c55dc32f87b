//! What the workers do, in one file to which all of them append.
//!
//! Each line is one write to a file that is opened for appending, so the system puts the lines of all
//! processes into one order, and a process that is killed afterwards leaves its lines. No clock is
//! compared with another one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::order::Order;

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// A handler begins.
    Start(Handling),
    /// It has ended. It is written before the source hears of it.
    End(Handling),
    /// This worker is dead: it was killed, and its end was waited for.
    Dead(u32),
}

/// One handling of one order by one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Handling {
    pub(crate) worker: u32,
    pub(crate) partition: i32,
    pub(crate) offset: u64,
    pub(crate) order: (u32, u32),
}

impl Handling {
    pub(crate) fn new(worker: u32, partition: i32, offset: u64, order: Order) -> Self {
        Self {
            worker,
            partition,
            offset,
            order: (order.customer, order.number),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
}

impl Journal {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file })
    }

    pub(crate) fn write(&self, entry: &Entry) -> io::Result<()> {
        let line = serde_json::to_string(entry)? + "\n";
        (&self.file).write_all(line.as_bytes())
    }
}

pub(crate) fn read(path: &Path) -> io::Result<Vec<Entry>> {
    let text = std::fs::read_to_string(path)?;
    let entries = text.lines().map(serde_json::from_str);
    Ok(entries.collect::<Result<_, _>>()?)
}
