//! What the owner of a stream says to the server. Each script compares the fencing token first.

use std::sync::Arc;

use bytes::Bytes;
use keylane_leases::Token;
use redis::{Cmd, Value, cmd, pipe};

use super::answer::{
    Failure, Fields, bytes, entries, fields, id, incomprehensible, list, number, read_of_one, tuple,
};
use super::builder::StreamStart;
use super::cursor::Page;
use super::id::EntryId;
use super::origin::Origin;
use super::script::{LEAVE, LETTER, PAGE, TAKE, TELL, TRIM};
use crate::link::Link;
use crate::names;
use crate::script::Script;

/// A stream and its group.
#[derive(Debug)]
pub(super) struct Place {
    /// Its place among the streams of the source.
    pub(super) number: u32,
    pub(super) stream: Bytes,
    pub(super) group: Bytes,
    /// Has the token of the owner.
    owner: Bytes,
}

impl Place {
    pub(super) fn new(number: u32, stream: &Bytes, group: &Bytes) -> Self {
        let suffix = format!(":keylane:{}:owner", String::from_utf8_lossy(group));
        Self {
            number,
            stream: stream.clone(),
            group: group.clone(),
            owner: names::beside(stream, &suffix),
        }
    }

    /// What the lease of the stream is called.
    pub(super) fn lease(&self) -> Bytes {
        let parts: [&[u8]; 4] = [b"keylane-stream:", &self.group, b":", &self.stream];
        parts.concat().into()
    }
}

/// What becomes of entries that are acked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acked {
    Stay,
    /// Deleted by `XACKDEL`, when all groups have acked them.
    Deleted,
    /// Deleted, if there is no other group.
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

/// An entry with its count.
#[derive(Debug)]
pub(super) struct Found {
    /// Attempts that were noted.
    pub(super) attempts: u32,
    /// It was not handed over before.
    pub(super) is_new: bool,
    pub(super) fields: Fields,
}

/// Answers a call of an owner that is none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// What a take-over has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TakenOver {
    /// The group was there.
    Well,
    /// The group was made.
    Made,
    /// A higher token is there.
    Refused(Bytes),
}

/// Which stream, and under which token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TenureId {
    pub(super) stream: u32,
    token: Arc<str>,
}

/// One owner of a stream, as long as no other one has a higher token.
#[derive(Clone)]
pub(super) struct Tenure {
    pub(super) place: Arc<Place>,
    consumer: Arc<str>,
    token: Arc<str>,
    /// Of its messages.
    pub(super) origin: Arc<Origin>,
    acked: Acked,
    link: Link,
}

impl Tenure {
    pub(super) fn new(
        place: Arc<Place>,
        name: &str,
        token: Token,
        acked: Acked,
        link: Link,
    ) -> Self {
        let consumer = format!("{name}-{token}").into();
        let token = token.to_string();
        Self {
            origin: Arc::new(Origin::new(&token, &place.stream)),
            place,
            consumer,
            token: token.into(),
            acked,
            link,
        }
    }

    pub(super) fn id(&self) -> TenureId {
        TenureId {
            stream: self.place.number,
            token: Arc::clone(&self.token),
        }
    }

