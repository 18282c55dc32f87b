//! The lanes that a source has claimed: which of their messages are handed over, and what to report
//! and to request in the next round trip. Pure.
//!
//! Two round trips may be in progress at a time, on two connections, and the database may do the
//! second one first. So a lane is requested, or left, in one of them only; and it is left only when
//! the other one reports nothing about it: that report would find the lane gone.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use keylane_inbox::StoredMessage;

use super::super::lane::LaneId;
use super::super::turn::{
    Answer, Brought, Claimed, Fetch, Found, Leave, MOST_CLAIMED, MessageRef, Place, RoundTrip,
    WorkerState,
};

/// The most lanes to fetch from or to leave in one round trip.
const MOST: usize = 1_024;

/// The most messages that one round trip asks for. A source may have twice as many by default, so
/// that two round trips at a time have equal work.
const ASKED: usize = 4_096;

/// The least number of messages to request from a lane, if lanes have so many: each lane costs more
/// than a message.
const SHARE: usize = 16;

/// How many messages of a lane are looked at one by one after a worker has died with it. By default
/// a worker has at most this many of a lane; one of them may have killed it.
const SUSPECTS: u32 = 256;

/// One claim of so many looks at all free lanes. The others look only behind the lane that was
/// claimed last: before it the database would scan the remains of all earlier claims. Lanes that
/// were skipped, because they were committed late or another worker was about to take them, wait
/// for that one claim.
const FROM_THE_FIRST: usize = 8;

/// How many turns sum up the bytes after the limit of bytes left messages out. A sum costs the
/// database more than a look at each message by itself.
const SUMMED: usize = 64;

/// How many windows of a lane may be handed over if its messages have versions: they may come in
/// any order, and the next one must not stay behind.
const VERSIONED: usize = 16;

/// The claimed lanes.
#[derive(Debug)]
pub(super) struct Lanes {
    limits: Limits,
    lanes: HashMap<LaneId, Lane>,
    /// Lanes that may have something to report or to request. Each at most once.
    busy: VecDeque<LaneId>,
    /// Lanes that could not be left because their key is locked.
    resting: Vec<LaneId>,
    done: Vec<(Claimed, MessageRef)>,
    attempts: Vec<(Claimed, MessageRef, u32)>,
    /// Bytes of messages that are handed over, or about to be.
    bytes: usize,
    /// The requests of the turns in progress.
    asked: Asked,
    /// The average number of messages in the lanes that were claimed last, plus one.
    depth: usize,
    /// Whether there may be lanes that no worker has.
    claims: bool,
    /// For how many more turns to sum up the bytes, whichever lanes they ask for.
    summed: usize,
    /// Most lanes that became free earlier are claimed; see [`RoundTrip::since`].
    since: f64,
    /// The number of claims since one looked at all free lanes.
    claiming: usize,
    /// Whether to look at all lanes that are ours.
    checks: bool,
    /// How often there was something new.
    looks: u64,
    turns: usize,
}

#[derive(Debug, Default)]
struct Asked {
    messages: usize,
    bytes: usize,
    lanes: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) keys: usize,
    pub(super) window: usize,
    pub(super) bytes: usize,
    /// Whether all attempts are noted anyway.
    pub(super) exact_starts: bool,
}

#[derive(Debug)]
struct Lane {
    token: u64,
    /// The messages that are handed over, or about to be, in their order, each with its size in
    /// bytes.
    out: VecDeque<(MessageRef, usize)>,
    /// Everything up to here was brought.
    after: u64,
    last: u64,
    redriven: u64,
    place: Place,
    /// How many more messages are looked at one by one.
    suspects: u32,
    /// No message waited above `after` when its key was at `last`.
    is_exhausted: bool,
    /// A message has come back: the lane is read again from its beginning, once none of it is out.
    starts_over: bool,
    has_versions: bool,
    /// The limit of bytes left some of it out.
    is_cut: bool,
    /// It could not be left, and nothing has changed since.
    is_stuck: bool,
    /// It is in `busy`, or a turn under way asks for it or leaves it.
    is_queued: bool,
    /// How many done-marks and attempts are to be reported, or may not have arrived.
    untold: usize,
    /// How many of them are in turns in progress.
    telling: usize,
    /// A message that is handed over once its attempt is noted.
    suspect: Option<Box<Ready>>,
}

