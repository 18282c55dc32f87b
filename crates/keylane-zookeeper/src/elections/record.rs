//! The record of a term.

use bytes::Bytes;
use keylane_leader::store::{Recorded, Stage, TermRecord, after, encode, replaces};
use keylane_leases::error::StoreError;
use zookeeper_client::{CreateMode, Error, MultiWriteError, MultiWriteResult, MultiWriter, Stat};

use super::read::read;
use super::view::View;
use crate::error::store;
use crate::session::Session;

/// How often a record that another one changes meanwhile is tried.
const ROUNDS: usize = 20;

/// Records a term. The end of a term releases its lease in the same transaction, if this session
/// has it.
///
/// The first try relies on what this session knows of the election, and takes one round trip. The
/// transaction names the version of the record that it replaces, so it is refused if that is not
/// the one that is known; then the election is read.
pub(super) async fn record(
    session: &Session,
    key: &Bytes,
    term: &TermRecord,
) -> Result<Recorded, StoreError> {
    let known = session.elections().take(key);
    // The one that is chosen may have entered since.
    let mut known = known.filter(|view| term.chosen.is_none() && replaces(view.term(), term));
    let ends = term.stage == Stage::Ended;
    let mut grant = ends
        .then(|| session.book().number(key, term.token))
        .flatten();
    for _ in 0..ROUNDS {
        let view = match known.take() {
            Some(view) => view,
            None => read(session, key).await?,
        };
        let recorded = after(view.term(), term);
        if recorded == Recorded::Refused || !replaces(view.term(), term) {
            return Ok(recorded);
        }
        match write(session, key, view, term, grant).await? {
            Written::Done => return Ok(recorded),
            Written::Changed => {}
            // What was to be removed may be the lease. It is released afterwards.
            Written::Missing => grant = None,
        }
    }
    Err(StoreError::new(
        "the election changes all the time: try again",
    ))
}

/// What became of a record.
enum Written {
    Done,
    /// The election is not as it was seen.
    Changed,
    /// The same, or the lease was released already.
    Missing,
}

/// Tries to write a record, in one transaction.
async fn write(
    session: &Session,
    key: &Bytes,
    view: View,
    term: &TermRecord,
    grant: Option<u64>,
) -> Result<Written, StoreError> {
    let folder = session.paths.election(key);
    let Some(version) = view.version else {
        make(session, &folder).await?;
        return Ok(Written::Changed);
    };
    let removed = view.lineup.paths_of(&term.leader, &folder);
    let mut writer = session.client.new_multi_writer();
    let added = writer
        .add_set_data(&folder, encode(term).as_bytes(), Some(version))
        .and_then(|()| add_candidates(&mut writer, &view, term, &folder, &removed))
        .and_then(|()| add_release(&mut writer, session, key, grant));
    added.map_err(|error| store(&session.hosts, &error))?;
    let stat = match writer.commit().await {
        Ok(results) => results.into_iter().find_map(stat_of),
        Err(MultiWriteError::OperationFailed {
            source: Error::BadVersion,
            ..
        }) => {
            return Ok(Written::Changed);
        }
        Err(MultiWriteError::OperationFailed {
            source: Error::NoNode,
            ..
        }) => {
            return Ok(Written::Missing);
        }
        Err(error) => return Err(store(&session.hosts, &error.into())),
    };
    for path in &removed {
        session.forget_candidate(path);
    }
    if let Some(grant) = grant {
        session.book().forget(grant);
    }
    if let Some(stat) = stat.filter(|_| term.stage != Stage::Ended) {
        session.elections().note(key, view.after(term, &stat));
    }
    Ok(Written::Done)
}

/// Removes the leader from the candidates, and wakes the one that is chosen: each watches its own
/// node.
fn add_candidates(
    writer: &mut MultiWriter<'_>,
    view: &View,
    term: &TermRecord,
    folder: &str,
    removed: &[String],
) -> Result<(), Error> {
    for path in removed {
        writer.add_delete(path, None)?;
    }
    let chosen = term.chosen.iter();
    let chosen = chosen.flat_map(|to| view.lineup.paths_of(to, folder));
    for path in chosen.filter(|path| !removed.contains(path)) {
        writer.add_set_data(&path, b"", None)?;
    }
    Ok(())
}

/// Removes the nodes of a grant of this session: nothing of any other one.
fn add_release(
    writer: &mut MultiWriter<'_>,
    session: &Session,
    key: &Bytes,
    grant: Option<u64>,
) -> Result<(), Error> {
    let Some(number) = grant else {
        return Ok(());
    };
    writer.add_delete(&session.paths.grant(&session.guard(number)), None)?;
    writer.add_delete(&session.paths.lease(key), None)
}

/// Returns what the record is after the write: the first change of data of a transaction.
fn stat_of(result: MultiWriteResult) -> Option<Stat> {
    match result {
        MultiWriteResult::SetData { stat } => Some(stat),
        _ => None,
    }
}

/// Makes the node of an election, if there is none.
pub(super) async fn make(session: &Session, folder: &str) -> Result<(), StoreError> {
    let options = CreateMode::Persistent.with_acls(session.acls());
    match session.client.create(folder, b"", &options).await {
        Ok(_) | Err(Error::NodeExists) => Ok(()),
        Err(error) => Err(store(&session.hosts, &error)),
    }
}
