//! Tests decoders with bytes that no encoder has written: a committed corpus, and mutations of it.
//!
//! The corpus is a folder for each decoder, such as `tests/corpus/record`. Each test run tries its
//! files and some thousand mutations of them; with `KEYLANE_FUZZ` it tries mutations for so many
//! seconds. Then an input is added to the corpus if its answer has a part that no other input of
//! the corpus has shown. An input that makes a decoder fail is always added. Commit them.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::scenario::Random;

/// How many mutations to try, unless `KEYLANE_FUZZ` is set.
const MUTATIONS: u64 = 20_000;

/// The longest input.
const MOST_BYTES: usize = 1_024;

/// A decoder under test.
#[derive(Debug)]
pub struct Target<S, L> {
    /// The folder of its corpus.
    pub corpus: PathBuf,
    /// Encoded inputs, for a decoder without a corpus.
    pub seeds: Vec<Vec<u8>>,
    /// Corrects the checksums, if the bytes have any. Otherwise a decoder would check nothing else.
    pub seal: S,
    /// Decodes, and panics if the answer is wrong. Returns a short description of the answer: parts
    /// with commas between them.
    pub look: L,
}

impl<S: Fn(&mut [u8]), L: Fn(&[u8]) -> String> Target<S, L> {
    /// Tries the corpus, and then mutations of it.
    pub fn fuzz(&self) {
        let seconds = std::env::var("KEYLANE_FUZZ").ok();
        let until = seconds.map(|seconds| {
            let seconds = seconds.parse().expect("a number of seconds");
            Instant::now() + Duration::from_secs(seconds)
        });
        let mut inputs = self.kept();
        inputs.extend(self.seeds.iter().cloned());
        let mut seen = BTreeSet::new();
        for input in &inputs {
            self.is_new(input, &mut seen);
        }
        let (known, parts) = (inputs.len(), seen.len());
        let mut random = Random::new(1);
        let mut tried = 0_u64;
        let goes_on = |tried: u64| match until {
            Some(until) => !tried.is_multiple_of(1_000) || Instant::now() < until,
            None => tried < MUTATIONS,
        };
        while goes_on(tried) {
            tried += 1;
            let input = self.mutated(&inputs, &mut random);
            if self.is_new(&input, &mut seen) {
                if until.is_some() {
                    self.keep("", &input);
                }
                inputs.push(input);
            }
        }
        println!(
            "{}: {known} inputs with {parts} parts of answers, {tried} mutations, {} new inputs with \
             {} new parts",
            self.corpus.display(),
            inputs.len() - known,
            seen.len() - parts
        );
    }

    /// Returns whether its answer has a part that was not seen before.
    fn is_new(&self, input: &[u8], seen: &mut BTreeSet<String>) -> bool {
        let answer = self.looked_at(input);
        let new = answer.split(", ").filter(|part| !seen.contains(*part));
        let new = Vec::from_iter(new.map(str::to_owned));
        seen.extend(new.iter().cloned());
        !new.is_empty()
    }

    fn looked_at(&self, input: &[u8]) -> String {
        // After a panic the state is not used again.
        match catch_unwind(AssertUnwindSafe(|| (self.look)(input))) {
            Ok(answer) => answer,
            Err(panic) => {
                let path = self.keep("failed-", input);
                eprintln!("the decoder fails over {}", path.display());
                resume_unwind(panic)
            }
        }
    }

    fn mutated(&self, inputs: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
        let mut any =
            |inputs: &[Vec<u8>]| inputs[random.below(inputs.len() as u64) as usize].clone();
        let (mut input, other) = (any(inputs), any(inputs));
        for _ in 0..=random.below(4) {
            mutate(&mut input, &other, random);
        }
        input.truncate(MOST_BYTES);
        if !random.one_in(4) {
            (self.seal)(&mut input);
        }
        input
    }

    /// Returns the corpus. A published crate has none.
    fn kept(&self) -> Vec<Vec<u8>> {
        let Ok(files) = fs::read_dir(&self.corpus) else {
            return Vec::new();
        };
        let mut paths = Vec::from_iter(files.map(|file| file.expect("a file").path()));
        paths.sort();
        let inputs = paths
            .iter()
            .map(|path| fs::read(path).expect("the corpus can be read"));
        inputs.collect()
    }

    fn keep(&self, prefix: &str, input: &[u8]) -> PathBuf {
        // A record ends with its CRC-32, and so all records of one length have the same CRC-32.
        let mut hasher = DefaultHasher::new();
        hasher.write(input);
        let name = format!("{prefix}{:016x}", hasher.finish());
        let path = self.corpus.join(name);
        let written = fs::create_dir_all(&self.corpus).and_then(|()| fs::write(&path, input));
        written.expect("the corpus can be written");
        path
    }
}

/// Numbers at which the behaviour may change.
const NUMBERS: [u32; 12] = [
    0,
    1,
    2,
    4,
    0x7f,
    0xff,
    0x100,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_fffe,
    u32::MAX,
];

fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    // A place in the input, or its end.
    let mut place = |bytes: &[u8]| random.below(bytes.len() as u64 + 1) as usize;
    let (at, end, from) = (place(input), place(input), place(other));
    let (at, end) = (at.min(end), at.max(end));
    let number = NUMBERS[random.below(NUMBERS.len() as u64) as usize];
    let bits = random.below(256) as u8;
    match random.below(9) {
        0 => input
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|byte| *byte ^= 1 << (bits % 8)),
        1 => input
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|byte| *byte = bits),
        2 => input.truncate(at),
        3 => drop(input.drain(at..end)),
        4 => input.insert(at, bits),
        // A length, as a number of two or four bytes.
        5 => write(input, at, &number.to_le_bytes()),
        6 => write(input, at, &number.to_le_bytes()[..2]),
        7 => {
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        _ => drop(input.splice(at..end, other[from..].iter().copied())),
    }
}

/// Overwrites bytes.
fn write(input: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in input.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

/// Returns a rough length, so that the description of an answer does not depend on each byte.
pub fn about(length: usize) -> usize {
    match length {
        0..=2 => length,
        _ => length.ilog2() as usize + 2,
    }
}

#[test]
fn a_decoder_that_fails_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    // It trusts a length.
    let target = Target {
        corpus: folder.path().into(),
        seeds: vec![vec![3, 1, 2, 3]],
        seal: |_: &mut [u8]| {},
        look: |input: &[u8]| {
            let length = input.first().map_or(0, |length| usize::from(*length));
            input
                .get(1..)
                .map_or(0, |rest| rest[..length].len())
                .to_string()
        },
    };
    let failed = catch_unwind(AssertUnwindSafe(|| target.fuzz()));
    let kept = target.kept();
    assert!(failed.is_err());
    assert!(
        kept.iter()
            .any(|input| usize::from(input[0]) >= input.len())
    );
}