/// A message to be handed over.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) claimed: Claimed,
    pub(super) nonce: u64,
    pub(super) message: StoredMessage,
    /// How often it was started before.
    pub(super) attempts: u32,
    /// The attempt that is noted, and may start.
    pub(super) noted: u32,
}

impl Ready {
    pub(super) fn name(&self) -> MessageRef {
        MessageRef {
            sequence: self.message.sequence,
            nonce: self.nonce,
        }
    }
}

/// The result of an answer.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) ready: Vec<Ready>,
    /// Messages that are to come back if they have not started: letters wait again in front of
    /// them.
    pub(super) recalled: Vec<(LaneId, MessageRef)>,
    /// One of our claims has ended, and so have all; or a message that we have belongs to another
    /// history of the database.
    pub(super) is_lost: bool,
}

impl Lanes {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            lanes: HashMap::new(),
            busy: VecDeque::new(),
            resting: Vec::new(),
            done: Vec::new(),
            attempts: Vec::new(),
            bytes: 0,
            asked: Asked::default(),
            depth: SHARE,
            claims: true,
            summed: 0,
            since: 0.0,
            claiming: 0,
            checks: false,
            looks: 0,
            turns: 0,
        }
    }

    /// Returns how much there is to report.
    pub(super) fn unsaid(&self) -> usize {
        self.done.len() + self.attempts.len()
    }

    /// Returns whether every settlement is reported, once no turn is in progress.
    pub(super) fn is_told(&self) -> bool {
        self.unsaid() == 0
    }

    pub(super) fn has_resting(&self) -> bool {
        !self.resting.is_empty()
    }

    /// Records that there may be something new: a message was accepted, or it is time to look.
    pub(super) fn look(&mut self) {
        self.claims = true;
        self.looks += 1;
        self.wake_resting();
        let mut versioned = Vec::new();
        for (id, lane) in &mut self.lanes {
            // It may wait for a message that is here now.
            if lane.has_versions && !lane.out.is_empty() {
                lane.is_exhausted = false;
                versioned.push(*id);
            }
        }
        versioned.into_iter().for_each(|lane| self.queue(lane));
    }

    /// Looks also at lanes whose messages are handed over: letters may wait again in front of them.
    pub(super) fn check(&mut self) {
        self.checks = true;
    }

    /// Tries the lanes again that could not be left.
    pub(super) fn wake_resting(&mut self) {
        for id in std::mem::take(&mut self.resting) {
            if let Some(lane) = self.lanes.get_mut(&id) {
                (lane.is_stuck, lane.is_exhausted) = (false, false);
            }
            self.queue(id);
        }
    }

    /// Returns the claim under which a lane is ours.
    pub(super) fn claim_of(&self, lane: LaneId) -> Option<Claimed> {
        let token = self.lanes.get(&lane)?.token;
        Some(Claimed { lane, token })
    }

    /// Settles a message that was handed over: it is done, or given up.
    pub(super) fn settle(&mut self, id: LaneId, message: MessageRef, is_told: bool) {
        let Some(lane) = self.lanes.get_mut(&id) else {
            return;
        };
        let Some(bytes) = lane.take(message) else {
            return;
        };
        self.bytes -= bytes;
        if !is_told {
            lane.untold += 1;
            let token = lane.token;
            self.done.push((Claimed { lane: id, token }, message));
        }
        lane.queue(id, &mut self.busy);
    }

    /// Takes back a message that was handed over, after so many attempts.
    pub(super) fn give_back(&mut self, id: LaneId, message: MessageRef, attempts: u32) {
        let Some(lane) = self.lanes.get_mut(&id) else {
            return;
        };
        let Some(bytes) = lane.take(message) else {
            return;
        };
        lane.starts_over = true;
        let token = lane.token;
        self.bytes -= bytes;
        if attempts > 0 {
            lane.untold += 1;
            let claimed = Claimed { lane: id, token };
            self.attempts.push((claimed, message, attempts));
        }
        self.queue(id);
    }

    /// Records an attempt that must be noted before it starts, unless the message is not here any
    /// more.
    pub(super) fn note_attempt(&mut self, id: LaneId, sequence: u64, attempts: u32) {
        let Some(lane) = self.lanes.get_mut(&id) else {
            return;
        };
        if let Ok(at) = lane.find(sequence) {
            let message = lane.out[at].0;
            lane.untold += 1;
            let claimed = Claimed {
                lane: id,
                token: lane.token,
            };
            self.attempts.push((claimed, message, attempts));
        }
    }

    /// Returns the reports and requests of the next turn, with room for so many messages. It may be
    /// empty.
    pub(super) fn turn(&mut self, worker: u64, room: usize) -> RoundTrip {
        let mut turn = RoundTrip {
            worker,
            looks: self.looks,
            ..RoundTrip::default()
        };
        // All of them: a lane that is left takes its done-marks along.
        turn.done = std::mem::take(&mut self.done);
        turn.attempts = std::mem::take(&mut self.attempts);
        let bytes = self
            .limits
            .bytes
            .saturating_sub(self.bytes + self.asked.bytes);
        let mut room = match bytes {
            0 => 0,
            _ => room.saturating_sub(self.asked.messages).min(ASKED),
        };
        // The other half is for another turn beside this one.
        turn.bytes = bytes.div_ceil(2).max(1) as u64;
        turn.sums = self.summed > 0;
        let known = self.lanes.len() + self.asked.lanes;
        let free = match self.claims {
            true => self.limits.keys.saturating_sub(known),
            false => 0,
        };
        // All lanes have a share of the room, so that a few lanes do not take all of it.
        let share = room / (self.busy.len() + free).max(1);
        let least = self.depth.min(SHARE).min(self.limits.window);
        let share = share.clamp(least, self.limits.window);
        // A quarter of the room is for lanes that wait, so that none waits for all messages in
        // others; with room for fewer than four, some turns give them all of it.
        self.turns = self.turns.wrapping_add(1);
        let kept_free = match free {
            0 => 0,
            _ => (room + self.turns % 4) / 4,
        };
        room -= kept_free;
        let mut kept = VecDeque::new();
        while turn.leave.len() + turn.fetch.len() < MOST
            && let Some(id) = self.busy.pop_front()
        {
            let Some(lane) = self.lanes.get_mut(&id) else {
                continue;
            };
            let claimed = Claimed {
                lane: id,
                token: lane.token,
            };
            lane.start_over();
            match lane.wish(self.limits.window) {
                Wish::Nothing => lane.is_queued = false,
                // The answer to that report queues it again.
                Wish::Leave if lane.telling > 0 => lane.is_queued = false,
                Wish::Leave => {
                    turn.leave.push(Leave {
                        claimed,
                        last: lane.last,
                        place: lane.place,
                    });
                }
                Wish::Messages(count) if room > 0 => {
                    let count = count.min(share).min(room);
                    room -= count;
                    // Its share is too small for it.
                    turn.sums |= lane.is_cut;
                    turn.fetch.push(Fetch {
                        claimed,
                        after: lane.after,
                        count: u32::try_from(count).unwrap_or(u32::MAX),
                    });
                }
                Wish::Messages(_) => kept.push_back(id),
            }
        }
        kept.append(&mut self.busy);
        self.busy = kept;
        if std::mem::take(&mut self.checks) {
            self.check_all(&mut turn);
        }
        room += kept_free;
        // One claim at a time: a second one beside it would have to skip the rows that it has
        // locked.
        if room > 0 && free > 0 && self.asked.lanes == 0 {
            let share = share.min(room);
            turn.claim = free.min(room / share).min(MOST_CLAIMED) as u32;
            turn.window = share as u32;
            self.claiming = (self.claiming + 1) % FROM_THE_FIRST;
            turn.since = match self.claiming {
                0 => 0.0,
                _ => self.since,
            };
        }
        self.begin(&turn);
        turn
    }

    /// Records that a turn is in progress.
    fn begin(&mut self, turn: &RoundTrip) {
        let asked = turn.asked();
        self.asked.messages += asked;
        self.asked.lanes += turn.claim as usize;
        if asked > 0 {
            self.asked.bytes += turn.bytes as usize;
        }
        for claimed in turn.told() {
            if let Some(lane) = self.claimed(claimed) {
                lane.telling += 1;
            }
        }
    }

    /// Records that a turn has ended. `is_heard`: its reports have arrived.
    fn end(&mut self, turn: &RoundTrip, is_heard: bool) {
        let asked = turn.asked();
        self.asked.messages -= asked;
        self.asked.lanes -= turn.claim as usize;
        if asked > 0 {
            self.asked.bytes -= turn.bytes as usize;
        }
        for claimed in turn.told() {
            let Some(lane) = self.claimed(claimed) else {
                continue;
            };
            lane.telling -= 1;
            lane.untold -= usize::from(is_heard);
            if lane.telling == 0 {
                self.queue(claimed.lane);
            }
        }
    }

    /// Checks all lanes, without a request for messages.
    fn check_all(&mut self, turn: &mut RoundTrip) {
        // Includes those for whose messages there was no room.
        let busy: HashSet<LaneId> = self.busy.iter().copied().collect();
        let waited_for = (self.lanes.iter_mut())
            .filter(|(id, lane)| !lane.out.is_empty() && (!lane.is_queued || busy.contains(*id)));
        turn.fetch.extend(waited_for.map(|(id, lane)| {
            lane.is_queued = true;
            Fetch {
                claimed: Claimed {
                    lane: *id,
                    token: lane.token,
                },
                after: lane.after,
                count: 0,
            }
        }));
        let lanes = &self.lanes;
        (self.busy).retain(|id| lanes.get(id).is_some_and(|lane| lane.out.is_empty()));
    }

    /// Takes back a turn without an answer: its reports are sent again. Its requests may have been
    /// granted, see [`adopt`](Self::adopt).
    pub(super) fn take_back(&mut self, turn: RoundTrip) {
        self.end(&turn, false);
        let leave = turn.leave.iter().map(|leave| leave.claimed);
        for claimed in leave.chain(turn.fetch.iter().map(|fetch| fetch.claimed)) {
            if let Some(lane) = self.claimed(claimed) {
                lane.is_queued = false;
                self.queue(claimed.lane);
            }
        }
        self.done.splice(0..0, turn.done);
        self.attempts.splice(0..0, turn.attempts);
        self.forget_the_unclaimed();
    }

    /// Drops the reports about lanes that are not ours any more: they could be left because no
    /// message waited in them.
    fn forget_the_unclaimed(&mut self) {
        let lanes = &self.lanes;
        let is_ours = |claimed: &Claimed| {
            let lane = lanes.get(&claimed.lane);
            lane.is_some_and(|lane| lane.token == claimed.token)
        };
        self.done.retain(|(claimed, _)| is_ours(claimed));
        self.attempts.retain(|(claimed, ..)| is_ours(claimed));
    }

    /// Returns the lane of a claim, if that claim is the current one.
    fn claimed(&mut self, claimed: Claimed) -> Option<&mut Lane> {
        let lane = self.lanes.get_mut(&claimed.lane);
        lane.filter(|lane| lane.token == claimed.token)
    }

    /// Adopts exactly these lanes as ours, after a lost answer, while no turn is in progress.
    /// Returns false if a lane is not ours any more that was not about to be left.
    pub(super) fn adopt(&mut self, found: &[Found]) -> bool {
        let theirs: HashMap<LaneId, u64> = (found.iter())
            .map(|found| (found.claimed.lane, found.claimed.token))
            .collect();
        let window = self.limits.window;
        let is_left = |lane: &Lane| lane.wish(window) == Wish::Leave;
        let is_there = |id: &LaneId, lane: &Lane| theirs.get(id) == Some(&lane.token);
        if !(self.lanes.iter()).all(|(id, lane)| is_there(id, lane) || is_left(lane)) {
            return false;
        }
        self.lanes.retain(|id, lane| is_there(id, lane));
        self.busy.retain(|id| self.lanes.contains_key(id));
        for found in found {
            let id = found.claimed.lane;
            if !self.lanes.contains_key(&id) {
                let lane = Lane::new(found, self.limits.exact_starts);
                self.lanes.insert(id, lane);
                self.queue(id);
            }
        }
        self.forget_the_unclaimed();
        true
    }

    /// Applies the answer of the database to a turn.
    pub(super) fn apply(&mut self, turn: &RoundTrip, answer: Answer) -> Applied {
        let mut applied = Applied {
            is_lost: !answer.lost.is_empty() || answer.standing != WorkerState::Alive,
            ..Applied::default()
        };
        let stayed: HashSet<LaneId> = answer.stayed.into_iter().collect();
        for Leave { claimed, .. } in &turn.leave {
            if !stayed.contains(&claimed.lane)
                && let Entry::Occupied(lane) = self.lanes.entry(claimed.lane)
                && lane.get().token == claimed.token
            {
                lane.remove();
            }
        }
        self.end(turn, true);
        let leave = turn.leave.iter().map(|leave| leave.claimed);
        for claimed in leave.filter(|claimed| stayed.contains(&claimed.lane)) {
            // It still exists: a message was accepted, or is about to be.
            if let Some(lane) = self.claimed(claimed) {
                lane.is_queued = false;
                if lane.is_stuck {
                    self.resting.push(claimed.lane);
                } else {
                    lane.is_exhausted = false;
                    self.queue(claimed.lane);
                }
            }
        }
        let mut asked: HashMap<LaneId, u32> = (turn.fetch.iter())
            .map(|fetch| (fetch.claimed.lane, fetch.count))
            .collect();
        let left_out: HashSet<LaneId> = answer.left_out.into_iter().collect();
        self.summed = match left_out.is_empty() {
            true => self.summed.saturating_sub(1),
            false => SUMMED,
        };
        let is_latest = turn.looks == self.looks;
        let mut found_lanes = answer.lanes;
        let claimed = found_lanes.len() - asked.len().min(found_lanes.len());
        if claimed > 0 {
            let claims = found_lanes
                .iter()
                .filter(|found| !asked.contains_key(&found.claimed.lane));
            let found: u32 = claims.map(|found| found.messages).sum();
            self.depth = (found as usize).div_ceil(claimed) + 1;
        }
        if !left_out.is_empty() {
            // Lanes that were left out altogether come first the next time.
            let served: HashSet<LaneId> = answer.messages.iter().map(|one| one.lane).collect();
            found_lanes.sort_by_key(|found| served.contains(&found.claimed.lane));
        }
        for found in &found_lanes {
            let id = found.claimed.lane;
            let count = asked.remove(&id);
            let new = || Lane::new(found, self.limits.exact_starts);
            let lane = self.lanes.entry(id).or_insert_with(new);
            if lane.token != found.claimed.token {
                // The answer to the turn that left it is still on its way.
                *lane = new();
                self.busy.retain(|busy| *busy != id);
            }
            lane.is_queued = false;
            if count != Some(0) {
                lane.is_cut = left_out.contains(&id);
                let has_more = lane.is_cut || found.messages >= count.unwrap_or(turn.window);
                // A producer that has not committed has locked its key.
                lane.is_stuck = lane.out.is_empty()
                    && !has_more
                    && found.messages == 0
                    && count.is_some()
                    && lane.last == found.last;
                (lane.last, lane.place) = (found.last, found.place);
                // A late message may be in front of those that wait for a version.
                lane.is_exhausted = !has_more && (is_latest || !lane.has_versions);
            }
            lane.see_redriven(found, &mut applied);
            lane.queue(id, &mut self.busy);
        }
        applied.is_lost |= !asked.is_empty();
        if claimed < turn.claim as usize {
            // There are no others, except lanes that came meanwhile, or became free earlier.
            self.claims &= !is_latest || turn.since > 0.0;
            self.since = 0.0;
        } else if let Some(since) = answer.free_since {
            self.since = since;
        }
        for (claimed, message, _) in &turn.attempts {
            self.hand_over_suspect(*claimed, *message, &mut applied);
        }
        for brought in answer.messages {
            self.bring(brought, &mut applied);
        }
        applied
    }

    fn bring(&mut self, brought: Brought, applied: &mut Applied) {
        let name = brought.name();
        let Brought {
            lane: id,
            nonce,
            attempts,
            message,
        } = brought;
        let Some(lane) = self.lanes.get_mut(&id) else {
            return;
        };
        let (sequence, bytes) = (message.sequence, message.payload.len());
        // Messages that came back meanwhile, or wait again, are in front of it.
        if lane.starts_over {
            return;
        }
        let at = match lane.find(sequence) {
            Err(at) => at,
            Ok(at) => {
                // Another message has the number of one that we have.
                applied.is_lost |= lane.out[at].0 != name;
                return;
            }
        };
        if lane.suspects > 0 && !lane.out.is_empty() {
            // One at a time.
            lane.is_exhausted = false;
            return;
        }
        lane.after = lane.after.max(sequence);
        lane.has_versions |= message.version.is_some();
        lane.out.insert(at, (name, bytes));
        self.bytes += bytes;
        let claimed = Claimed {
            lane: id,
            token: lane.token,
        };
        let ready = |noted| Ready {
            claimed,
            nonce,
            message,
            attempts,
            noted,
        };
        if lane.suspects == 0 {
            return applied.ready.push(ready(attempts));
        }
        lane.untold += 1;
        self.attempts.push((claimed, name, attempts + 1));
        lane.suspect = Some(Box::new(ready(attempts + 1)));
    }

    /// Hands a message over whose attempt is noted.
    fn hand_over_suspect(&mut self, claimed: Claimed, name: MessageRef, applied: &mut Applied) {
        let Some(lane) = self.lanes.get_mut(&claimed.lane) else {
            return;
        };
        let noted = lane.suspect.take_if(|suspect| suspect.name() == name);
        let Some(mut ready) = noted.map(|noted| *noted) else {
            return;
        };
        lane.suspects -= 1;
        ready.claimed.token = lane.token;
        applied.ready.push(ready);
    }

    /// Asserts that a lane is requested or left in one turn at a time.
    #[cfg(test)]
    pub(super) fn assert_sound(&self) {
        let busy: HashSet<&LaneId> = self.busy.iter().collect();
        assert_eq!(busy.len(), self.busy.len(), "a lane is queued twice");
    }

    fn queue(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.queue(id, &mut self.busy);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Nothing,
    Messages(usize),
    Leave,
}

