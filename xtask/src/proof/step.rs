//! What a proof is made of.

use std::fmt;
use std::process::Command;

use super::estimate::Estimate;
use crate::Error;
use crate::part::Part;

/// A step, or a part of one that would take too long.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Without the part.
    pub(crate) name: String,
    pub(crate) part: Part,
    /// How often this part tries what the step tries.
    pub(crate) amount: u64,
    pub(crate) estimate: Estimate,
    pub(crate) work: Work,
}

/// What a step does.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// Runs this `cargo test` for an amount: tests must run, and all pass.
    Tests(fn(u64) -> Command),
    /// Runs a command that must succeed.
    Check(fn() -> Result<Command, Error>),
    /// The same, with the commit of a release. Without a release there is nothing to do.
    SinceRelease {
        command: fn(&str) -> Result<Command, Error>,
        release: Option<String>,
    },
    /// Changes expressions: as large a part of all mutations as the step is of all steps.
    Mutations,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match self.part.of() {
            1 => Ok(()),
            _ => write!(f, " {}", self.part),
        }
    }
}

/// The steps whose names contain one of the texts; of a text that is a name, only that step. All
/// steps without a text.
pub(crate) fn choose<'a>(steps: &'a [Step], texts: &[String]) -> Result<Vec<&'a Step>, Error> {
    let names: Vec<String> = steps.iter().map(Step::to_string).collect();
    let mut chosen = vec![texts.is_empty(); steps.len()];
    for text in texts {
        let is_name = names.contains(text);
        let is_meant = |name: &String| match is_name {
            true => name == text,
            false => name.contains(text.as_str()),
        };
        if !names.iter().any(is_meant) {
            let names = names.join("\n");
            return Err(format!("no step has `{text}` in its name; there are:\n{names}").into());
        }
        for (chosen, name) in chosen.iter_mut().zip(&names) {
            *chosen |= is_meant(name);
        }
    }
    let chosen = steps.iter().zip(chosen).filter(|(_, chosen)| *chosen);
    Ok(chosen.map(|(step, _)| step).collect())
}

/// The seed of a part, from the seed of a run. The first part has the run's own.
pub(super) fn seed(run: u64, part: Part) -> u64 {
    if part.number() == 1 {
        return run;
    }
    // The last step of splitmix64. What is left is short enough to be typed.
    let mut bits = run ^ part.number().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ (bits >> 31)) >> 32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::estimate::Origin;
    use super::*;

    fn steps() -> Vec<Step> {
        let step = |name: &str, part| Step {
            name: name.to_owned(),
            part,
            amount: 1,
            estimate: Estimate {
                seconds: 1,
                origin: Origin::Guess("none"),
            },
            work: Work::Mutations,
        };
        let parts = Part::all(100).map(|part| step("schedules random", part));
        Part::all(1)
            .map(|part| step("drains", part))
            .chain(parts)
            .collect()
    }

    fn chosen(texts: &[&str]) -> Result<Vec<String>, String> {
        let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
        let steps = steps();
        let chosen = choose(&steps, &texts).map_err(|error| error.to_string())?;
        Ok(chosen.into_iter().map(Step::to_string).collect())
    }

    #[test]
    fn a_text_means_a_step_or_several() {
        assert_eq!(chosen(&[]).unwrap().len(), 101);
        assert_eq!(chosen(&["drain"]).unwrap(), ["drains"]);
        assert_eq!(chosen(&["random"]).unwrap().len(), 100);
        let two = chosen(&["random 7/100", "drains", "drain"]).unwrap();
        assert_eq!(two, ["drains", "schedules random 7/100"]);
        let error = chosen(&["drains", "kills"]).unwrap_err();
        let begin = "no step has `kills` in its name; there are:\ndrains\nschedules random 1/100\n";
        assert!(error.starts_with(begin), "{error}");
    }

    #[test]
    fn a_whole_name_means_no_other_step() {
        let mut steps = steps();
        steps[1].part = "1/10".parse().unwrap();
        let text = "schedules random 1/10".to_owned();
        let chosen = choose(&steps, &[text]).unwrap();
        assert_eq!(chosen.len(), 1, "and none of the others");
    }

    #[test]
    fn each_part_has_a_seed_of_its_own() {
        let seeds = |run| -> BTreeSet<u64> { Part::all(100).map(|part| seed(run, part)).collect() };
        assert_eq!(seeds(4_711).len(), 100);
        assert!(seeds(4_711).is_disjoint(&seeds(4_712)));
        let first = Part::all(10).next().unwrap();
        assert_eq!(seed(4_711, first), 4_711, "as of a step without parts");
        assert!(seeds(4_711).iter().all(|seed| *seed <= u64::from(u32::MAX)));
    }
}
