//! What a console shows, to whom, and what it allows.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::http::uri::Authority;
use keylane::Dispatcher;
use keylane::consume::{Intake, IntakeWatch};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::access::Rules;
use crate::action::Action;
use crate::console::Console;
use crate::feed::{Feed, Look};
use crate::fronts::{Fronts, Looked, PartedIntake};
use crate::key::ConsoleKey;
use crate::leaders::{Leader, LeaderRow, Watching};
use crate::letters::{LetterStore, Shelf};
use crate::parts::{Parts, SourcePart};
use crate::reports::Reports;
use crate::rows::ms;
use crate::sessions::Sessions;
use crate::state::{Shown, State};
use crate::summary::{SourceSummary, Summary};
use crate::target::{Target, Watched};
use crate::view::View;

/// Fewest bytes of a token.
const SHORTEST_TOKEN: usize = 16;

/// Builds a [`Console`].
///
/// | setting | default |
/// | --- | --- |
/// | [`token`](Self::token) | none: each program of this machine may look |
/// | [`remote`](Self::remote) | none: this machine only |
/// | [`allow`](Self::allow) | nothing: it only shows; it needs a token |
/// | [`without_token`](Self::without_token) | no: without a token nothing is allowed |
///
/// # Proxies on this machine
///
/// A proxy on this machine, such as nginx in front of your service, asks from this machine. If it
/// adds no header and asks for `127.0.0.1`, as `proxy_pass http://127.0.0.1:3000` alone does, what
/// it forwards cannot be told from a program of this machine. So without a token **all whom the
/// proxy serves may read** what the console shows, unless the proxy keeps its path to itself. To
/// act they need the token. The README has the lines for nginx.
#[must_use = "`build` makes the console"]
#[derive(Default)]
pub struct Builder {
    targets: Vec<Arc<dyn Target>>,
    intakes: Vec<(String, IntakeWatch)>,
    parts: Vec<(String, Parts)>,
    letters: Vec<(String, Arc<dyn LetterStore>)>,
    leaders: Vec<(String, Watching)>,
    leases: Vec<(String, LeaseWatching)>,
    token: Option<String>,
    hosts: Vec<String>,
    allowed: Vec<Action>,
    without_token: bool,
}

/// Shows the leases of one kind.
type LeaseWatching = Box<dyn Fn() -> Value + Send + Sync>;

/// Why a console cannot be built.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// Hosts were named for other machines, and there is no token.
    #[error("other machines may ask, and there is no token: set `token` too")]
    RemoteWithoutToken,
    /// A host is no name that a client could ask for: it has a scheme, a path or a user, or is
    /// empty.
    #[error("{host:?} is no host: name it as in `ops.example` or `ops.example:8443`")]
    Host {
        /// What was given to [`Builder::remote`].
        host: String,
    },
    /// Actions were allowed, and there is no token: a proxy on this machine could let all act.
    #[error(
        "actions are allowed, and there is no token: set `token`, or `without_token` if no proxy \
         leads here"
    )]
    ActionsWithoutToken,
    /// The token could be guessed.
    #[error("the token has fewer than 16 bytes: take 32 random ones")]
    ShortToken,
    /// A name is empty, or two of a kind have it.
    #[error("the name {name:?} is empty or taken: give each thing of a kind its own")]
    Name {
        /// The name.
        name: String,
    },
    /// Parts were given for an intake that is not shown.
    #[error("there are parts for an intake {name:?} that is not shown: add it with `intake`")]
    NoIntake {
        /// The name.
        name: String,
    },
}

keylane_rt::text_in_debug! { BuildError: RemoteWithoutToken, Host, ActionsWithoutToken, ShortToken, Name, NoIntake }

impl Console {
    /// Returns a builder of a console that only shows, to this machine only.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Shows a dispatcher under a name.
    pub fn dispatcher<K, M, O, E>(self, name: &str, dispatcher: &Dispatcher<K, M, O, E>) -> Self
    where
        K: ConsoleKey + Hash + Eq + Clone + Send + Sync + 'static,
        M: Send + Sync + 'static,
        O: Send + 'static,
        E: fmt::Debug + Send + Sync + 'static,
    {
        self.dispatcher_with(name, dispatcher, View::of_keys())
    }

    /// Shows a dispatcher whose keys have no [`ConsoleKey`], or whose messages may be replaced: see
    /// [`View`].
    pub fn dispatcher_with<K, M, O, E>(
        mut self,
        name: &str,
        dispatcher: &Dispatcher<K, M, O, E>,
        view: View<K, M>,
    ) -> Self
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
        M: Send + Sync + 'static,
        O: Send + 'static,
        E: fmt::Debug + Send + Sync + 'static,
    {
        self.targets
            .push(Arc::new(Watched::new(name, dispatcher, view)));
        self
    }

