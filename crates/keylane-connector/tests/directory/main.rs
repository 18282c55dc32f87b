//! The connector of `CONNECTORS.md`: a directory as a queue. The suite of all connectors runs over
//! it.

use std::fs;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};

use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane_testkit::conformance::{Harness, Site};
use tempfile::TempDir;

#[allow(unreachable_pub, reason = "in a crate of its own it is public")]
mod connector;
use connector::{DirectorySource, publish, read};

struct Directories;

struct Queue {
    directory: TempDir,
    next: AtomicU64,
}

#[keylane::async_trait]
impl Harness for Directories {
    type Site = Queue;

    async fn site(&self, _: &str) -> Result<Queue, BoxError> {
        let directory = tempfile::tempdir()?;
        for folder in ["new", "work", "dead"] {
            fs::create_dir(directory.path().join(folder))?;
        }
        Ok(Queue {
            directory,
            next: AtomicU64::new(1),
        })
    }
}

impl Queue {
    fn messages(&self, folder: &str) -> Result<Vec<RawMessage>, BoxError> {
        let mut all = Vec::new();
        for entry in fs::read_dir(self.directory.path().join(folder))? {
            let path = entry?.path();
            if path.extension().is_none() {
                match read(&path) {
                    // It has moved meanwhile.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    message => all.push(message?),
                }
            }
        }
        Ok(all)
    }
}

#[keylane::async_trait]
impl Site for Queue {
    type Source = DirectorySource;

    async fn source(&self) -> Result<DirectorySource, BoxError> {
        Ok(DirectorySource::new(self.directory.path()))
    }

    async fn publish(&self, messages: Vec<RawMessage>) -> Result<(), BoxError> {
        for message in messages {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            publish(self.directory.path(), number, &message)?;
        }
        Ok(())
    }

    async fn left(&self) -> Result<usize, BoxError> {
        Ok(self.messages("new")?.len() + self.messages("work")?.len())
    }

    async fn letters(&self) -> Result<Vec<RawMessage>, BoxError> {
        self.messages("dead")
    }

    /// A file has a key and a payload.
    fn sayable(&self, mut message: RawMessage) -> RawMessage {
        message.is_tombstone = false;
        message.headers.clear();
        message
    }
}

keylane_testkit::conformance_tests!([flavor = "multi_thread"] Directories);

/// The page shows the code that is tested here.
#[test]
fn the_page_has_this_connector() {
    let page = include_str!("../../../../CONNECTORS.md");
    let code = include_str!("connector.rs");
    assert!(
        page.contains(code),
        "copy `connector.rs` into CONNECTORS.md"
    );
}
