//! A file in which all processes of a test write what they do. It outlives them.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the time, by the monotonic clock that all processes of a machine share. The system is
/// asked without the C library, so a process whose clock a test has set sees the same time.
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// The end of the file. Clones write to the same one.
#[derive(Clone, Debug)]
pub struct Journal(Arc<File>);

impl Journal {
    /// Opens a file to append to it, and creates it if there is none.
    ///
    /// # Panics
    ///
    /// Panics if it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Self {
        let file = OpenOptions::new().append(true).create(true).open(path);
        Self(Arc::new(file.expect("a journal")))
    }

    /// Writes a line: what this process does now, and the numbers that belong to it.
    ///
    /// # Panics
    ///
    /// Panics if it cannot be written.
    pub fn write(&self, what: char, numbers: &[u64]) {
        let mut line = format!("{what} {} {}", std::process::id(), now().as_nanos());
        for number in numbers {
            let _ = write!(line, " {number}");
        }
        line.push('\n');
        // A single write, which is not interleaved with others, and outlives this process.
        (&*self.0).write_all(line.as_bytes()).expect("a line");
    }
}

/// A line of a journal with `N` numbers.
#[derive(Clone, Copy, Debug)]
pub struct Line<const N: usize> {
    /// What the process did.
    pub what: char,
    /// The id of the process.
    pub process: u32,
    /// When it did that. See [`now`].
    pub at: Duration,
    /// What belongs to it.
    pub numbers: [u64; N],
}

impl<const N: usize> Line<N> {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let what = words.next()?.parse().ok()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let (process, at) = (u32::try_from(number()?).ok()?, number()?);
        let mut numbers = [0; N];
        for place in &mut numbers {
            *place = number()?;
        }
        words.next().is_none().then_some(Self {
            what,
            process,
            at: Duration::from_nanos(at),
            numbers,
        })
    }
}

/// The lines that all processes have written so far.
#[derive(Debug)]
pub struct Reader<const N: usize> {
    file: File,
    /// The beginning of an incomplete line.
    rest: String,
    lines: Vec<Line<N>>,
}

impl<const N: usize> Reader<N> {
    /// Opens a journal. Nothing is read yet.
    ///
    /// # Panics
    ///
    /// Panics if it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Self {
        Self {
            file: File::open(path).expect("a journal"),
            rest: String::new(),
            lines: Vec::new(),
        }
    }

    /// Reads new lines, and returns them.
    ///
    /// # Panics
    ///
    /// Panics if a line is not one of a [`Journal`], with `N` numbers.
    pub fn read(&mut self) -> &[Line<N>] {
        self.file.read_to_string(&mut self.rest).expect("text");
        let whole = self.rest.rfind('\n').map_or(0, |end| end + 1);
        let rest = self.rest.split_off(whole);
        let text = std::mem::replace(&mut self.rest, rest);
        let known = self.lines.len();
        let parse = |line| Line::parse(line).unwrap_or_else(|| panic!("not a line: {line}"));
        self.lines.extend(text.lines().map(parse));
        &self.lines[known..]
    }

    /// Reads the rest, and returns all lines in the order in which they were written.
    ///
    /// # Panics
    ///
    /// Panics like [`read`](Self::read).
    pub fn into_written(mut self) -> Vec<Line<N>> {
        self.read();
        self.lines
    }

    /// Reads the rest, and returns all lines in the order of their times.
    ///
    /// # Panics
    ///
    /// Panics like [`read`](Self::read).
    pub fn into_lines(mut self) -> Vec<Line<N>> {
        self.read();
        // Those of one process are in its order already.
        self.lines.sort_by_key(|line| line.at);
        self.lines
    }
}