impl Lane {
    fn new(found: &Found, exact_starts: bool) -> Self {
        Self {
            token: found.claimed.token,
            out: VecDeque::new(),
            after: 0,
            last: found.last,
            redriven: found.redriven,
            place: found.place,
            suspects: match found.crashes {
                0 => 0,
                _ if exact_starts => 0,
                _ => SUSPECTS,
            },
            is_exhausted: false,
            starts_over: false,
            has_versions: false,
            is_cut: false,
            is_stuck: false,
            is_queued: false,
            untold: 0,
            telling: 0,
            suspect: None,
        }
    }

    /// Returns where a message of it is in `out`, or would be.
    fn find(&self, sequence: u64) -> Result<usize, usize> {
        (self.out).binary_search_by_key(&sequence, |(message, _)| message.sequence)
    }

    /// Removes a message. Returns how many bytes it has.
    fn take(&mut self, message: MessageRef) -> Option<usize> {
        let at = self.find(message.sequence).ok()?;
        let (_, bytes) = *self.out.get(at).filter(|out| out.0 == message)?;
        self.out.remove(at);
        Some(bytes)
    }

    fn queue(&mut self, id: LaneId, busy: &mut VecDeque<LaneId>) {
        if !std::mem::replace(&mut self.is_queued, true) {
            busy.push_back(id);
        }
    }

