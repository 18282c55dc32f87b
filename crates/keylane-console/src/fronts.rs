//! The parts of the sources, and the lanes that hold them back. Looked at once a second for all
//! viewers.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use keylane::consume::IntakeWatch;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::parts::{self, Holders, PartName, PartRow, Parts};
use crate::rows::cut;
use crate::target::Target;

/// How long a look counts for the pages of lanes.
const FRESH: Duration = Duration::from_secs(1);

/// Most parts that the page of a lane names.
const MOST: usize = 20;

/// An intake whose parts are shown.
pub(crate) struct PartedIntake {
    pub(crate) name: String,
    pub(crate) watch: IntakeWatch,
    pub(crate) parts: Parts,
}

/// What looks at the parts of all intakes.
pub(crate) struct Fronts {
    intakes: Vec<PartedIntake>,
    targets: Vec<Arc<dyn Target>>,
    last: Mutex<Option<(Instant, Arc<Looked>)>>,
}

/// What one look saw.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// By the names of the intakes: the parts that are shown, and how many others there are.
    rows: HashMap<String, (Vec<PartRow>, usize)>,
    held: Vec<HeldPart>,
}

/// A part that is held back, and the lane that does so.
#[derive(Debug)]
struct HeldPart {
    dispatcher: String,
    id: String,
    part: PartName,
}

impl Fronts {
    pub(crate) fn new(intakes: Vec<PartedIntake>, targets: Vec<Arc<dyn Target>>) -> Self {
        Self {
            intakes,
            targets,
            last: Mutex::default(),
        }
    }

    /// Looks anew.
    pub(crate) async fn look(&self) -> Arc<Looked> {
        self.look_if_older(Duration::ZERO).await
    }

    /// The parts that a lane holds back, and how many more there are.
    ///
    /// Cancel safety: if the future is dropped while it looks, the next viewer looks.
    pub(crate) async fn held_by(&self, dispatcher: &str, id: &str) -> (Vec<PartName>, usize) {
        let looked = self.look_if_older(FRESH).await;
        looked.held_by(dispatcher, id)
    }

    /// Others wait for the look, and take it.
    async fn look_if_older(&self, age: Duration) -> Arc<Looked> {
        if self.intakes.is_empty() {
            return Arc::default();
        }
        let mut last = self.last.lock().await;
        if let Some((at, looked)) = &*last
            && at.elapsed() < age
        {
            return Arc::clone(looked);
        }
        let each = join_all(self.intakes.iter().map(|intake| self.look_at(intake))).await;
        let mut all = Looked::default();
        for (name, rows, held) in each {
            all.rows.insert(name, rows);
            all.held.extend(held);
        }
        let looked = Arc::new(all);
        *last = Some((Instant::now(), Arc::clone(&looked)));
        looked
    }

    async fn look_at(
        &self,
        intake: &PartedIntake,
    ) -> (String, (Vec<PartRow>, usize), Vec<HeldPart>) {
        // The user's code: the page goes on without it.
        let parts = catch_unwind(AssertUnwindSafe(&intake.parts)).unwrap_or_default();
        let fronts: HashSet<&str> = parts.iter().filter_map(|it| it.front.as_deref()).collect();
        let mut holders = Holders::new();
        if !fronts.is_empty() {
            for target in &self.targets {
                holders.extend(target.holding_back(&intake.watch, &fronts).await);
            }
        }
        let held = parts.iter().filter_map(|part| {
            let lane = holders.get(part.front.as_deref()?)?;
            Some(HeldPart {
                dispatcher: lane.dispatcher.clone(),
                id: lane.id.clone(),
                part: PartName {
                    intake: intake.name.clone(),
                    part: cut(&part.name),
                },
            })
        });
        let held = held.collect();
        (intake.name.clone(), parts::rows(parts, &holders), held)
    }
}

impl Looked {
    /// The parts of an intake that are shown, and how many others there are.
    pub(crate) fn rows_of(&self, intake: &str) -> (Vec<PartRow>, usize) {
        self.rows.get(intake).cloned().unwrap_or_default()
    }

    fn held_by(&self, dispatcher: &str, id: &str) -> (Vec<PartName>, usize) {
        let theirs = self.held.iter();
        let mut theirs = theirs.filter(|held| held.dispatcher == dispatcher && held.id == id);
        let shown = theirs.by_ref().take(MOST).map(|held| held.part.clone());
        (shown.collect(), theirs.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_names_the_parts_that_it_holds_back_and_counts_those_beyond() {
        let held = |n: usize| HeldPart {
            dispatcher: "orders".to_owned(),
            id: if n < MOST + 3 { "a" } else { "b" }.to_owned(),
            part: PartName {
                intake: "kafka".to_owned(),
                part: format!("orders/{n}"),
            },
        };
        let looked = Looked {
            held: (0..MOST + 4).map(held).collect(),
            ..Looked::default()
        };
        let (parts, more) = looked.held_by("orders", "a");
        assert_eq!((parts.len(), &*parts[0].part, more), (MOST, "orders/0", 3));
        assert_eq!(looked.held_by("orders", "b").0.len(), 1);
        assert_eq!(looked.held_by("bills", "a"), (Vec::new(), 0));
    }
}
