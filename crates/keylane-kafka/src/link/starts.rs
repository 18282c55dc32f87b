//! Asks where partitions begin: each leader separately, so that a leader that is down holds up only
//! its own partitions.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use super::codes::is_silence;
use super::context::{Consumer, Found, committed};
use crate::core::{Begin, Committed, Log, OnOvertaken, begin};

/// The timeout of one request.
const ASKED_FOR: Duration = Duration::from_secs(3);

/// The timeout of the requests of a group's first start.
const FIRST_ASKED_FOR: Duration = Duration::from_secs(10);

/// The rules that decide where partitions begin.
#[derive(Clone)]
pub(crate) struct Rules {
    /// The partitions that begin at the end of their log if they have no committed offset.
    pub(crate) at_end: Arc<HashSet<(String, i32)>>,
    pub(crate) on_overtaken: OnOvertaken,
    /// The last committed offsets of topics that were created again since: these belong to the old
    /// topics.
    pub(crate) outdated: Arc<HashMap<(Arc<str>, i32), u64>>,
}

impl Rules {
    /// Returns the offset that is committed of the current log.
    fn committed(&self, one: &mut Found) -> Committed {
        let place = (Arc::clone(&one.topic), one.number);
        match std::mem::replace(&mut one.committed, Committed::Unknown) {
            Committed::At(at, _) if self.outdated.get(&place) == Some(&at) => Committed::Nothing,
            committed => committed,
        }
    }
}

/// The answer for one partition, or why there is none.
pub(crate) struct Answered {
    pub(crate) found: Found,
    pub(crate) begin: Result<Begin, String>,
}

/// The sender of the answers.
#[derive(Clone)]
pub(crate) struct Answers {
    pub(crate) to: UnboundedSender<Answered>,
    pub(crate) wake: Arc<Notify>,
}

impl Answers {
    fn say(&self, found: Found, begin: Result<Begin, String>) {
        // The receiver may be gone.
        let _ = self.to.send(Answered { found, begin });
        self.wake.notify_one();
    }

    fn say_of_all(&self, found: Vec<Found>, why: &str) {
        for found in found {
            self.say(found, Err(why.to_owned()));
        }
    }
}

/// Asks where these partitions begin, and moves the client there. Returns at once.
pub(crate) fn ask_for_starts(
    consumer: Arc<Consumer>,
    found: Vec<Found>,
    rules: Rules,
    answers: Answers,
) -> io::Result<()> {
    let run = move || {
        let found = with_committed(&consumer, found, &answers);
        let by_leader = by_leader(&consumer, found, &answers);
        thread::scope(|scope| {
            for found in by_leader.into_values() {
                let (consumer, rules, answers) = (&*consumer, &rules, &answers);
                scope.spawn(move || of_one_leader(consumer, found, rules, answers));
            }
        });
    };
    thread::Builder::new()
        .name("keylane-kafka-starts".to_owned())
        .spawn(run)?;
    Ok(())
}

/// Returns the partitions whose committed offset is known.
fn with_committed(consumer: &Consumer, found: Vec<Found>, answers: &Answers) -> Vec<Found> {
    let is_unknown = |one: &Found| matches!(one.committed, Committed::Unknown);
    let (unknown, mut known): (Vec<_>, Vec<_>) = found.into_iter().partition(is_unknown);
    if unknown.is_empty() {
        return known;
    }
    let said = consumer.committed_offsets(list(&unknown, Offset::Invalid), ASKED_FOR);
    for mut one in unknown {
        let committed = match &said {
            Ok(said) => match said.find_partition(&one.topic, one.number) {
                Some(element) => committed(&element),
                None => Ok(Committed::Nothing),
            },
            Err(error) => Err(error.clone()),
        };
        match committed {
            Ok(committed) => {
                one.committed = committed;
                known.push(one);
            }
            Err(error) => {
                let why = format!("its committed offset is not known: {error}");
                answers.say(one, Err(why));
            }
        }
    }
    known
}

/// Groups the partitions that have a leader by it.
fn by_leader(
    consumer: &Consumer,
    found: Vec<Found>,
    answers: &Answers,
) -> BTreeMap<i32, Vec<Found>> {
    let mut by_leader = BTreeMap::<_, Vec<_>>::new();
    if found.is_empty() {
        return by_leader;
    }
    let leaders = match leaders(consumer, &found) {
        Ok(leaders) => leaders,
        Err(error) => {
            answers.say_of_all(found, &format!("its leader is not known: {error}"));
            return by_leader;
        }
    };
    for one in found {
        let place = (one.topic.to_string(), one.number);
        match leaders.get(&place) {
            Some(leader) => by_leader.entry(*leader).or_default().push(one),
            None => answers.say(one, Err(NO_LEADER.to_owned())),
        }
    }
    by_leader
}

