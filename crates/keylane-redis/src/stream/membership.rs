//! Shares the streams among the members of the group: reports that this member is alive, acquires
//! its share of the streams, and gives up surplus ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylane_connector::{ErrorKind, lock};
use keylane_leases::error::AcquireError;
use keylane_leases::{Lease, Leases};
use redis::{Value, cmd};
use tokio::sync::{Notify, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::answer::{Failure, bytes, incomprehensible, list, tuple};
use super::core::{order, quota};
use super::lease::Place;
use super::owner::own;
use super::script::{JOIN, run};
use super::worker::{Duty, News, Worker};
use crate::error::RedisError;
use crate::link::Link;
use crate::names;

/// The longest time between two looks at the members.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The shortest pause before another try at a stream that another member still owns.
const FIRST_TRY: Duration = Duration::from_millis(50);

/// The name of this member, once it has joined. The member keeps it for the life of the source: its
/// place among the others follows from the name.
#[derive(Clone, Debug, Default)]
pub(super) struct Member(Arc<Mutex<Option<Bytes>>>);

impl Member {
    fn name(&self) -> Option<Bytes> {
        lock(&self.0).clone()
    }

    fn set(&self, name: Bytes) {
        *lock(&self.0) = Some(name);
    }

    /// Leaves the group of members at once.
    pub(super) async fn leave(&self, link: &Link, key: &Bytes) {
        if let Some(name) = self.name() {
            let mut command = cmd("ZREM");
            command.arg(&**key).arg(&*name);
            let left = link.clone().ask::<Value>(&command).await;
            if let Err(error) = left {
                tracing::debug!(
                    target: "keylane",
                    %error,
                    "could not leave the group: the member stays until its time runs out"
                );
            }
        }
    }
}

/// Returns the key with the members of the group, beside its first stream.
pub(super) fn members_key(stream: &[u8], group: &[u8]) -> Bytes {
    names::beside(stream, &[b"members:", group])
}

pub(super) struct Membership {
    worker: Arc<Worker>,
    leases: Leases,
    member: Member,
    members: Bytes,
    /// Distinguishes this process from others that join in the same millisecond.
    random: String,
    places: Vec<Arc<Place>>,
    /// Streams that are owned, or about to be.
    owned: BTreeMap<u32, Owner>,
    owners: JoinSet<()>,
    /// Streams that were reported as surplus.
    surplus: BTreeSet<u32>,
    try_again: Duration,
    /// The number of members, and the place of this one. It counts as alone until the first answer.
    known: (usize, usize),
}

/// The task of a stream.
struct Owner {
    task: AbortHandle,
    let_go: Arc<Notify>,
}

impl Membership {
    pub(super) fn new(worker: Arc<Worker>, leases: Leases, member: Member, members: Bytes) -> Self {
        let settings = &worker.config.settings;
        let places = settings.streams.iter().zip(0..);
        let places = places.map(|(stream, number)| Place::new(number, stream, &settings.group));
        Self {
            places: places.map(Arc::new).collect(),
            random: leases.owner().to_string(),
            worker,
            leases,
            member,
            members,
            owned: BTreeMap::new(),
            owners: JoinSet::new(),
            surplus: BTreeSet::new(),
            try_again: FIRST_TRY,
            known: (1, 0),
        }
    }

    /// Runs until it is stopped and owns no stream. Begins with these leases.
    pub(super) async fn run(
        mut self,
        kept: BTreeMap<u32, Arc<Lease>>,
        mut stop: oneshot::Receiver<()>,
    ) {
        for (number, lease) in kept {
            if lease.check().is_ok() {
                let place = Arc::clone(&self.places[number as usize]);
                self.own(place, lease);
            }
        }
        let mut look_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                _ = &mut stop => break,
                Some(ended) = self.owners.join_next() => {
                    self.ended(ended);
                    continue;
                }
                () = sleep_until(look_at) => {}
            }
            // If a call is dropped, a lease that was granted to it is released.
            tokio::select! {
                biased;
                _ = &mut stop => break,
                next = self.look() => look_at = Instant::now() + next,
            }
        }
        // Otherwise the others would wait until this member is late.
        self.member.leave(&self.worker.link, &self.members).await;
        while let Some(ended) = self.owners.join_next().await {
            self.ended(ended);
        }
    }

    fn ended(&mut self, ended: Result<(), tokio::task::JoinError>) {
        self.owned.retain(|_, owner| !owner.task.is_finished());
        self.surplus
            .retain(|stream| self.owned.contains_key(stream));
        if ended.is_err_and(|error| error.is_panic()) {
            let error = RedisError::new(ErrorKind::Other, "the task of a stream panicked");
            self.worker.say(News::Failed(error));
        }
    }

    /// Looks at the members, and acts on it. Returns the time until the next look.
    async fn look(&mut self) -> Duration {
        let every = (self.ttl() / 3).min(LOOK_EVERY);
        let (members, place) = match self.join().await {
            Ok(joined) => {
                self.worker.works(&self.places[0], Duty::Share);
                self.known = joined;
                joined
            }
            Err(Failure::Failed(error)) => {
                self.worker.say(News::Failed(error));
                return every;
            }
            // The lease ensures that a stream has one owner. The other members are unknown, so this
            // member gives up no stream, and leaves none to them: the shares may be uneven.
            Err(Failure::Unable(error) | Failure::Lasting(error)) => {
                let why = error.to_string();
                self.worker.fails(&self.places[0], Duty::Share, why);
                let (members, place) = self.known;
                self.acquire(self.places.len(), members, place).await;
                return every;
            }
        };
        let quota = quota(self.places.len(), members, place);
        self.give_up(quota);
        if self.owned.len() < quota {
            self.acquire(quota, members, place).await;
        }
        if self.owned.len() >= quota {
            self.try_again = FIRST_TRY;
            // The other streams are not tried any more.
            let owned = |place: &&Arc<Place>| self.owned.contains_key(&place.number);
            for place in self.places.iter().filter(|place| !owned(place)) {
                self.worker.works(place, Duty::Own);
            }
            return every;
        }
        // A missing stream becomes free when its owner gives it up, or when its lease runs out.
        let pause = self.try_again.min(every);
        self.try_again = pause * 2;
        pause
    }

    fn ttl(&self) -> Duration {
        self.worker.config.settings.ttl
    }

    /// Returns the number of members, and the place of this one.
    async fn join(&self) -> Result<(usize, usize), Failure> {
        let name = self.member.name().unwrap_or_default();
        let answer = run(&JOIN, &self.worker.link, |command| {
            command.arg(1).arg(&*self.members).arg(&*name);
            command
                .arg(&self.random)
                .arg(self.ttl().as_millis().max(1).to_string());
        });
        let [name, members] = tuple(answer.await?).ok_or_else(incomprehensible)?;
        let name = bytes(name).ok_or_else(incomprehensible)?;
        let members = list(members).ok_or_else(incomprehensible)?;
        let members: BTreeSet<Bytes> = members.into_iter().filter_map(bytes).collect();
        let place = members.range(..name.clone()).count();
        self.member.set(name);
        Ok((members.len(), place))
    }

    /// Tells the source to give up surplus streams. It repeats this each time: the source may not
    /// have known the stream before.
    fn give_up(&mut self, quota: usize) {
        let too_much = self.owned.len().saturating_sub(quota);
        let before = self.surplus.iter().copied();
        let others = self.owned.keys().rev().copied();
        let others = others.filter(|stream| !self.surplus.contains(stream));
        let chosen: BTreeSet<u32> = before.chain(others).take(too_much).collect();
        for stream in &chosen {
            self.worker.say(News::Surplus(*stream));
            // The source never knows a stream that cannot be taken over.
            if let Some(owner) = self.owned.get(stream) {
                owner.let_go.notify_one();
            }
        }
        // A stream that was reported leaves, even if it is no longer surplus.
        self.surplus.extend(chosen);
    }

    fn own(&mut self, place: Arc<Place>, lease: Arc<Lease>) {
        let number = place.number;
        let let_go = Arc::new(Notify::new());
        let owner = own(Arc::clone(&self.worker), place, lease, Arc::clone(&let_go));
        let task = self.owners.spawn(owner);
        self.owned.insert(number, Owner { task, let_go });
    }

    async fn acquire(&mut self, quota: usize, members: usize, place: usize) {
        for stream in order(self.places.len(), members, place) {
            if self.owned.len() >= quota {
                return;
            }
            let place = Arc::clone(&self.places[stream]);
            if self.owned.contains_key(&place.number) {
                continue;
            }
            match self.leases.try_acquire(place.lease(), self.ttl()).await {
                Ok(lease) => self.own(place, Arc::new(lease)),
                Err(AcquireError::Taken { .. }) => self.worker.works(&place, Duty::Own),
                Err(error) => {
                    self.worker.fails(&place, Duty::Own, error.to_string());
                    return;
                }
            }
        }
    }
}
