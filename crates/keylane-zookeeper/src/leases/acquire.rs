//! Grants.

use std::future::Future;
use std::time::{Duration, Instant};

use keylane_leases::Token;
use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Owner, Wish};
use zookeeper_client::{CreateMode, Error, Stat};

use super::LeaseData;
use crate::error::{Failed, store};
use crate::link::Link;
use crate::session::Session;

/// How often to try a key that changes hands meanwhile.
const ROUNDS: usize = 5;

/// How long such a key counts as taken then.
const BUSY: Duration = Duration::from_millis(10);

/// An attempt to get the lease of one wish.
struct Attempt {
    /// The place of the wish.
    at: usize,
    /// The number of the grant.
    number: u64,
    /// The grant that this one replaces.
    instead: Option<String>,
}

/// What is there after an attempt.
#[derive(Debug)]
struct Node {
    data: Option<LeaseData>,
    token: Token,
    is_ours: bool,
}

/// What follows from an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Granted(Token),
    Taken(Duration),
    /// Once more, in the place of this grant.
    Again(Option<String>),
    /// What this session has made belongs to another one.
    Replaced,
    /// The folder of the leases is gone.
    NoFolder,
}

pub(super) async fn acquire(
    link: &Link,
    owner: &Owner,
    wishes: &[Wish],
) -> Result<Vec<Answer>, StoreError> {
    if wishes.is_empty() {
        return Ok(Vec::new());
    }
    let session = link.session().await?;
    for wish in wishes {
        session.check_ttl(wish.ttl)?;
    }
    let mut answers = vec![Answer::Taken { remaining: BUSY }; wishes.len()];
    let mut open: Vec<(usize, Option<String>)> = (0..wishes.len()).map(|at| (at, None)).collect();
    for _ in 0..ROUNDS {
        // All are sent before the first answer is awaited.
        let sent = open.drain(..).map(|(at, instead)| {
            let attempt = Attempt {
                at,
                number: session.number(),
                instead,
            };
            let answer = ask(&session, owner, &wishes[at], &attempt);
            (attempt, answer)
        });
        let sent: Vec<_> = sent.collect();
        session.book_changed();
        for (attempt, answer) in sent {
            let (made, node) = answer?.await?;
            let wish = &wishes[attempt.at];
            let instead = attempt.instead.as_deref();
            let step = {
                let book = session.book();
                let now = Instant::now();
                let remaining = |guard: &str| book.remaining(session.number_of(guard)?, now);
                let guard = session.guard(attempt.number);
                decide(made, node, (&guard, owner.as_str()), wish.ttl, remaining)
            };
            match step {
                Step::Granted(token) => {
                    let instead = instead.and_then(|guard| session.number_of(guard));
                    let ends_at = Instant::now() + wish.ttl;
                    session
                        .book()
                        .grant(attempt.number, token, ends_at, instead);
                    answers[attempt.at] = Answer::Granted(token);
                    continue;
                }
                Step::Taken(remaining) => answers[attempt.at] = Answer::Taken { remaining },
                Step::Again(instead) => open.push((attempt.at, instead)),
                Step::Replaced => return Err(session.replaced()),
                Step::NoFolder => return Err(no_folder(&session)),
            }
            session.book().forget(attempt.number);
        }
        if open.is_empty() {
            break;
        }
    }
    session.book_changed();
    Ok(answers)
}

/// Sends an attempt, and a question for what is there then.
fn ask<'a>(
    session: &'a Session,
    owner: &Owner,
    wish: &Wish,
    attempt: &Attempt,
) -> Result<impl Future<Output = Result<Found, StoreError>> + Send + use<'a>, StoreError> {
    let guard = session.guard(attempt.number);
    let (lease, grant) = (session.paths.lease(&wish.key), session.paths.grant(&guard));
    let data = LeaseData {
        owner: owner.to_string(),
        guard,
        ttl: wish.ttl,
        session: session.timeout(),
    };
    let options = CreateMode::Ephemeral.with_acls(session.acls());
    let mut writer = session.client.new_multi_writer();
    let mut add = || {
        if let Some(instead) = &attempt.instead {
            writer.add_delete(&session.paths.grant(instead), None)?;
            writer.add_delete(&lease, None)?;
        }
        writer.add_create(&lease, &data.encode(), &options)?;
        writer.add_create(&grant, b"", &options)
    };
    add().map_err(|error| store(&session.hosts, &error))?;
    let ends_at = Instant::now() + wish.ttl;
    session
        .book()
        .ask(attempt.number, &wish.key, owner, ends_at);
    let made = writer.commit();
    let seen = session.client.get_data(&lease);
    Ok(async move {
        let made = match made.await.map_err(Failed::from) {
            Ok(_) => Made::Done,
            Err(Failed::Exists) => Made::Exists,
            Err(Failed::Missing) => Made::Missing,
            Err(Failed::Unknown(error)) => return Err(store(&session.hosts, &error)),
        };
        let node = match seen.await {
            Ok((data, stat)) => Some(node(session, &data, &stat)),
            Err(Error::NoNode) => None,
            Err(error) => return Err(store(&session.hosts, &error)),
        };
        Ok((made, node))
    })
}