    async fn run(&self, script: &Script, arguments: impl Fn(&mut Cmd)) -> Result<Value, Failure> {
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
            arguments(command);
        };
        script.run(&self.link, head).await
    }

    /// Takes the stream over, and makes it and its group if they are not there.
    pub(super) async fn take(
        &self,
        start: StreamStart,
        resume: Option<EntryId>,
    ) -> Result<TakenOver, Failure> {
        let start = match start {
            StreamStart::Earliest => "0",
            StreamStart::Latest => "$",
        };
        let resume = resume.map(|id| id.to_string()).unwrap_or_default();
        let answer = self.run(&TAKE, |command| {
            command.arg(start).arg(&resume);
        });
        let [is_ours, more] = tuple(answer.await?).ok_or_else(incomprehensible)?;
        match (number(&is_ours), number(&more)) {
            (Some(1), Some(0)) => Ok(TakenOver::Well),
            (Some(1), Some(1)) => Ok(TakenOver::Made),
            (Some(0), _) => Ok(TakenOver::Refused(bytes(more).unwrap_or_default())),
            _ => Err(incomprehensible()),
        }
    }

    /// Takes pending entries between these two. Returns how many had no body as well.
    pub(super) async fn page(
        &self,
        above: EntryId,
        below: Option<EntryId>,
        most: usize,
        most_bytes: usize,
        tidies: bool,
    ) -> Result<Result<(Page<Found>, u64), Refused>, Failure> {
        let to = below.map_or_else(|| "+".to_owned(), |id| format!("({id}"));
        let answer = self.run(&PAGE, |command| {
            command.arg(format!("({above}")).arg(&to).arg(most);
            command.arg(most_bytes).arg(u8::from(tidies));
        });
        let answer = list(answer.await?).ok_or_else(incomprehensible)?;
        if answer.first().and_then(number) == Some(-1) {
            return Ok(Err(Refused));
        }
        // The group has gone since the script began to look.
        let no_group = || Failure::NoGroup;
        let [is_end, found, gone, last, end] = answer.try_into().map_err(|_| no_group())?;
        let entry = |value| {
            let [name, count, body] = tuple(value)?;
            let attempts = u32::try_from(number(&count)?).ok()?.saturating_sub(1);
            let found = Found {
                attempts,
                is_new: false,
                fields: fields(body)?,
            };
            Some((id(&name)?, found))
        };
        let parsed = || {
            let entries: Option<Vec<_>> = list(found)?.into_iter().map(entry).collect();
            let page = Page {
                entries: entries?,
                last: id(&last),
                end: match number(&is_end)? {
                    1 => Some(id(&end)?),
                    _ => None,
                },
            };
            Some((page, u64::try_from(number(&gone)?).ok()?))
        };
        Ok(Ok(parsed().ok_or_else(incomprehensible)?))
    }

    /// Reads new entries, and which one is the first pending one above this, of any consumer. The server
    /// looks for that one after it has handed out the new ones.
    pub(super) async fn read(
        &self,
        above: EntryId,
        most: usize,
    ) -> Result<(Vec<(EntryId, Found)>, Option<EntryId>), Failure> {
        let Place { stream, group, .. } = &*self.place;
        let mut both = pipe();
        both.cmd("XREADGROUP")
            .arg("GROUP")
            .arg(&**group)
            .arg(&*self.consumer);
        both.arg("COUNT")
            .arg(most)
            .arg("STREAMS")
            .arg(&**stream)
            .arg(">");
        both.cmd("XPENDING").arg(&**stream).arg(&**group);
        both.arg(format!("({above}")).arg("+").arg(1);
        both.ignore_errors();
        let answers: Vec<redis::RedisResult<Value>> =
            both.query_async(&mut self.link.clone()).await?;
        let [read, pending] = answers.try_into().map_err(|_| incomprehensible())?;
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
        parse(read?, pending?).ok_or_else(incomprehensible)
    }

    /// Acks these, and notes attempts at those.
    pub(super) async fn tell(
        &self,
        acks: &[EntryId],
        notes: impl Iterator<Item = (EntryId, u32)> + Clone,
    ) -> Result<Result<(), Refused>, Failure> {
        let answer = self.run(&TELL, |command| {
            command.arg(self.acked.word()).arg(acks.len());
            for id in acks {
                command.arg(id.to_string());
            }
            for (id, attempts) in notes.clone() {
                command.arg(id.to_string()).arg(attempts.saturating_add(1));
            }
        });
        match number(&answer.await?) {
            Some(-1) => Ok(Err(Refused)),
            Some(_) => Ok(Ok(())),
            None => Err(incomprehensible()),
        }
    }

    /// Writes an entry into a stream of letters in the slot of this one, with these fields, and acks it.
    /// Whether that was done: an entry of thousands of fields is too much for one step.
    pub(super) async fn letter(
        &self,
        letters: &[u8],
        id: EntryId,
        why: &[(String, Bytes)],
    ) -> Result<Result<bool, Refused>, Failure> {
        let answer = self.run_with(&LETTER, Some(letters), |command| {
            command.arg(self.acked.word()).arg(id.to_string());
            for (name, value) in why {
                command.arg(name).arg(&**value);
            }
        });
        match number(&answer.await?) {
            Some(-1) => Ok(Err(Refused)),
            Some(-2) => Ok(Ok(false)),
            // With 0 it is not pending any more: the letter was kept before.
            Some(_) => Ok(Ok(true)),
            None => Err(incomprehensible()),
        }
    }

    /// Writes the letter of an entry into a stream in another slot. It may be written twice.
    pub(super) async fn letter_elsewhere(
        &self,
        letters: &[u8],
        id: EntryId,
        why: &[(String, Bytes)],
    ) -> Result<(), Failure> {
        let found = self.entry(id).await?.unwrap_or_default();
        let is_old = |name: &Bytes| why.iter().any(|(ours, _)| ours.as_bytes() == name);
        let mut command = cmd("XADD");
        command.arg(letters).arg("*");
        for (name, value) in found.iter().filter(|(name, _)| !is_old(name)) {
            command.arg(&**name).arg(&**value);
        }
        for (name, value) in why {
            command.arg(name).arg(&**value);
        }
        let _: Value = command.query_async(&mut self.link.clone()).await?;
        Ok(())
    }

    async fn entry(&self, id: EntryId) -> Result<Option<Fields>, Failure> {
        let mut found = self.entries(&[id]).await?;
        Ok(found.pop().flatten())
    }

    /// Reads these entries again. Those that are gone are `None`.
    pub(super) async fn entries(&self, ids: &[EntryId]) -> Result<Vec<Option<Fields>>, Failure> {
        let mut all = pipe();
        for id in ids {
            let id = id.to_string();
            all.cmd("XRANGE").arg(&*self.place.stream).arg(&id).arg(&id);
        }
        let answers: Vec<Value> = all.query_async(&mut self.link.clone()).await?;
        let entry = |answer| {
            let mut found = entries(answer)?;
            Some(found.pop().map(|(_, fields)| fields))
        };
        let found: Option<Vec<_>> = answers.into_iter().map(entry).collect();
        found.ok_or_else(incomprehensible)
    }

    /// Cuts off what all groups have had and acked. Returns how many that were.
    pub(super) async fn trim(&self) -> Result<Result<u64, Refused>, Failure> {
        match number(&self.run(&TRIM, |_| {}).await?) {
            Some(-1) => Ok(Err(Refused)),
            Some(cut) => Ok(Ok(cut.unsigned_abs())),
            None => Err(incomprehensible()),
        }
    }

    /// Removes the consumer if it has nothing pending.
    pub(super) async fn leave(&self) -> Result<(), Failure> {
        self.run(&LEAVE, |_| {}).await.map(drop)
    }
}

/// Waits until the stream has something above this, and returns after so many milliseconds if not. Nothing
/// is read for the group.
pub(super) async fn wait(
    link: &mut Link,
    stream: &[u8],
    above: EntryId,
    millis: u128,
) -> Result<(), Failure> {
    let mut command = cmd("XREAD");
    command
        .arg("COUNT")
        .arg(1)
        .arg("BLOCK")
        .arg(u64::try_from(millis).unwrap_or(1_000));
    command.arg("STREAMS").arg(stream).arg(above.to_string());
    let _: Value = command.query_async(link).await?;
    Ok(())
}
