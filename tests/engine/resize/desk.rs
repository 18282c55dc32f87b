//! Users who write to lanes, and the judge of what became of each *user's* mails.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use keylane::{Builder, Context, Dispatcher, HashLane, HashLanes, Report, hash_lane};
use keylane_testkit::{
    Drained, Evidence, History, Id, Key, Rule, Script, ScriptError, Scripted, Sending,
};
use tokio::time::Instant;

use super::lanes;
use crate::rig::{Mail, assert_empty, assert_no_engine_panics, mails, within};

pub(super) type Lanes = HashLanes<Mail, Id, ScriptError>;

/// A dispatcher with so many lanes, all settings at their defaults.
pub(super) fn hashed(
    count: usize,
) -> Builder<HashLane, Mail, ScriptError, impl Fn(&Mail) -> Option<HashLane> + Send + Sync + 'static>
{
    // Panics of the engine itself are noticed from here on.
    drop(mails());
    Dispatcher::hash_lanes(lanes(count), |mail: &Mail| mail.key.unwrap())
}

pub(super) fn scripted(
    script: Script,
) -> impl Fn(Context<HashLane>, Mail) -> Scripted + Send + Sync + 'static {
    move |ctx, mail| script.run(mail.key, mail.id, ctx.attempt())
}

/// Users of one lane, by where they are among another number of lanes.
pub(super) fn users(from: usize, lane: usize, to: usize, moves: bool) -> impl Iterator<Item = Key> {
    let is_there = move |user: &Key| hash_lane(lanes(from), user) == lane;
    (0..)
        .filter(is_there)
        .filter(move |user| (hash_lane(lanes(to), user) != lane) == moves)
}

/// Sends mails, numbers them from 1 and for each user, and writes down what became of each send.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) history: History,
    pub(super) lanes: Lanes,
    seqs: Arc<Mutex<HashMap<Key, u64>>>,
    last_id: Arc<AtomicU64>,
}

impl Desk {
    pub(super) fn new(history: &History, lanes: Lanes) -> Self {
        Self {
            history: history.clone(),
            lanes,
            seqs: Arc::default(),
            last_id: Arc::default(),
        }
    }

    pub(super) fn next(&self, user: Key) -> (Mail, Sending) {
        let seq = {
            let mut seqs = self.seqs.lock().unwrap();
            let seq = seqs.entry(user).or_default();
            *seq += 1;
            *seq
        };
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let mail = Mail {
            key: Some(user),
            id,
        };
        (mail, self.history.sending(user, seq, id))
    }

    pub(super) async fn send(&self, user: Key) -> Id {
        let (mail, sending) = self.next(user);
        let id = mail.id;
        self.lanes.send(mail).await.expect("the desk is open");
        sending.ok();
        id
    }

    /// Begins a change, and returns when it has begun.
    pub(super) async fn begin(&self, count: usize) -> tokio::task::JoinHandle<Changed> {
        let lanes = self.lanes.clone();
        let change = tokio::spawn(async move { lanes.resize(count).await });
        crate::rig::until(|| self.lanes.lanes() == count).await;
        change
    }

    /// Judges the whole history: nothing runs any more, and this was the report.
    pub(super) fn judge(&self, report: &Report<HashLane, Mail>, evidence: Evidence) {
        let back = report
            .returned
            .iter()
            .filter_map(|back| Some(back.message.as_ref()?.id));
        let evidence = evidence
            .handed_back(back)
            .quiescent(Instant::now())
            .lanes(self.lanes.stats().lanes)
            .drained(Drained::new(self.history.position(), report));
        assert_no_engine_panics();
        assert_empty(&self.lanes);
        let verdict = match self.history.check(&evidence) {
            Ok(verdict) => verdict,
            Err(violations) => panic!("{violations:?}"),
        };
        verdict.assert_judged(&[
            Rule::NoLoss,
            Rule::NoInvention,
            Rule::Exclusion,
            Rule::Order,
            Rule::Duplicates,
            Rule::Drain,
        ]);
    }

    pub(super) async fn finish(self, evidence: Evidence) -> Report<HashLane, Mail> {
        let report = within(async { self.lanes.drain().await }).await;
        self.judge(&report, evidence);
        report
    }
}

pub(super) type Changed = Result<(), keylane::ResizeError>;
