//! The steps of a soak at a scale.

use super::kinds::{KINDS, Kind, MUTATIONS, MUTATIONS_NAME};
use super::scale::Scale;
use crate::part::Part;
use crate::proof::{Estimate, Step, Work};

/// All steps, with the commit of the last release.
pub(super) fn steps(scale: Scale, release: Option<&str>) -> Vec<Step> {
    let steps = KINDS.iter().flat_map(|kind| parts(kind, scale));
    let with_release = |mut step: Step| {
        if let (Work::SinceRelease { release: known, .. }, Some(release)) =
            (&mut step.work, release)
        {
            *known = Some(release.to_owned());
            // A result holds for this release.
            step.name = format!("{} since {release}", step.name);
        }
        step
    };
    steps.map(with_release).collect()
}

/// The steps that mutate these parts of the code's mutations. All of them if none is named.
pub(super) fn mutations(parts: &[Part]) -> Vec<Step> {
    let kind = KINDS.iter().find(|kind| kind.name == MUTATIONS_NAME);
    let kind = kind.expect("the mutations are a step");
    let all: Vec<Part> = Part::all(MUTATIONS).collect();
    let parts = if parts.is_empty() { &all } else { parts };
    let step = |part: &Part| {
        let mut step = step(kind, *part, 1);
        if part.of() != MUTATIONS {
            step.name = format!("{MUTATIONS_NAME} in {} parts", part.of());
            step.estimate.seconds = kind.seconds * MUTATIONS / part.of();
        }
        step
    };
    parts.iter().map(step).collect()
}

/// The parts of one step: as many as its amount needs, of the same size. They are counted among
/// those of the normal scale, which are the same ones.
fn parts(kind: &'static Kind, scale: Scale) -> impl Iterator<Item = Step> {
    let amount = kind.amount.at(scale);
    let size = kind.part.unwrap_or(amount).min(amount);
    let normal = kind.amount.at(Scale::Normal);
    let of_normal = kind.part.map_or(1, |part| normal.div_ceil(part));
    let count = amount.div_ceil(size);
    Part::first(count, count.max(of_normal)).map(move |part| step(kind, part, size))
}

