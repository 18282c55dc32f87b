//! The calls of a stream's owner to the server. In the same step, each call first checks that this
//! is still the owner, and that the stream and its group are still those that it took over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use keylane_leases::Token;
use redis::{Cmd, RedisResult, Value, cmd, pipe};

use super::answer::{
    Failure, Fields, bytes, entries, fields, id, incomprehensible, list, number, read_of_one, tuple,
};
use super::config::StreamStart;
use super::core::Page;
use super::core::{Known, Resume, Seen};
use super::id::EntryId;
use super::origin::Origin;
use super::script::{CHECK, CHECKED, LEAVE, LETTER, PAGE, TAKE, TELL, TRIM, run};
use crate::link::Link;
use crate::names;
use crate::script::Script;

/// A stream and its group.
#[derive(Debug)]
pub(super) struct Place {
    /// Its index among the streams of the source.
    pub(super) number: u32,
    pub(super) stream: Bytes,
    pub(super) group: Bytes,
    /// The key with the token of the owner.
    owner: Bytes,
}

impl Place {
    pub(super) fn new(number: u32, stream: &Bytes, group: &Bytes) -> Self {
        Self {
            number,
            stream: stream.clone(),
            group: group.clone(),
            owner: names::beside(stream, &[b"owner:", group]),
        }
    }

    /// Returns the name of the stream for messages and logs.
    pub(super) fn name(&self) -> String {
        String::from_utf8_lossy(&self.stream).into_owned()
    }

    /// Returns the name of the stream's lease.
    pub(super) fn lease(&self) -> Bytes {
        // The name contains the length: group and stream may have any bytes.
        let length = self.group.len().to_string();
        let (group, stream): (&[u8], &[u8]) = (&self.group, &self.stream);
        let parts = [
            b"keylane-stream:",
            length.as_bytes(),
            b":",
            group,
            b":",
            stream,
        ];
        parts.concat().into()
    }
}

/// What happens to acked entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acked {
    Stay,
    /// `XACKDEL` deletes them when all groups have acked them.
    Deleted,
    /// They are deleted if there is no other group.
    DeletedIfAlone,
}

impl Acked {
    fn word(self) -> &'static str {
        match self {
            Self::Stay => "ack",
            Self::Deleted => "ackdel",
            Self::DeletedIfAlone => "del",
        }
    }
}

/// An entry with its attempts.
#[derive(Debug)]
pub(super) struct Found {
    /// The attempts that were noted.
    pub(super) attempts: u32,
    /// It was not handed over before.
    pub(super) is_new: bool,
    pub(super) fields: Fields,
}

/// The server refuses the call of a former owner: there is a later one, or the stream or its group
/// has [changed](StreamLease::has_changed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// The result of a take-over.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TakenOver {
    /// The group existed.
    Well,
    /// The group was created.
    Made,
    /// The group existed without this process's progress: it was set back.
    SetBack,
    /// The server has a higher token.
    Refused(Bytes),
}

/// Pending entries that were taken.
pub(super) struct Paged {
    pub(super) page: Page<Found>,
    /// How many entries had no body.
    pub(super) gone: u64,
    /// The last entry that the group has read, if it exists and was asked for.
    pub(super) seen: Option<Seen>,
}

/// The result of writing a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letter {
    /// The letter is written, and its entry acked.
    Kept,
    /// The entry has thousands of fields, too many for one step.
    TooWide,
    /// The entry is not pending here: it was acked, or taken away.
    NotOurs,
}

/// Identifies a lease of a stream: the stream, the token, and its number under this token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TenureId {
    pub(super) stream: u32,
    token: Arc<str>,
    consumer: Arc<str>,
}