    /// Shows an intake under a name. The console does not keep it going.
    pub fn intake(mut self, name: &str, intake: &Intake) -> Self {
        self.intakes.push((name.to_owned(), intake.watch()));
        self
    }

    /// Shows the parts of an intake: the partitions of a topic, or streams. They are asked for once
    /// a second while there is a viewer, and must not block.
    pub fn parts(
        mut self,
        intake: &str,
        parts: impl Fn() -> Vec<SourcePart> + Send + Sync + 'static,
    ) -> Self {
        self.parts.push((intake.to_owned(), Box::new(parts)));
        self
    }

    /// Shows the partitions of an intake of Kafka, by the control of its source.
    #[cfg(feature = "kafka")]
    pub fn partitions(self, intake: &str, control: keylane_kafka::Control) -> Self {
        self.parts(intake, move || {
            let partitions = control.partitions().into_iter();
            partitions.map(SourcePart::from).collect()
        })
    }

    /// Shows the streams of an intake of Redis that this process owns, by the watch of its source:
    /// get it from [`StreamSource::watch`](keylane_redis::StreamSource::watch) before the source is
    /// consumed. While there is a viewer, the source asks the server every five seconds how far
    /// the group is behind in each of them.
    #[cfg(feature = "redis")]
    pub fn streams(self, intake: &str, watch: keylane_redis::StreamWatch) -> Self {
        self.parts(intake, move || {
            let parts = watch.parts().into_iter();
            parts.map(SourcePart::from).collect()
        })
    }

    /// Shows dead letters under a name.
    pub fn letters(mut self, name: &str, store: impl LetterStore) -> Self {
        self.letters.push((name.to_owned(), Arc::new(store)));
        self
    }

    /// Shows who leads an election. `leader` is asked once a second while there is a viewer, and
    /// must not block. With the feature `leader`, `Builder::leader` takes a `LeaderWatch`.
    pub fn leader_with(
        mut self,
        name: &str,
        leader: impl Fn() -> Option<Leader> + Send + Sync + 'static,
    ) -> Self {
        self.leaders.push((name.to_owned(), Box::new(leader)));
        self
    }

    /// Shows who leads an election, as a watch of `keylane-leader` says.
    #[cfg(feature = "leader")]
    pub fn leader(self, name: &str, watch: keylane_leader::LeaderWatch) -> Self {
        self.leader_with(name, move || {
            let leader = watch.leader()?;
            Some(Leader {
                id: leader.leader.to_string(),
                token: leader.token.0,
                is_leaving: leader.is_leaving,
            })
        })
    }

    /// Shows the leases of this process: how many it holds, waits for and has lost, and the 50 that
    /// end first, also those whose keys have no messages. The console does not keep them open.
    #[cfg(feature = "leases")]
    pub fn leases(mut self, name: &str, leases: &keylane_leases::Leases) -> Self {
        let (watch, shown) = (leases.watch(), name.to_owned());
        let look = move || json!(crate::leases::LeasesRow::of(&shown, &watch));
        self.leases.push((name.to_owned(), Box::new(look)));
        self
    }