fn step(kind: &Kind, part: Part, amount: u64) -> Step {
    let full = kind.part.unwrap_or(kind.amount.at(Scale::Normal));
    Step {
        name: kind.name.to_owned(),
        part,
        amount,
        estimate: Estimate {
            seconds: kind.seconds * amount / full,
            origin: kind.origin,
        },
        work: kind.work.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::kinds::CLUSTERS;
    use super::*;
    use crate::process;

    const SCALES: [Scale; 3] = [Scale::Short, Scale::Normal, Scale::Long];

    /// One step takes no longer than this.
    const LONGEST: u64 = 3_600;

    #[test]
    fn the_numbers_reach_the_tests() {
        let numbers = [
            "KEYLANE_TIMES=5 ",
            "KEYLANE_TIMES=5 ",
            "KEYLANE_INTAKE=striped ",
            "KEYLANE_TURNS=large ",
            "KEYLANE_SCHEDULER=random KEYLANE_SCHEDULES=520000 ",
            "KEYLANE_SCHEDULER=pct KEYLANE_SCHEDULES=520000 ",
            "KEYLANE_KILLS=2000 ",
            "KEYLANE_DRAINS=5000 ",
            "KEYLANE_KILLS=1000 ",
            "KEYLANE_SPOOL_KILLS=250 ",
            " conformance::cooperative:: ",
            "KEYLANE_LEASE_PAUSES=500 ",
            "KEYLANE_INBOX_PAUSES=500 ",
            "KEYLANE_CHAOS_MESSAGES=50000 ",
            "KEYLANE_KAFKA_ROUND_TRIPS=1000000 ",
            "KEYLANE_KAFKA_REBALANCES=50 ",
            "KEYLANE_REDIS_STOPS=250 ",
            "KEYLANE_REDIS_MEMBER_FAULTS=167 ",
            "KEYLANE_CHANGES=500 ",
            "KEYLANE_CHANGES=500 ",
            "KEYLANE_CHANGES=500 ",
            "KEYLANE_CHANGES=500 ",
            "KEYLANE_CHANGES=500 ",
            "KEYLANE_CHANGES=500 ",
            "KEYLANE_FAILOVERS=20 ",
            "KEYLANE_FAILOVERS=20 ",
            "KEYLANE_FAILOVERS=20 ",
            "KEYLANE_FAILOVERS=20 ",
            "KEYLANE_FAILOVERS=20 ",
            "KEYLANE_SYSCALLS=2000 ",
            "KEYLANE_FUZZ=600 ",
            "KEYLANE_INBOX_POWER=all ",
            "KEYLANE_PASSED=5000000 ",
            "KEYLANE_BACKLOG=10000000 ",
            "KEYLANE_BACKLOG=10000000 ",
        ];
        let steps = steps(Scale::Normal, None);
        let first = steps.iter().filter(|step| step.part.number() == 1);
        let commands: Vec<String> = first
            .filter_map(|step| match step.work {
                Work::Tests(command) => Some(process::display(&command(step.amount))),
                _ => None,
            })
            .collect();
        assert_eq!(commands.len(), numbers.len());
        for (command, number) in commands.iter().zip(numbers) {
            assert!(command.contains(number), "{command}");
        }
    }

    #[test]
    fn the_clusters_are_steps_of_their_own() {
        let steps = steps(Scale::Normal, None);
        let mut clusters = steps.iter().filter(|step| step.name.starts_with(CLUSTERS));
        assert!(clusters.all(|step| step.amount == 20));
        assert_eq!(
            crate::proof::choose(&steps, &[CLUSTERS.to_owned()])
                .unwrap()
                .len(),
            5
        );
    }

    #[test]
    fn the_parts_of_a_step_are_all_of_it() {
        for scale in SCALES {
            let mut amounts: BTreeMap<String, u64> = BTreeMap::new();
            for step in steps(scale, None) {
                *amounts.entry(step.name).or_default() += step.amount;
            }
            assert_eq!(amounts.len(), KINDS.len());
            for kind in &KINDS {
                assert_eq!(amounts[kind.name], kind.amount.at(scale), "{}", kind.name);
            }
        }
    }

    #[test]
    fn no_step_takes_longer_than_an_hour() {
        for step in steps(Scale::Normal, None).iter().chain(&mutations(&[])) {
            assert!(step.estimate.seconds <= LONGEST, "{step}");
            assert!(step.estimate.seconds > 0, "{step}");
        }
        // At the long scale only what cannot be divided does.
        for step in steps(Scale::Long, None) {
            assert!(
                step.estimate.seconds <= LONGEST || step.part.of() == 1,
                "{step}"
            );
        }
    }

    #[test]
    fn what_a_scale_has_in_parts_the_larger_one_has_too() {
        let key = |step: &Step| (step.name.clone(), step.part.number());
        let of = |scale| -> BTreeMap<_, _> {
            let steps = steps(scale, None);
            steps.iter().map(|step| (key(step), step.amount)).collect()
        };
        let [short, normal, long] = SCALES.map(of);
        for (smaller, larger) in [(&short, &normal), (&normal, &long)] {
            for (step, amount) in smaller {
                assert!(larger[step] >= *amount, "{step:?}");
            }
        }
        assert!(short.len() < normal.len() && normal.len() < long.len());
    }

    #[test]
    fn parts_have_names_of_their_own() {
        let names = |scale| -> Vec<String> {
            let steps = steps(scale, None);
            let steps = steps.iter().filter(|step| step.name == "schedules random");
            steps.map(Step::to_string).collect()
        };
        assert_eq!(names(Scale::Short), ["schedules random 1/10"]);
        assert_eq!(names(Scale::Normal).len(), 10);
        assert_eq!(names(Scale::Normal)[2], "schedules random 3/10");
        assert_eq!(names(Scale::Long)[2], "schedules random 3/100");
        for scale in SCALES {
            let steps = steps(scale, None);
            let names: BTreeSet<String> = steps.iter().map(Step::to_string).collect();
            assert_eq!(names.len(), steps.len());
        }
    }

    #[test]
    fn mutations_are_those_of_a_soak_or_a_part_by_itself() {
        let names = |steps: &[Step]| -> Vec<String> { steps.iter().map(Step::to_string).collect() };
        let soak: Vec<Step> = steps(Scale::Normal, None);
        let soak = soak.into_iter().filter(|step| step.name == MUTATIONS_NAME);
        let soak: Vec<Step> = soak.collect();
        assert_eq!(names(&mutations(&[])), names(&soak));
        assert_eq!(soak.len() as u64, MUTATIONS);
        let third = mutations(&["2/3".parse().unwrap()]);
        assert_eq!(names(&third), ["mutations in 3 parts 2/3"]);
        assert_eq!(
            third[0].estimate.seconds,
            soak[0].estimate.seconds * MUTATIONS / 3
        );
    }

    #[test]
    fn a_result_holds_for_its_release() {
        let release = |release| {
            let steps = steps(Scale::Normal, release);
            let mut found = steps.into_iter().filter_map(|step| match step.work {
                Work::SinceRelease { release, .. } => Some((step.name, release)),
                _ => None,
            });
            found.next().unwrap()
        };
        assert_eq!(release(None), ("public items".to_owned(), None));
        let (name, commit) = release(Some("abc"));
        assert_eq!(name, "public items since abc");
        assert_eq!(commit.as_deref(), Some("abc"));
    }
}
