//! Many tasks that enter, withdraw and record at the same time.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use keylane_leader::ElectionStore;
use keylane_leader::store::{Recorded, Stage, TermRecord, encode, replaces};
use keylane_testkit::scenario::{Random, cases};
use testkit_servers::MariaDb;

use super::{LONG, Scene, choosing, id, term};
use crate::support::{Kind, Place};

const TASKS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_records_one_after_the_other() {
    let place = Place::new(Kind::Postgres).await;
    hammer(&place).await;
    place.database.close().await;
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(place.number(deadlocks).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_records_one_after_the_other() {
    // Of its own, because a server counts its deadlocks in all databases.
    let server = MariaDb::start().await.unwrap();
    let address = server.create_database().await.unwrap();
    let place = Place::at(Kind::MariaDb, address).await.migrated().await;
    hammer(&place).await;
    let deadlocks = "show global status like 'Innodb_deadlocks'";
    let deadlocks = server.execute("mysql", deadlocks).await.unwrap();
    assert_eq!(deadlocks.trim_end(), "Innodb_deadlocks\t0");
}

/// What one task knows. Its candidate has its number as rank.
struct Task {
    number: usize,
    scene: Scene,
    random: Random,
    is_entered: bool,
    token: u64,
    /// What it has recorded, and what was there.
    records: Vec<(TermRecord, Recorded)>,
    seen: Option<(u64, Stage)>,
}

fn name(task: usize) -> String {
    format!("task-{task}")
}

impl Task {
    async fn act(&mut self) {
        let rank = u16::try_from(self.number).unwrap();
        match self.random.below(6) {
            0 | 1 => {
                // One that runs out at once is removed by others.
                self.is_entered = !self.random.one_in(3);
                let ttl = if self.is_entered {
                    LONG
                } else {
                    Duration::ZERO
                };
                // One that is there keeps its place, and lasts as long as it says now.
                self.scene.enter(&name(self.number), rank, ttl).await;
            }
            2 => {
                let id = id(&name(self.number));
                let gone = self.scene.store.withdraw(&self.scene.key, &id).await;
                gone.unwrap();
                self.is_entered = false;
            }
            3 => {
                let term = self.scene.look().await.term;
                let seen = term.map(|term| (term.token.0, term.stage));
                assert!(self.seen <= seen, "{:?}, and then {seen:?}", self.seen);
                self.seen = seen;
            }
            _ => self.record().await,
        }
    }

    async fn record(&mut self) {
        // Tokens of different tasks are often the same, and those of one task never.
        self.token += 1 + self.random.below(4);
        let leader = name(self.number);
        let term = match self.random.below(4) {
            0 => term(self.token, &leader, Stage::Began),
            1 => term(self.token, &leader, Stage::Leaving),
            2 => choosing(self.token, &leader, &name(self.random.below(8) as usize)),
            _ => term(self.token, &leader, Stage::Ended),
        };
        let recorded = self.scene.store.record(&self.scene.key, &term).await;
        let recorded = recorded.unwrap();
        match &recorded {
            Recorded::Refused => self.token += 3,
            Recorded::Written(was) if replaces(was.as_ref(), &term) => self.is_entered = false,
            Recorded::Written(_) => {}
        }
        self.records.push((term, recorded));
    }
}

async fn hammer(place: &Place) {
    const ACTS: u32 = 12;
    let scene = Scene::new(place, "hammer").await;
    let tasks = (0..TASKS).map(|number| Task {
        number,
        scene: scene.clone(),
        random: Random::new(number as u64 + 1),
        is_entered: false,
        token: 0,
        records: Vec::new(),
        seen: None,
    });
    let mut tasks = Vec::from_iter(tasks);
    for _ in 0..cases(20) {
        let acts = tasks.into_iter().map(|mut task| {
            tokio::spawn(async move {
                for _ in 0..ACTS {
                    task.act().await;
                }
                task
            })
        });
        let acts = join_all(Vec::from_iter(acts)).await;
        tasks = acts.into_iter().map(Result::unwrap).collect();
        let seen = scene.look().await;
        let entered = |number: &usize| tasks[*number].is_entered;
        let chosen = seen.term.as_ref().and_then(|term| term.chosen.as_ref());
        let chosen = chosen.and_then(|chosen| {
            let mut all = (0..TASKS).filter(entered);
            all.find(|at| name(*at) == chosen.as_str())
        });
        let next = chosen.or_else(|| (0..TASKS).find(entered));
        assert_eq!(seen.next, next.map(|at| id(&name(at))));
        // The next round begins near the last token.
        let token = seen.term.map_or(0, |term| term.token.0);
        for task in &mut tasks {
            task.token = task.token.max(token.saturating_sub(2));
        }
    }
    let records: Vec<_> = tasks.iter().flat_map(|task| task.records.clone()).collect();
    check(&records, scene.look().await.term);
    come_back_at_once(&scene).await;
}

/// All have run out, as after a fail-over. Each enters anew, and removes the others.
async fn come_back_at_once(scene: &Scene) {
    for _ in 0..cases(20) {
        let entered = (0..TASKS).map(|number| {
            let scene = scene.clone();
            tokio::spawn(async move { scene.enter(&name(number), 0, Duration::ZERO).await })
        });
        for entered in join_all(Vec::from_iter(entered)).await {
            entered.unwrap();
        }
    }
}

/// Each record has replaced another one, none of them two: they are one chain.
fn check(records: &[(TermRecord, Recorded)], last: Option<TermRecord>) {
    let highest = last.as_ref().map_or(0, |term| term.token.0);
    let mut follows = BTreeMap::new();
    for (new, recorded) in records {
        match recorded {
            Recorded::Refused => assert!(new.token.0 < highest, "{new:?}"),
            Recorded::Written(was) if replaces(was.as_ref(), new) => {
                let other = follows.insert(was.as_ref().map(encode), new);
                assert!(other.is_none(), "{was:?}: {new:?} and {other:?}");
            }
            Recorded::Written(was) => {
                let was = was.as_ref().unwrap();
                assert!(was.token == new.token && was.stage > new.stage);
            }
        }
    }
    let (mut at, mut length) = (None, 0);
    while let Some(next) = follows.get(&at) {
        (at, length) = (Some(encode(next)), length + 1);
    }
    println!("{} records, {length} of them written", records.len());
    assert_eq!(length, follows.len(), "they are one chain");
    assert_eq!(at, last.as_ref().map(encode));
    assert!(length > 20 && length < records.len());
}
