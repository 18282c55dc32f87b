//! What strace writes down, read again.

use std::collections::HashMap;

/// What strace writes behind a call whose thread has ended meanwhile, with its process.
const GONE: &str = " <ptrace(";

/// A system call on one of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// Which call of this name it is of its thread, from 1: what strace counts.
    pub(crate) count: usize,
    /// The path of the file, or the first one that is named.
    pub(crate) path: String,
    /// As they were printed.
    pub(crate) arguments: String,
    /// `None` if the process ended first.
    pub(crate) result: Option<i64>,
    pub(crate) is_injected: bool,
}

impl Call {
    pub(crate) fn is_ok(&self) -> bool {
        self.result.is_some_and(|result| result >= 0)
    }

    /// The numbers at the end of the arguments: length and place of a read or a write.
    pub(crate) fn length_and_place(&self) -> Option<(u64, u64)> {
        let mut from_the_end = self.arguments.rsplit(", ");
        let place = from_the_end.next()?.parse().ok()?;
        let length = from_the_end.next()?.parse().ok()?;
        Some((length, place))
    }
}

/// A call of a log: where it begins and where it ends among all beginnings and ends.
#[derive(Debug)]
pub(crate) struct Trace {
    /// In the order in which they began.
    pub(crate) calls: Vec<Call>,
    /// Those that came back, in the order in which they did.
    pub(crate) ended: Vec<usize>,
}

impl Trace {
    /// Reads a log that was made with `-f -y`. The error is a line that is not understood: a check
    /// of what was skipped would be worth nothing.
    pub(crate) fn parse(log: &str) -> Result<Self, String> {
        let mut trace = Self {
            calls: Vec::new(),
            ended: Vec::new(),
        };
        let mut counts = HashMap::new();
        let mut unfinished = HashMap::new();
        for line in log.lines() {
            let read = trace.read(line, &mut counts, &mut unfinished);
            read.ok_or_else(|| format!("not understood: {line}"))?;
        }
        Ok(trace)
    }

    fn read<'a>(
        &mut self,
        line: &'a str,
        counts: &mut HashMap<(&'a str, &'a str), usize>,
        unfinished: &mut HashMap<&'a str, usize>,
    ) -> Option<()> {
        let (thread, event) = line.split_once(' ')?;
        let event = event.trim_start();
        if event.starts_with("+++") || event.starts_with("---") {
            return Some(());
        }
        if let Some(resumed) = event.strip_prefix("<... ") {
            let at = unfinished.remove(thread)?;
            let (_, rest) = resumed.split_once(" resumed>")?;
            if rest.contains(GONE) {
                return Some(());
            }
            self.calls[at].arguments.push_str(rest);
            return self.end(at);
        }
        let (name, arguments) = event.split_once('(')?;
        let count = counts.entry((thread, name)).or_default();
        *count += 1;
        let gone = arguments.split_once(GONE).map(|(before, _)| before);
        let begun = arguments.strip_suffix(" <unfinished ...>").or(gone);
        self.calls.push(Call {
            name: name.to_owned(),
            count: *count,
            path: path(begun.unwrap_or(arguments))?,
            arguments: begun.unwrap_or(arguments).to_owned(),
            result: None,
            is_injected: false,
        });
        let at = self.calls.len() - 1;
        if begun.is_none() {
            return self.end(at);
        }
        unfinished.insert(thread, at);
        Some(())
    }

    /// Takes the result from behind the arguments.
    fn end(&mut self, at: usize) -> Option<()> {
        let call = &mut self.calls[at];
        let end = call.arguments.rfind(" = ")?;
        let result = call.arguments[end + 3..].to_owned();
        call.is_injected = result.ends_with("(INJECTED)");
        let number = result.split([' ', '<']).next()?;
        call.result = match number.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).ok(),
            // `?` for a call that did not come back.
            None => number.parse().ok(),
        };
        let arguments = call.arguments[..end].trim_end();
        let length = arguments.strip_suffix(')').map_or(0, str::len);
        call.arguments.truncate(length);
        self.ended.push(at);
        Some(())
    }
}

/// The path of a descriptor, `11</a/b>`, or in the second place, `AT_FDCWD</a>, "/a/b"`; or in the
/// first, `"/a/b"`.
fn path(arguments: &str) -> Option<String> {
    let named = arguments.strip_prefix("AT_FDCWD").and_then(|rest| {
        let (_, rest) = rest.split_once(", ")?;
        rest.strip_prefix('"')
    });
    let path = match named.or_else(|| arguments.strip_prefix('"')) {
        Some(named) => named.split('"').next(),
        None => arguments.split(['<', '>']).nth(1),
    };
    path.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read() {
        let trace = Trace::parse(concat!(
            "7  openat(AT_FDCWD</w>, \"/t/lock\", O_RDWR) = 11</t/lock>\n",
            "7  pwrite64(12</t/m>, \"a, (b) = \\\"\"..., 4096, 8192) = 4096\n",
            "8  fdatasync(12</t/m> <unfinished ...>\n",
            "7  pwrite64(13</t/s>, \"\\0\", 32, 64) = -1 EIO (Input/output error) (INJECTED)\n",
            "8  <... fdatasync resumed>)           = 0\n",
            "8  pread64(12</t/m>,  <unfinished ...>\n",
            "7  rename(\"/t/a.new\", \"/t/a\") = 0\n",
            "8  <... pread64 resumed>\"..\", 320, 0) = 320\n",
            "7  fcntl(12</t/m>, F_GETFD) = 0x1 (flags FD_CLOEXEC)\n",
            "8  fdatasync(12</t/m>) = ?\n",
            "7  pread64(12</t/m>,  <ptrace(SYSCALL):No such process>\n",
            "8  +++ exited with 0 +++\n",
        ));
        let trace = trace.unwrap();
        let seen: Vec<_> = trace
            .calls
            .iter()
            .map(|call| {
                (
                    &*call.name,
                    call.count,
                    &*call.path,
                    call.result,
                    call.is_injected,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("openat", 1, "/t/lock", Some(11), false),
                ("pwrite64", 1, "/t/m", Some(4_096), false),
                ("fdatasync", 1, "/t/m", Some(0), false),
                ("pwrite64", 2, "/t/s", Some(-1), true),
                ("pread64", 1, "/t/m", Some(320), false),
                ("rename", 1, "/t/a.new", Some(0), false),
                ("fcntl", 1, "/t/m", Some(1), false),
                ("fdatasync", 2, "/t/m", None, false),
                ("pread64", 1, "/t/m", None, false),
            ]
        );
        assert_eq!(trace.ended, [0, 1, 3, 2, 5, 4, 6, 7]);
        let places = [1, 3, 4].map(|at| trace.calls[at].length_and_place().unwrap());
        assert_eq!(places, [(4_096, 8_192), (32, 64), (320, 0)]);
    }
}