    /// Recalls the messages that are handed over, if letters wait again in front of them.
    fn see_redriven(&mut self, found: &Found, applied: &mut Applied) {
        if std::mem::replace(&mut self.redriven, found.redriven) != found.redriven {
            self.starts_over = true;
            let out = self.out.iter();
            (applied.recalled).extend(out.map(|(message, _)| (found.claimed.lane, *message)));
        }
    }

    /// Reads the lane from its beginning again, if it must and no message of it is out. By then
    /// done messages must be gone, and attempts must be noted: an earlier turn reports them.
    fn start_over(&mut self) {
        if self.starts_over && self.out.is_empty() && self.untold == 0 {
            self.starts_over = false;
            self.is_exhausted = false;
            self.after = 0;
        }
    }

    /// Returns what to do about this lane.
    fn wish(&self, window: usize) -> Wish {
        if self.out.is_empty() {
            return match (self.starts_over, self.is_exhausted) {
                (true, _) => Wish::Nothing,
                (false, true) => Wish::Leave,
                _ if self.suspects > 0 => Wish::Messages(1),
                _ => Wish::Messages(window),
            };
        }
        if self.starts_over || self.is_exhausted || self.suspects > 0 {
            return Wish::Nothing;
        }
        let window = match self.has_versions {
            true => window * VERSIONED,
            false => window,
        };
        match self.out.len() <= window / 2 {
            true => Wish::Messages(window - self.out.len()),
            false => Wish::Nothing,
        }
    }
}
