//! Settings of topics with which the brokers may lose what they have confirmed. Pure.

use keylane_connector::Hazard;

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
}