    /// Asks each viewer for this token, of at least 16 bytes. It is posted once, and a cookie
    /// stands for it for twelve hours; it is never part of an address.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Answers other machines too, if they ask for one of these hosts, such as `ops.example` for
    /// any port or `ops.example:8443`. It needs a [`token`](Self::token).
    ///
    /// Put TLS in front of it. For a host that is not this machine the cookie is `Secure`: a
    /// browser sends it over TLS only.
    pub fn remote<H: Into<String>>(mut self, hosts: impl IntoIterator<Item = H>) -> Self {
        self.hosts.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// Allows these actions, to those who have posted the [`token`](Self::token). Each one, done or
    /// refused, is in the log as a warning, target `keylane_console`, with the action, the
    /// dispatcher, the key, the session and the peer, also if the client does not wait for the
    /// answer. Of requests that are refused before the action is read, such as those of a foreign
    /// page, each reason has a line in ten seconds.
    pub fn allow(mut self, actions: impl IntoIterator<Item = Action>) -> Self {
        self.allowed.extend(actions);
        self
    }

    /// Lets each program and user of this machine act without a token: for a machine of your own,
    /// on which no proxy leads to the service. See [Proxies on this
    /// machine](Self#proxies-on-this-machine).
    pub fn without_token(mut self) -> Self {
        self.without_token = true;
        self
    }

    /// Builds the console. Nothing runs until a viewer comes.
    ///
    /// # Errors
    ///
    /// [`BuildError`] says what is missing.
    pub fn build(self) -> Result<Console, BuildError> {
        self.check()?;
        let life = life();
        let closed = CancellationToken::new();
        let dispatchers = self.targets.iter().map(|target| Shown {
            target: Arc::clone(target),
            lanes: lanes(&life, &closed, Arc::clone(target)),
        });
        let shelves = self.letters.into_iter();
        let shelves = shelves.map(|(name, store)| Arc::new(Shelf::new(&name, store, &closed)));
        let shelves: Arc<[Arc<Shelf>]> = shelves.collect();
        let intakes = self.intakes.iter().map(|(name, _)| name.clone()).collect();
        let watches: HashMap<_, _> = self.intakes.iter().cloned().collect();
        let parted = self.parts.into_iter().filter_map(|(name, parts)| {
            let watch = watches.get(&name)?.clone();
            Some(PartedIntake { name, watch, parts })
        });
        let fronts = Arc::new(Fronts::new(parted.collect(), self.targets.clone()));
        let seen = Seen {
            targets: self.targets.clone(),
            intakes: self.intakes,
            fronts: Arc::clone(&fronts),
            leaders: self.leaders,
            leases: self.leases,
            shelves: Arc::clone(&shelves),
            began: Instant::now(),
        };
        let state = State {
            dispatchers: dispatchers.collect(),
            overview: overview(&life, &closed, seen),
            shelves,
            fronts,
            cookie: format!("keylane_console_{life}"),
            life,
            rules: Rules { hosts: self.hosts },
            sessions: self.token.map(Sessions::new),
            allowed: self.allowed,
            intakes,
            closed,
            refused: Reports::default(),
        };
        Ok(Console {
            state: Arc::new(state),
        })
    }

    fn check(&self) -> Result<(), BuildError> {
        if !self.hosts.is_empty() && self.token.is_none() {
            return Err(BuildError::RemoteWithoutToken);
        }
        if let Some(host) = self.hosts.iter().find(|host| !is_host(host)) {
            return Err(BuildError::Host { host: host.clone() });
        }
        if !self.allowed.is_empty() && self.token.is_none() && !self.without_token {
            return Err(BuildError::ActionsWithoutToken);
        }
        if self
            .token
            .as_ref()
            .is_some_and(|token| token.len() < SHORTEST_TOKEN)
        {
            return Err(BuildError::ShortToken);
        }
        unique(self.targets.iter().map(|target| target.name()))?;
        unique(self.intakes.iter().map(|(name, _)| &**name))?;
        unique(self.letters.iter().map(|(name, _)| &**name))?;
        unique(self.leaders.iter().map(|(name, _)| &**name))?;
        unique(self.leases.iter().map(|(name, _)| &**name))?;
        unique(self.parts.iter().map(|(name, _)| &**name))?;
        let shown = |name: &str| self.intakes.iter().any(|(intake, _)| intake == name);
        match self.parts.iter().find(|(name, _)| !shown(name)) {
            Some((name, _)) => Err(BuildError::NoIntake { name: name.clone() }),
            None => Ok(()),
        }
    }
}

/// Whether a client can ask for it.
fn is_host(host: &str) -> bool {
    !host.contains('@') && Authority::try_from(host).is_ok()
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.targets.iter().map(|target| target.name());
        f.debug_struct("Builder")
            .field("dispatchers", &names.collect::<Vec<_>>())
            .field("hosts", &self.hosts)
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), BuildError> {
    let mut taken = std::collections::HashSet::new();
    for name in names {
        if name.is_empty() || !taken.insert(name) {
            return Err(BuildError::Name {
                name: name.to_owned(),
            });
        }
    }
    Ok(())
}

/// Names this process: no other one of the service has started in the same nanosecond.
fn life() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    format!("{:x}", now.unwrap_or_default().as_nanos())
}

/// All that the overview looks at.
struct Seen {
    targets: Vec<Arc<dyn Target>>,
    intakes: Vec<(String, IntakeWatch)>,
    fronts: Arc<Fronts>,
    leaders: Vec<(String, Watching)>,
    leases: Vec<(String, LeaseWatching)>,
    shelves: Arc<[Arc<Shelf>]>,
    began: Instant,
}