fn node(session: &Session, data: &[u8], stat: &Stat) -> Node {
    session.saw(stat.czxid);
    Node {
        data: LeaseData::decode(data),
        // A transaction has a positive number.
        token: Token(stat.czxid.unsigned_abs()),
        is_ours: session.owns(stat),
    }
}

/// What became of an attempt, and what is there then.
type Found = (Made, Option<Node>);

/// What became of the transaction of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Done,
    Exists,
    Missing,
}

/// Returns what follows from what is there after an attempt of this grant and owner. `remaining` is
/// how long a grant of this session lasts; `None` if it is over.
fn decide(
    made: Made,
    node: Option<Node>,
    (guard, owner): (&str, &str),
    ttl: Duration,
    remaining: impl Fn(&str) -> Option<Duration>,
) -> Step {
    let Some(node) = node else {
        // It was removed since.
        return match made {
            Made::Missing => Step::NoFolder,
            Made::Done | Made::Exists => Step::Again(None),
        };
    };
    let Some(data) = node.data else {
        return Step::Taken(ttl);
    };
    match (node.is_ours, data.guard == guard) {
        (true, true) => Step::Granted(node.token),
        (false, true) => Step::Replaced,
        (false, false) => Step::Taken(data.longest()),
        (true, false) if data.owner == owner => Step::Again(Some(data.guard)),
        (true, false) => match remaining(&data.guard) {
            Some(remaining) => Step::Taken(remaining),
            // Its nodes are about to be removed.
            None => Step::Again(Some(data.guard)),
        },
    }
}

fn no_folder(session: &Session) -> StoreError {
    session.give_up();
    let root = session.paths.root();
    StoreError::new(format!(
        "the nodes below `{root}` were removed: the next call makes a new session and the nodes"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const LEFT: Duration = Duration::from_secs(3);

    fn node(guard: &str, owner: &str, is_ours: bool) -> Option<Node> {
        let data = LeaseData {
            owner: owner.to_owned(),
            guard: guard.to_owned(),
            ttl: TTL,
            session: TTL * 3,
        };
        Some(Node {
            data: Some(data),
            token: Token(7),
            is_ours,
        })
    }

    fn step(made: Made, node: Option<Node>) -> Step {
        let remaining = |guard: &str| (guard == "lasting").then_some(LEFT);
        decide(made, node, ("new", "me"), TTL * 2, remaining)
    }

    #[test]
    fn a_node_counts_only_with_the_session() {
        let granted = step(Made::Done, node("new", "me", true));
        assert_eq!(granted, Step::Granted(Token(7)));
        let replaced = step(Made::Done, node("new", "me", false));
        assert_eq!(replaced, Step::Replaced);
        // A node of an earlier session of the same owner is as any other.
        let earlier = step(Made::Exists, node("old", "me", false));
        assert_eq!(earlier, Step::Taken(TTL * 3));
    }

    #[test]
    fn the_owner_replaces_its_own_grant_and_all_replace_one_that_is_over() {
        let again = |guard: &str| Step::Again(Some(guard.to_owned()));
        let mine = step(Made::Exists, node("lasting", "me", true));
        assert_eq!(mine, again("lasting"));
        let other = step(Made::Exists, node("lasting", "you", true));
        assert_eq!(other, Step::Taken(LEFT));
        let over = step(Made::Exists, node("over", "you", true));
        assert_eq!(over, again("over"));
    }

    #[test]
    fn what_has_gone_is_asked_for_again() {
        assert_eq!(step(Made::Exists, None), Step::Again(None));
        assert_eq!(step(Made::Missing, None), Step::NoFolder);
        let foreign = Node {
            data: None,
            token: Token(7),
            is_ours: false,
        };
        assert_eq!(step(Made::Exists, Some(foreign)), Step::Taken(TTL * 2));
    }
}
