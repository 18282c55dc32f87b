//! A history to be made, as a stream for `git fast-import`: no working tree, so any name will do.

use std::fmt::Write as _;

/// Commits, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Import {
    stream: Vec<u8>,
    commits: u64,
}

impl Import {
    /// The next commit of `branch`; the first one of a branch that nothing started is a root.
    pub(crate) fn commit(&mut self, branch: &str, edits: &[Edit]) -> &mut Self {
        self.push(branch, "", edits)
    }

    /// A commit of `branch` whose second parent is `other`. The edits are against the first.
    pub(crate) fn merge(&mut self, branch: &str, other: &str, edits: &[Edit]) -> &mut Self {
        self.push(branch, &format!("merge refs/heads/{other}\n"), edits)
    }

    /// Lets `branch` start where `from` stands.
    pub(crate) fn branch(&mut self, branch: &str, from: &str) -> &mut Self {
        let reset = format!("reset refs/heads/{branch}\nfrom refs/heads/{from}\n\n");
        self.stream.extend(reset.as_bytes());
        self
    }

    pub(crate) fn into_stream(self) -> Vec<u8> {
        self.stream
    }

    fn push(&mut self, branch: &str, parents: &str, edits: &[Edit]) -> &mut Self {
        self.commits += 1;
        let time = 1_000_000_000 + self.commits;
        let mut commit = format!("commit refs/heads/{branch}\n");
        let _ = write!(
            commit,
            "committer A <a@example.org> {time} +0000\ndata 1\nx\n{parents}"
        );
        for edit in edits {
            edit.write(&mut commit);
        }
        commit.push('\n');
        self.stream.extend(commit.as_bytes());
        self
    }
}

/// What a commit does to one path.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    Put {
        path: Vec<u8>,
        mode: &'static str,
        content: String,
    },
    Submodule {
        path: Vec<u8>,
        commit: String,
    },
    Delete {
        path: Vec<u8>,
    },
}

impl Edit {
    pub(crate) fn file(path: impl AsRef<[u8]>, content: &str) -> Self {
        Self::put(path, "100644", content)
    }

    pub(crate) fn executable(path: impl AsRef<[u8]>, content: &str) -> Self {
        Self::put(path, "100755", content)
    }

    pub(crate) fn link(path: impl AsRef<[u8]>, target: &str) -> Self {
        Self::put(path, "120000", target)
    }

    /// A submodule at the commit whose name is `digit` forty times.
    pub(crate) fn submodule(path: impl AsRef<[u8]>, digit: char) -> Self {
        let commit = String::from(digit).repeat(40);
        Self::Submodule {
            path: path.as_ref().to_owned(),
            commit,
        }
    }

    pub(crate) fn delete(path: impl AsRef<[u8]>) -> Self {
        Self::Delete {
            path: path.as_ref().to_owned(),
        }
    }

    fn put(path: impl AsRef<[u8]>, mode: &'static str, content: &str) -> Self {
        Self::Put {
            path: path.as_ref().to_owned(),
            mode,
            content: content.to_owned(),
        }
    }

    fn write(&self, stream: &mut String) {
        let _ = match self {
            Self::Put {
                path,
                mode,
                content,
            } => {
                let (path, length) = (quoted(path), content.len());
                writeln!(stream, "M {mode} inline {path}\ndata {length}\n{content}")
            }
            Self::Submodule { path, commit } => {
                writeln!(stream, "M 160000 {commit} {}", quoted(path))
            }
            Self::Delete { path } => writeln!(stream, "D {}", quoted(path)),
        };
    }
}

/// Every byte but the plainest as an octal escape.
fn quoted(path: &[u8]) -> String {
    let mut quoted = String::from('"');
    for byte in path {
        let _ = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' => {
                write!(quoted, "{}", char::from(*byte))
            }
            _ => write!(quoted, "\\{byte:03o}"),
        };
    }
    quoted + "\""
}
