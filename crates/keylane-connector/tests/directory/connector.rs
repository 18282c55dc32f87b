//! A directory as a queue. A producer puts a file into `new/`; `work/` has the messages of the
//! process that has locked the directory, and `dead/` the letters.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use keylane_connector::{
    Changes, End, Entry, Handed, Memory, Reply, Rest, System, Why, WorkerSource, worker_source,
};
use keylane_source::{Features, RawMessage};

worker_source! {
    /// The messages of a directory, as a source for a dispatcher.
    pub struct DirectorySource(Directory) of u64;
}

impl DirectorySource {
    /// Creates a source of this directory.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(WorkerSource::new(Directory(path.into())))
    }
}

/// Writes a message. Messages are handed over in the order of their numbers.
pub fn publish(path: &Path, number: u64, message: &RawMessage) -> io::Result<()> {
    let key = message.key.as_deref();
    let length = key.map_or(u32::MAX, |key| key.len() as u32).to_be_bytes();
    let bytes = [&length, key.unwrap_or_default(), &message.payload].concat();
    // It appears as a whole.
    let written = path.join(number.to_string());
    fs::write(&written, bytes)?;
    fs::rename(written, path.join("new").join(format!("{number}-0")))
}

/// Reads a message.
pub fn read(file: &Path) -> io::Result<RawMessage> {
    let mut rest = Bytes::from(fs::read(file)?);
    Ok(match rest.try_get_u32().map_err(io::Error::other)? {
        u32::MAX => RawMessage::new(rest),
        length => {
            let key = rest.split_to(rest.len().min(length as usize));
            RawMessage::new(rest).key(key)
        }
    })
}

#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    /// Finds the messages in a folder, in their order, with the attempts that are noted.
    fn list(&self, folder: &str) -> io::Result<Vec<(u64, u32)>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(self.0.join(folder))? {
            let name = entry?.file_name();
            let parts = name.to_str().and_then(|name| name.split_once('-'));
            if let Some((number, attempts)) = parts
                && let (Ok(number), Ok(attempts)) = (number.parse(), attempts.parse())
            {
                all.push((number, attempts));
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    fn file(&self, folder: &str, (number, attempts): (u64, u32)) -> PathBuf {
        self.0.join(folder).join(format!("{number}-{attempts}"))
    }

    fn apply(&self, changes: &Changes<u64>) -> io::Result<()> {
        for of in self.list("work")? {
            let noted = changes.notes.iter().rfind(|(number, _)| *number == of.0);
            let now = *noted.unwrap_or(&of);
            if changes.settles(&of.0) {
                fs::remove_file(self.file("work", of))?;
            } else if changes.again.contains(&of.0) {
                fs::rename(self.file("work", of), self.file("new", now))?;
            } else if now != of {
                fs::rename(self.file("work", of), self.file("work", now))?;
            }
        }
        Ok(())
    }

    fn take(&self, most: usize) -> io::Result<Vec<Handed<u64>>> {
        let mut taken = Vec::new();
        for of in self.list("new")?.into_iter().take(most) {
            let message = read(&self.file("new", of))?;
            fs::rename(self.file("new", of), self.file("work", of))?;
            // An attempt that is not noted does not start: all are counted.
            let (id, attempts, noted) = (of.0, of.1, of.1);
            taken.push(Handed {
                id,
                message,
                attempts,
                noted,
            });
        }
        Ok(taken)
    }

    fn put_all_back(&self) -> io::Result<()> {
        let all = self.list("work")?.into_iter();
        let again = all.map(|(number, _)| number).collect();
        self.apply(&Changes {
            again,
            ..Changes::default()
        })
    }
}

type Error = Arc<io::Error>;

fn failed(error: io::Error) -> End<Error> {
    End::Failed(error.into())
}

impl System for Directory {
    type Id = u64;
    type Worker = ();
    /// The lock of the directory. Without it no worker takes anything.
    type Link = Arc<File>;
    type Error = Error;

    fn name(&self) -> String {
        format!("directory {}", self.0.display())
    }

    fn features(&self) -> Features {
        Features::new()
            .survives_restart()
            .counts_attempts()
            .dead_letters()
    }

    /// The lock lasts as long as the process, so this only says how often an idle source looks.
    fn lease(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn worker(&self) {}

    async fn connect(&self) -> Result<Arc<File>, Error> {
        let lock = File::create(self.0.join("lock"))?;
        lock.try_lock().map_err(io::Error::from)?;
        Ok(Arc::new(lock))
    }

    async fn enter(
        &self,
        _: &mut Arc<File>,
        (): &(),
        entry: Entry<'_, u64>,
    ) -> Result<Memory, End<Error>> {
        self.apply(entry.settled).map_err(failed)?;
        self.put_all_back().map_err(failed)?;
        Ok(Memory::Whole)
    }

    // Calls of a local disk are short. For one that is not, use `tokio::task::spawn_blocking`.
    async fn exchange(
        &self,
        _: &mut Arc<File>,
        (): &(),
        changes: &Changes<u64>,
        most: usize,
    ) -> Result<Reply<u64>, End<Error>> {
        self.apply(changes).map_err(failed)?;
        let messages = self.take(most).map_err(failed)?;
        let rest = match messages.len() == most {
            true => Rest::More,
            false => Rest::Nothing,
        };
        let came = changes.again.len();
        Ok(Reply {
            messages,
            came,
            rest,
        })
    }

    async fn keep_letter(
        &self,
        _: &mut Arc<File>,
        (): &(),
        id: &u64,
        why: &Why,
    ) -> Result<bool, Error> {
        let is_it = |of: &(u64, u32)| of.0 == *id;
        if let Some(of) = self.list("work")?.into_iter().find(is_it) {
            fs::write(self.0.join(format!("dead/{id}.why")), &why.error)?;
            fs::rename(self.file("work", of), self.file("dead", of))?;
        }
        // Also if it was kept before, and the answer was lost.
        Ok(self.list("dead")?.iter().any(is_it))
    }

    async fn leave(&self, _: &mut Arc<File>, (): &()) -> Result<(), Error> {
        Ok(self.put_all_back()?)
    }
}
