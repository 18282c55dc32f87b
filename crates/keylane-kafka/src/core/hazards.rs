//! Settings of topics with which the brokers may lose what they have confirmed. Pure.

use std::collections::HashMap;
use std::time::Duration;

use keylane_connector::Hazard;
use tokio::time::Instant;

/// The first pause before the same warning is repeated, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(86_400));

/// What a topic is to the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Its records are handled.
    Read,
    /// It has the dead letters.
    Letters,
    /// It has the commits of the group.
    Commits,
}

/// The settings of a topic, as far as the user may see them.
#[derive(Clone, Debug)]
pub(crate) struct TopicSettings {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The replicas of the partition that has fewest.
    pub(crate) replicas: Option<usize>,
    /// `min.insync.replicas`.
    pub(crate) fewest_in_sync: Option<usize>,
    /// `unclean.leader.election.enable`.
    pub(crate) is_unclean: bool,
    /// `cleanup.policy`.
    pub(crate) cleanup: Option<String>,
}

impl TopicSettings {
    /// Returns the settings of this topic that may lose something.
    pub(crate) fn hazards(&self) -> Vec<Hazard> {
        let hazard = |setting: &str, value: String, remedy| Hazard {
            setting: setting.to_owned(),
            value,
            remedy,
        };
        let mut found = Vec::new();
        match (self.replicas, self.fewest_in_sync) {
            (Some(1), _) => found.push(hazard(
                "replication.factor",
                "1".to_owned(),
                "what is in this topic is lost with its broker: give it three replicas",
            )),
            (Some(_), Some(1)) => found.push(hazard(
                "min.insync.replicas",
                "1".to_owned(),
                "what is written while only one replica is in sync is lost with its broker: set \
                 `min.insync.replicas` to 2",
            )),
            _ => {}
        }
        if self.is_unclean {
            found.push(hazard(
                "unclean.leader.election.enable",
                "true".to_owned(),
                "a replica that is behind may become the leader, and what it lacks is lost: set \
                 `unclean.leader.election.enable` to false",
            ));
        }
        if let (Role::Letters, Some(policy)) = (self.role, &self.cleanup)
            && policy.contains("compact")
        {
            found.push(hazard(
                "cleanup.policy",
                policy.clone(),
                "a dead letter replaces earlier ones of its key: set `cleanup.policy` to `delete`",
            ));
        }
        found
    }
}

/// Decides when to warn of a hazard: at once, and then at growing intervals.
#[derive(Debug, Default)]
pub(crate) struct Warnings(HashMap<(String, String), Warned>);

#[derive(Debug)]
struct Warned {
    again_at: Instant,
    pause: Duration,
}

impl Warnings {
    /// Returns the hazards to warn of now, of those that were found, each with its topic. What is
    /// not found any more is forgotten.
    pub(crate) fn due(
        &mut self,
        found: Vec<(String, Hazard)>,
        now: Instant,
    ) -> Vec<(String, Hazard)> {
        let name = |(topic, hazard): &(String, Hazard)| (topic.clone(), hazard.setting.clone());
        self.0
            .retain(|known, _| found.iter().any(|one| name(one) == *known));
        let is_due = |one: &(String, Hazard)| {
            let known = self.0.get_mut(&name(one));
            let pause = match known {
                Some(known) if now < known.again_at => return false,
                Some(known) => (known.pause * 2).min(PAUSES.1),
                None => PAUSES.0,
            };
            let again_at = now + pause;
            self.0.insert(name(one), Warned { again_at, pause });
            true
        };
        found.into_iter().filter(is_due).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn safe(role: Role) -> TopicSettings {
        TopicSettings {
            name: "orders".to_owned(),
            role,
            replicas: Some(3),
            fewest_in_sync: Some(2),
            is_unclean: false,
            cleanup: Some("delete".to_owned()),
        }
    }

    fn settings(topic: &TopicSettings) -> Vec<String> {
        let found = topic.hazards().into_iter();
        found.map(|hazard| hazard.setting).collect()
    }

    #[test]
    fn settings_that_lose_records_are_found() {
        for role in [Role::Read, Role::Letters, Role::Commits] {
            let mut topic = safe(role);
            assert_eq!(settings(&topic), [""; 0]);
            topic.fewest_in_sync = Some(1);
            assert_eq!(settings(&topic), ["min.insync.replicas"]);
            topic.replicas = Some(1);
            assert_eq!(settings(&topic), ["replication.factor"]);
            topic.is_unclean = true;
            let both = ["replication.factor", "unclean.leader.election.enable"];
            assert_eq!(settings(&topic), both);
        }
    }

    #[test]
    fn only_letters_must_not_be_compacted() {
        for (role, found) in [(Role::Read, 0), (Role::Commits, 0), (Role::Letters, 1)] {
            let mut topic = safe(role);
            topic.cleanup = Some("compact,delete".to_owned());
            assert_eq!(settings(&topic).len(), found, "{role:?}");
        }
    }

    #[test]
    fn what_the_user_may_not_see_is_no_hazard() {
        let topic = TopicSettings {
            replicas: None,
            fewest_in_sync: None,
            cleanup: None,
            ..safe(Role::Letters)
        };
        assert_eq!(settings(&topic), [""; 0]);
    }

    #[test]
    fn a_warning_comes_again_at_growing_intervals_and_at_once_when_it_was_over() {
        let (mut warnings, start) = (Warnings::default(), Instant::now());
        let mut topic = safe(Role::Read);
        topic.replicas = Some(1);
        let found = || vec![("orders".to_owned(), topic.hazards().remove(0))];
        let looks = (0..200).map(|number| 300 * number);
        let said: Vec<_> = looks
            .filter(|at| {
                let now = start + Duration::from_secs(*at);
                !warnings.due(found(), now).is_empty()
            })
            .collect();
        assert_eq!(said, [0, 600, 1_800, 4_200, 9_000, 18_600, 37_800]);
        let now = start + Duration::from_secs(60_000);
        assert!(warnings.due(Vec::new(), now).is_empty());
        assert_eq!(warnings.due(found(), now).len(), 1);
    }
}