/// One owner of a stream, as long as no other one has a higher token.
#[derive(Clone)]
pub(super) struct StreamLease {
    pub(super) place: Arc<Place>,
    /// The name of its process.
    name: Arc<str>,
    pub(super) token: Arc<str>,
    /// The consumer. Each take-over has another one.
    pub(super) consumer: Arc<str>,
    /// The origin of its messages.
    pub(super) origin: Arc<Origin>,
    acked: Acked,
    link: Link,
    /// The history of the server at the take-over.
    history: Arc<str>,
    /// What this process knew of the stream at the take-over.
    pub(super) known: Arc<Known>,
    has_changed: Arc<AtomicBool>,
}

impl StreamLease {
    pub(super) fn new(
        place: Arc<Place>,
        name: &str,
        token: Token,
        acked: Acked,
        link: Link,
    ) -> Self {
        let token = token.to_string();
        Self {
            origin: Arc::new(Origin::new(&token, &place.stream)),
            place,
            name: name.into(),
            token: token.into(),
            consumer: "".into(),
            acked,
            link,
            history: "".into(),
            known: Arc::default(),
            has_changed: Arc::default(),
        }
    }

    /// Whether the server has reported a change: the stream, its group or the consumer was removed
    /// or created again, or the server goes on with another history. Then the entries that were
    /// handed over are not those in the server, even if they have the same ids.
    pub(super) fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Relaxed)
    }

    /// Returns the answer if the server still accepts this owner.
    fn standing(&self, answer: i64) -> Result<i64, Refused> {
        match answer {
            -1 => Err(Refused),
            -2 => {
                self.has_changed.store(true, Ordering::Relaxed);
                Err(Refused)
            }
            answer => Ok(answer),
        }
    }

    pub(super) fn id(&self) -> TenureId {
        TenureId {
            stream: self.place.number,
            token: Arc::clone(&self.token),
            consumer: Arc::clone(&self.consumer),
        }
    }

    pub(super) async fn run(
        &self,
        script: &Script,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, Failure> {
        self.run_with(script, None, arguments).await
    }

    async fn run_with(
        &self,
        script: &Script,
        other_key: Option<&[u8]>,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, Failure> {
        let head = |command: &mut Cmd| {
            let keys = 2 + usize::from(other_key.is_some());
            command
                .arg(keys)
                .arg(&*self.place.stream)
                .arg(&*self.place.owner);
            command.arg(other_key).arg(&*self.place.group);
            command.arg(&*self.consumer).arg(&*self.token);
            command.arg(&*self.history);
            arguments(command);
        };
        run(script, &self.link, head).await
    }

    /// Runs a script that answers with a number.
    async fn count(
        &self,
        script: &Script,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Result<i64, Refused>, Failure> {
        let answer = number(&self.run(script, arguments).await?);
        Ok(self.standing(answer.ok_or_else(incomprehensible)?))
    }

    /// Executes commands in one step, if the stream is ours. Returns the answer of each.
    async fn checked(&self, commands: Vec<Cmd>) -> Result<Result<Vec<Value>, Refused>, Failure> {
        let mut answers = match self.link.is_cluster() {
            false => self.in_transaction(commands).await?,
            true => {
                let answers = self.run(&CHECKED, |all| {
                    for command in &commands {
                        all.arg(command.args_iter().count());
                        command.args_iter().for_each(|arg| {
                            if let redis::Arg::Simple(word) = arg {
                                all.arg(word);
                            }
                        });
                    }
                });
                let answers = list(answers.await?).ok_or_else(incomprehensible)?;
                answers.into_iter().map(Value::extract_error).collect()
            }
        }
        .into_iter();
        let stands = answers.next().ok_or_else(incomprehensible)?;
        let stands = stands.map_err(|error| self.link.named(error))?;
        let stands = number(&stands).ok_or_else(incomprehensible)?;
        if let Err(refused) = self.standing(stands) {
            return Ok(Err(refused));
        }
        let answers: RedisResult<_> = answers.collect();
        Ok(Ok(answers.map_err(|error| self.link.named(error))?))
    }

    /// Executes commands as a transaction. A script would convert the entries into its own numbers
    /// and strings and back, which is three times the work for the server. The check is sent with
    /// its whole code: if the server did not know it, the commands behind it would pass.
    ///
    /// `MULTI` is not that of the client, whose connection panics in debug builds if it is refused.
    async fn in_transaction(&self, commands: Vec<Cmd>) -> Result<Vec<RedisResult<Value>>, Failure> {
        let mut all = pipe();
        all.ignore_errors().cmd("MULTI");
        let Place {
            stream,
            owner,
            group,
            ..
        } = &*self.place;
        let check = all.cmd("EVAL").arg(CHECK.code()).arg(2);
        check.arg(&**stream).arg(&**owner).arg(&**group);
        check
            .arg(&*self.consumer)
            .arg(&*self.token)
            .arg(&*self.history);
        for command in commands {
            all.add_command(command);
        }
        all.cmd("EXEC");
        let answers: Vec<RedisResult<Value>> = (all.query_async(&mut self.link.clone()).await)
            .map_err(|error: redis::RedisError| self.link.named(error))?;
        // The first one that was refused says why there is no transaction.
        let answers: RedisResult<Vec<Value>> = answers.into_iter().collect();
        let executed =
            (answers.map_err(|error| Failure::of_transaction(self.link.named(error)))?).pop();
        let executed = list(executed.unwrap_or(Value::Nil)).ok_or_else(incomprehensible)?;
        Ok(executed.into_iter().map(Value::extract_error).collect())
    }

    /// Takes the stream over. Creates it and its group if they do not exist. Restores the progress
    /// that this process knows from an earlier lease, if the stream is the same.
    pub(super) async fn take(
        &mut self,
        start: StreamStart,
        resume: Option<&Resume>,
    ) -> Result<TakenOver, Failure> {
        let start = match start {
            StreamStart::Earliest => "0",
            StreamStart::Latest => "$",
        };
        static TAKEN: AtomicU64 = AtomicU64::new(1);
        let count = TAKEN.fetch_add(1, Ordering::Relaxed);
        self.consumer = format!("{}-{}-{count}", self.name, self.token).into();
        let answer = self.run(&TAKE, |command| {
            command.arg(start);
            let Some(resume) = resume else {
                command.arg("").arg("").arg("");
                return;
            };
            command.arg(resume.known.settled.to_string());
            command.arg(&*resume.token).arg(&*resume.consumer);
            if let Some(Seen { id, fields }) = &resume.known.seen {
                command.arg(id.to_string());
                for (name, value) in fields {
                    command.arg(&**name).arg(&**value);
                }
            }
        });
        let mut answer = list(answer.await?)
            .ok_or_else(incomprehensible)?
            .into_iter();
        let mut next = || answer.next().ok_or_else(incomprehensible);
        if number(&next()?) == Some(0) {
            return Ok(TakenOver::Refused(bytes(next()?).unwrap_or_default()));
        }
        let taken = match number(&next()?) {
            Some(0) => TakenOver::Well,
            Some(1) => TakenOver::Made,
            Some(2) => TakenOver::SetBack,
            _ => return Err(incomprehensible()),
        };
        let history = bytes(next()?).unwrap_or_default();
        self.history = String::from_utf8_lossy(&history).into();
        let is_known = number(&next()?) == Some(1);
        let known = resume.filter(|_| is_known).map(|resume| &resume.known);
        self.known = Arc::new(known.cloned().unwrap_or_default());
        self.has_changed = Arc::default();
        Ok(taken)
    }

    /// Takes pending entries between these two.
    pub(super) async fn page(
        &self,
        above: EntryId,
        below: Option<EntryId>,
        most: usize,
        most_bytes: usize,
        tidies: bool,
    ) -> Result<Result<Paged, Refused>, Failure> {
        let Some(from) = above.after() else {
            return Ok(Ok(Paged::empty(above)));
        };
        let to = below.map_or_else(|| "+".to_owned(), |id| format!("({id}"));
        let answer = self.run(&PAGE, |command| {
            command.arg(from.to_string()).arg(&to).arg(most);
            command.arg(most_bytes).arg(u8::from(tidies));
        });
        let mut answer = list(answer.await?).ok_or_else(incomprehensible)?;
        if answer.is_empty() {
            return Err(incomprehensible());
        }
        let stands = number(&answer.remove(0)).ok_or_else(incomprehensible)?;
        if let Err(refused) = self.standing(stands) {
            return Ok(Err(refused));
        }
        Ok(Ok(paged(answer).ok_or_else(incomprehensible)?))
    }

    /// Reads new entries, and asks for the first pending entry above this one, of any consumer.
    pub(super) async fn read(
        &self,
        above: EntryId,
        most: usize,
    ) -> Result<Result<(Vec<(EntryId, Found)>, Option<EntryId>), Refused>, Failure> {
        let Place { stream, group, .. } = &*self.place;
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(&**group).arg(&*self.consumer);
        read.arg("COUNT")
            .arg(most)
            .arg("STREAMS")
            .arg(&**stream)
            .arg(">");
        let mut commands = vec![read];
        if let Some(from) = above.after() {
            let mut pending = cmd("XPENDING");
            pending.arg(&**stream).arg(&**group);
            pending.arg(from.to_string()).arg("+").arg(1);
            commands.push(pending);
        }
        let answers = match self.checked(commands).await? {
            Ok(answers) => answers,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let parse = |read, pending| {
            let read = read_of_one(read)?.into_iter().map(|(id, fields)| {
                let found = Found {
                    attempts: 0,
                    is_new: true,
                    fields,
                };
                (id, found)
            });
            let first = match list(pending)?.into_iter().next() {
                None => None,
                Some(first) => {
                    let [first] = tuple(first)?;
                    Some(id(&first)?)
                }
            };
            Some((read.collect(), first))
        };
        let (read, pending) = (next(), next());
        Ok(Ok(parse(read, pending).ok_or_else(incomprehensible)?))
    }

    /// Acks some entries, and notes attempts at others.
    pub(super) async fn tell(
        &self,
        acks: &[EntryId],
        notes: impl Iterator<Item = (EntryId, u32)> + Clone,
    ) -> Result<Result<(), Refused>, Failure> {
        let told = self.count(&TELL, |command| {
            command.arg(self.acked.word()).arg(acks.len());
            for id in acks {
                command.arg(id.to_string());
            }
            for (id, attempts) in notes.clone() {
                command.arg(id.to_string()).arg(attempts.saturating_add(1));
            }
        });
        Ok(told.await?.map(drop))
    }

    /// Writes the letter of an entry, with these additional fields, into a stream in the slot of
    /// this one, and acks the entry.
    pub(super) async fn letter(
        &self,
        letters: &[u8],
        id: EntryId,
        why: &[(String, Bytes)],
    ) -> Result<Result<Letter, Refused>, Failure> {
        let answer = self.run_with(&LETTER, Some(letters), |command| {
            command.arg(self.acked.word()).arg(id.to_string());
            for (name, value) in why {
                command.arg(name).arg(&**value);
            }
        });
        let answer = number(&answer.await?).ok_or_else(incomprehensible)?;
        Ok(self.standing(answer).map(|answer| match answer {
            0 => Letter::NotOurs,
            -3 => Letter::TooWide,
            _ => Letter::Kept,
        }))
    }

    /// Writes the letter of an entry into a stream in another slot. It may be written twice. The
    /// entry is not acked.
    pub(super) async fn letter_elsewhere(
        &self,
        letters: &[u8],
        id: EntryId,
        why: &[(String, Bytes)],
    ) -> Result<Result<Letter, Refused>, Failure> {
        let Place { stream, group, .. } = &*self.place;
        let text = id.to_string();
        let mut pending = cmd("XPENDING");
        pending.arg(&**stream).arg(&**group).arg(&text).arg(&text);
        pending.arg(1).arg(&*self.consumer);
        let answers = self.checked(vec![pending, self.range(id)]).await?;
        let [pending, found] = match answers {
            Ok(answers) => answers.try_into().map_err(|_| incomprehensible())?,
            Err(refused) => return Ok(Err(refused)),
        };
        if list(pending).ok_or_else(incomprehensible)?.is_empty() {
            return Ok(Ok(Letter::NotOurs));
        }
        let found = first(found)
            .ok_or_else(incomprehensible)?
            .unwrap_or_default();
        let is_old = |name: &Bytes| why.iter().any(|(ours, _)| ours.as_bytes() == name);
        let mut command = cmd("XADD");
        command.arg(letters).arg("*");
        for (name, value) in found.iter().filter(|(name, _)| !is_old(name)) {
            command.arg(&**name).arg(&**value);
        }
        for (name, value) in why {
            command.arg(name).arg(&**value);
        }
        let _: Value = self.link.clone().ask(&command).await?;
        Ok(Ok(Letter::Kept))
    }

    /// Reads these entries again. Entries that are gone are `None`.
    pub(super) async fn entries(
        &self,
        ids: &[EntryId],
    ) -> Result<Result<Vec<Option<Fields>>, Refused>, Failure> {
        let ranges = ids.iter().map(|id| self.range(*id)).collect();
        let answers = match self.checked(ranges).await? {
            Ok(answers) => answers,
            Err(refused) => return Ok(Err(refused)),
        };
        let found: Option<Vec<_>> = answers.into_iter().map(first).collect();
        Ok(Ok(found.ok_or_else(incomprehensible)?))
    }

    fn range(&self, id: EntryId) -> Cmd {
        let id = id.to_string();
        let mut range = cmd("XRANGE");
        range.arg(&*self.place.stream).arg(&id).arg(&id);
        range
    }

    /// Trims entries that all groups have read and acked. Returns how many.
    pub(super) async fn trim(&self) -> Result<Result<u64, Refused>, Failure> {
        Ok(self.count(&TRIM, |_| {}).await?.map(i64::unsigned_abs))
    }

    /// Removes the consumer if it has no pending entries.
    pub(super) async fn leave(&self) -> Result<(), Failure> {
        self.run(&LEAVE, |_| {}).await.map(drop)
    }
}

impl Paged {
    /// The page of an owner with no entry above this last id.
    fn empty(above: EntryId) -> Self {
        let page = Page {
            entries: Vec::new(),
            last: None,
            end: Some(above),
        };
        Self {
            page,
            gone: 0,
            seen: None,
        }
    }
}

/// Parses the answer of the script, without its first word.
fn paged(answer: Vec<Value>) -> Option<Paged> {
    let [found, gone, last, end, known] = answer.try_into().ok()?;
    let entry = |value| {
        let [name, count, body] = tuple(value)?;
        let found = Found {
            attempts: u32::try_from(number(&count)?.saturating_sub(1)).unwrap_or(u32::MAX),
            is_new: false,
            fields: fields(body)?,
        };
        Some((id(&name)?, found))
    };
    let entries: Option<Vec<_>> = list(found)?.into_iter().map(entry).collect();
    let (end, known) = (id(&end), fields(known)?);
    let page = Page {
        entries: entries?,
        last: id(&last),
        end,
    };
    let seen = end.filter(|_| !known.is_empty());
    Some(Paged {
        page,
        gone: u64::try_from(number(&gone)?).ok()?,
        seen: seen.map(|id| Seen { id, fields: known }),
    })
}

/// Returns the fields of the first entry of an answer to `XRANGE`; `None` if there is no entry.
fn first(answer: Value) -> Option<Option<Fields>> {
    let found = entries(answer)?.into_iter().next();
    Some(found.map(|(_, fields)| fields))
}