impl Seen {
    async fn look(&self) -> Look {
        let looked = self.fronts.look().await;
        let up_ms = ms(self.began.elapsed());
        let dispatchers: Vec<Summary> = self.targets.iter().map(summary).collect();
        let intakes = self.intakes.iter();
        let intakes: Vec<_> = intakes
            .map(|(name, watch)| intake(name, watch, &looked))
            .collect();
        let leaders = self.leaders.iter();
        let leaders: Vec<_> = leaders
            .map(|(name, leader)| LeaderRow::of(name, shielded(leader).flatten()))
            .collect();
        let leases: Vec<_> = self.leases.iter().map(|(_, look)| look()).collect();
        let letters = self.shelves.iter();
        let letters: Vec<_> = letters
            .map(|shelf| json!({ "name": shelf.name, "job": shelf.job() }))
            .collect();
        let counts: Vec<_> = dispatchers.iter().map(Summary::counts).collect();
        let point = json!({ "up_ms": up_ms, "counts": counts });
        let body = json!({
            "up_ms": up_ms,
            "dispatchers": dispatchers,
            "intakes": intakes,
            "leaders": leaders,
            "leases": leases,
            "letters": letters,
        });
        Look {
            body: body.to_string(),
            point: Some(point.to_string()),
        }
    }
}

fn intake(name: &str, watch: &IntakeWatch, looked: &Looked) -> SourceSummary {
    let mut summary = SourceSummary::of(name, watch.stats());
    (summary.parts, summary.other_parts) = looked.rows_of(name);
    summary
}

fn summary(target: &Arc<dyn Target>) -> Summary {
    Summary {
        times: target.percentiles(),
        ..target.summary()
    }
}

/// What the user's code returns, if it does not panic: the page goes on without it.
fn shielded<T>(call: impl Fn() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

fn overview(life: &str, closed: &CancellationToken, seen: Seen) -> Feed {
    let targets = seen.targets.clone();
    let seen = Arc::new(seen);
    let look = move || {
        let seen = Arc::clone(&seen);
        async move { seen.look().await }
    };
    Feed::with_rest(life, closed.clone(), look, move || {
        targets.iter().for_each(|target| target.rest());
    })
}

fn lanes(life: &str, closed: &CancellationToken, target: Arc<dyn Target>) -> Feed {
    Feed::new(life, closed.clone(), move || {
        let target = Arc::clone(&target);
        async move {
            let rows = target.lanes().await;
            let all = target.summary().lanes;
            let body = json!({ "dispatcher": target.name(), "all": all, "lanes": rows });
            Look {
                body: body.to_string(),
                point: None,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServeError;

    #[test]
    fn errors_show_their_text() {
        let name = || "orders".to_owned();
        let address = ([10, 0, 0, 1], 80).into();
        keylane_testkit::error_texts! {
            BuildError =>
                BuildError::RemoteWithoutToken,
                BuildError::ActionsWithoutToken,
                BuildError::Host { host: "http://ops.example".to_owned() },
                BuildError::ShortToken,
                BuildError::Name { name: name() },
                BuildError::NoIntake { name: name() };
            ServeError =>
                ServeError::NotLoopback { address },
                ServeError::Io(std::io::Error::other("it is broken"));
        }
    }

    #[test]
    fn another_machine_needs_a_token_and_a_setting() {
        let built = |builder: Builder| builder.build().map(|_| ());
        let remote = || Builder::default().remote(["ops.example"]);
        assert_eq!(built(Builder::default()), Ok(()));
        assert_eq!(built(remote()), Err(BuildError::RemoteWithoutToken));
        assert_eq!(built(remote().token("short")), Err(BuildError::ShortToken));
        assert_eq!(built(remote().token("0123456789abcdef")), Ok(()));
        for no_host in [
            "http://ops.example",
            "ops.example/console",
            "ann@ops.example",
            "",
        ] {
            let remote = Builder::default()
                .remote([no_host])
                .token("0123456789abcdef");
            let host = no_host.to_owned();
            assert_eq!(built(remote), Err(BuildError::Host { host }));
        }
        let with_port = Builder::default().remote(["ops.example:8443", "[::1]"]);
        assert_eq!(built(with_port.token("0123456789abcdef")), Ok(()));
    }

    #[test]
    fn an_action_needs_a_token() {
        let built = |builder: Builder| builder.build().map(|_| ());
        let acts = || Builder::default().allow([Action::Pause]);
        assert_eq!(built(acts()), Err(BuildError::ActionsWithoutToken));
        assert_eq!(built(acts().without_token()), Ok(()));
        assert_eq!(built(acts().token("0123456789abcdef")), Ok(()));
        assert_eq!(built(Builder::default().allow([])), Ok(()));
    }

    #[test]
    fn names_are_unique() {
        assert_eq!(unique(["a", "b"].into_iter()), Ok(()));
        for names in [["a", "a"], ["a", ""]] {
            let name = names[1].to_owned();
            assert_eq!(unique(names.into_iter()), Err(BuildError::Name { name }));
        }
    }
}