/// The failure of a partition that cannot be read for this reason.
pub(crate) const NO_LEADER: &str = "it has no leader: the brokers with its replicas are down";

fn leaders(consumer: &Consumer, found: &[Found]) -> KafkaResult<HashMap<(String, i32), i32>> {
    let topics: BTreeSet<&str> = found.iter().map(|one| &*one.topic).collect();
    let one = match topics.len() {
        1 => topics.first().copied(),
        _ => None,
    };
    let metadata = consumer.fetch_metadata(one, ASKED_FOR)?;
    let mut leaders = HashMap::new();
    for topic in metadata.topics() {
        for partition in topic.partitions() {
            if partition.leader() >= 0 {
                let place = (topic.name().to_owned(), partition.id());
                leaders.insert(place, partition.leader());
            }
        }
    }
    Ok(leaders)
}

fn of_one_leader(consumer: &Consumer, found: Vec<Found>, rules: &Rules, answers: &Answers) {
    let logs = match logs(consumer, &found) {
        Ok(logs) => logs,
        Err(error) if is_silence(&error) => {
            return answers.say_of_all(found, &format!("its leader does not answer: {error}"));
        }
        // For a request about many partitions the client reports only that one of them has failed.
        Err(_) => HashMap::new(),
    };
    for mut one in found {
        let place = (one.topic.to_string(), one.number);
        let log = match logs.get(&place) {
            Some(log) => Ok(*log),
            None => log(consumer, &one),
        };
        let begin = log.and_then(|log| {
            let at_end = rules.at_end.contains(&place);
            let read_from = one.read_from.unwrap_or(log.first);
            let committed = rules.committed(&mut one);
            let begin = begin(committed, log, at_end, rules.on_overtaken);
            if let Begin::At(start, _) = &begin
                // From an offset below the log, the client goes to the first record by itself.
                && start.at != read_from.max(log.first)
            {
                one.queue.seek(consumer, &place.0, place.1, start.at)?;
            }
            Ok(begin)
        });
        answers.say(one, begin.map_err(|error| error.to_string()));
    }
}

/// Returns the bounds of all these logs, or an error.
fn logs(consumer: &Consumer, found: &[Found]) -> KafkaResult<HashMap<(String, i32), Log>> {
    let ask = |end| consumer.offsets_for_times(list(found, end), ASKED_FOR);
    let (first, end) = (ask(Offset::Beginning)?, ask(Offset::End)?);
    let at = |of: &TopicPartitionList, one: &Found| {
        let element = of.find_partition(&one.topic, one.number)?;
        match (element.error(), element.offset()) {
            (Ok(()), Offset::Offset(at)) => u64::try_from(at).ok(),
            _ => None,
        }
    };
    let log = |one: &Found| {
        let log = Log {
            first: at(&first, one)?,
            end: at(&end, one)?,
        };
        Some(((one.topic.to_string(), one.number), log))
    };
    Ok(found.iter().filter_map(log).collect())
}

fn log(consumer: &Consumer, one: &Found) -> KafkaResult<Log> {
    let (first, end) = consumer.fetch_watermarks(&one.topic, one.number, ASKED_FOR)?;
    Ok(Log {
        first: first.max(0).unsigned_abs(),
        end: end.max(0).unsigned_abs(),
    })
}

fn list(found: &[Found], offset: Offset) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(found.len());
    for one in found {
        let mut element = list.add_partition(&one.topic, one.number);
        // It refuses only numbers that it cannot write.
        let _ = element.set_offset(offset);
    }
    list
}

/// Returns the partitions that exist when a group begins, of these topics or of all. Returns none
/// if the group has committed an offset of one of them: then it has begun before.
pub(crate) fn at_first_start(
    consumer: &Consumer,
    topics: Option<&[String]>,
) -> KafkaResult<HashSet<(String, i32)>> {
    let metadata = consumer.fetch_metadata(None, FIRST_ASKED_FOR)?;
    let mut there = HashSet::new();
    let mut list = TopicPartitionList::new();
    for topic in metadata.topics() {
        if topics.is_some_and(|topics| !topics.iter().any(|one| one == topic.name())) {
            continue;
        }
        for partition in topic.partitions() {
            list.add_partition(topic.name(), partition.id());
            there.insert((topic.name().to_owned(), partition.id()));
        }
    }
    if there.is_empty() {
        return Ok(there);
    }
    let committed = consumer.committed_offsets(list, FIRST_ASKED_FOR)?;
    let has_begun = |offset| matches!(offset, Offset::Offset(_));
    match committed
        .elements()
        .iter()
        .any(|one| has_begun(one.offset()))
    {
        true => Ok(HashSet::new()),
        false => Ok(there),
    }
}
