//! What is measured.

use crate::contenders::Id;
use crate::handler::{HALTED, Handler, SPECIAL};
use crate::record::Traffic;

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// For example `sleep-1ms/12p`.
    pub name: String,
    /// What is in the topic.
    pub traffic: Traffic,
    /// Partitions of the topic.
    pub partitions: u32,
    /// What the handlers do.
    pub handler: Handler,
    /// How many at once.
    pub concurrency: usize,
    /// Keys below this one are not counted, and not waited for.
    pub first_counted: u32,
    /// Its process is killed when half of the records are done, and another one goes on.
    pub is_killed: bool,
    /// Who takes part.
    pub ids: Vec<Id>,
}

/// How many records there are. `--records` and `--quick` make them fewer.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// At most so many in each workload.
    pub most: u32,
}

const KEYS: u32 = 10_000;

/// All of them.
pub fn all(size: Size) -> Vec<Workload> {
    let mut all = Vec::new();
    for partitions in [1, 12] {
        all.push(Workload {
            concurrency: 100,
            ids: vec![Id::Keylane, Id::Plain, Id::Locks, Id::Parallel],
            ..even(
                format!("waiting/empty/{partitions}p"),
                size,
                1_000_000,
                partitions,
                Handler::Empty,
            )
        });
    }
    for (name, micros, records) in [("1ms", 1_000, 400_000), ("10ms", 10_000, 200_000)] {
        for partitions in [1, 12] {
            let handler = Handler::Sleep(micros);
            let name = format!("sleep-{name}/{partitions}p");
            all.push(even(name, size, records, partitions, handler));
        }
    }
    for keys in [1, 2, 5, 10, 20, 50, 100, 1_000, 10_000] {
        let records = size.most.min(10_000);
        all.push(Workload {
            traffic: Traffic::Even {
                records,
                keys: keys.min(records),
            },
            concurrency: 100,
            ids: vec![Id::Keylane, Id::Parallel],
            ..even(
                format!("readme/{keys}-keys"),
                size,
                records,
                1,
                Handler::Random(5_000),
            )
        });
    }
    let (records, keys) = (size.most.min(200_000), KEYS);
    let hot = Traffic::HalfHot { records, keys };
    let cold = Traffic::ColdHalf { records, keys };
    // All take 1 ms; or those of the hot key alone, so that reading past it is what is measured.
    let (all_take, hot_takes) = (Handler::Sleep(1_000), Handler::Hot(1_000));
    for (name, traffic, handler, ids) in [
        // With a lock for each key it is over when the hot key is, after 100 s.
        ("hot-half", hot, all_take, &[Id::Keylane, Id::Parallel][..]),
        (
            "hot-half/without",
            cold,
            all_take,
            &[Id::Keylane, Id::Parallel],
        ),
        ("hot-empty", hot, hot_takes, &[Id::Keylane]),
        ("hot-empty/without", cold, hot_takes, &[Id::Keylane]),
    ] {
        all.push(Workload {
            traffic,
            concurrency: 100,
            first_counted: SPECIAL + 1,
            ids: ids.to_vec(),
            ..even(name.to_owned(), size, records, 1, handler)
        });
    }
    for (name, handler) in [
        ("failing", Handler::Failing(1_000)),
        ("failing/without", Handler::Sleep(1_000)),
    ] {
        all.push(Workload {
            first_counted: HALTED + 1,
            ids: vec![Id::Keylane, Id::Parallel],
            ..even(name.to_owned(), size, 200_000, 12, handler)
        });
    }
    all.push(Workload {
        is_killed: true,
        ids: vec![Id::Keylane, Id::Parallel],
        ..even("kill".to_owned(), size, 400_000, 12, Handler::Sleep(1_000))
    });
    all
}

fn even(name: String, size: Size, records: u32, partitions: u32, handler: Handler) -> Workload {
    let records = records.min(size.most);
    Workload {
        name,
        traffic: Traffic::Even {
            records,
            keys: KEYS.min(records),
        },
        partitions,
        handler,
        concurrency: 1_000,
        first_counted: 0,
        is_killed: false,
        ids: Id::ALL.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_told_apart_and_sizes_are_kept() {
        let all = all(Size { most: 5_000 });
        let names: BTreeSet<&str> = all.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        for workload in &all {
            let records = workload.traffic.records().count();
            assert!(
                (1..=5_000).contains(&records),
                "{}: {records}",
                workload.name
            );
            assert!(workload.traffic.counted(workload.first_counted) > 0);
        }
    }
}
