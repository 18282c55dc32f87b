//! The metadata of commits: compared with Parallel Consumer, and with itself.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::iter;
use std::ops::Range;

use keylane::source::frontier::Beyond;
use keylane_kafka::metadata::{DecodeError, MOST_CHARS, decode, encode};
use proptest::prelude::*;
use serde_json::Value;

/// The vectors that Parallel Consumer has written and read.
fn vectors() -> Value {
    serde_json::from_str(include_str!("data/parallel_consumer.json")).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Returns the done offsets between a committed one and the highest done one, without these.
fn done(committed: u64, highest: u64, not_done: impl Iterator<Item = Range<u64>>) -> Beyond {
    let (mut runs, mut start) = (Vec::new(), committed);
    for gap in not_done {
        runs.push(start..gap.start);
        start = gap.end;
    }
    // With nothing done it is the offset below the committed one.
    runs.push(start..(highest + 1).max(start));
    runs.into_iter().filter(|run| !run.is_empty()).collect()
}

#[test]
fn what_parallel_consumer_has_written_is_read() {
    let vectors = vectors();
    let mut read = 0;
    for vector in vectors["vectors"].as_array().unwrap() {
        let (committed, highest) = (number(&vector["committed"]), number(&vector["highest"]));
        let not_done = vector["incomplete"].as_array().unwrap().iter().map(|run| {
            let start = committed + number(&run[0]);
            start..start + number(&run[1])
        });
        let expected = done(committed, highest, not_done);
        for payload in vector["payloads"].as_array().unwrap() {
            let text = payload["metadata"].as_str().unwrap();
            let beyond = decode(committed, text).unwrap();
            assert!(beyond == expected, "{}: {payload}", vector["name"]);
            read += 1;
        }
        let smallest = vector["smallest"].as_str().unwrap();
        let written = encode(committed, || expected.runs(), usize::MAX);
        assert_eq!(written.left_out, None);
        // Another version of Zstandard may need a little more.
        assert!(
            written.text.len() <= smallest.len() * 21 / 20,
            "{}: {} characters, and {} of Parallel Consumer's",
            vector["name"],
            written.text.len(),
            smallest.len()
        );
        assert!(decode(committed, &written.text).unwrap() == expected);
    }
    assert_eq!(read, 88);
}

/// A body that is not compressed has one form, so it must be equal byte for byte.
#[test]
fn what_is_short_is_written_as_by_parallel_consumer() {
    let vectors = vectors();
    let vectors = vectors["vectors"].as_array().unwrap();
    let forms = |name: &str| {
        let vector = vectors.iter().find(|vector| {
            let named = vector["name"].as_str().unwrap();
            named.starts_with(name)
        });
        let payloads = vector.unwrap()["payloads"].as_array().unwrap();
        let texts = payloads.iter().map(|payload| payload["metadata"].as_str());
        texts
            .map(|text| text.unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let runs = [101..103, 105..109, 110..111];
    let text = encode(100, || runs.iter().cloned(), MOST_CHARS).text;
    assert!(forms("small mix").contains(&text), "{text}");
    let huge = (1 << 40) + 5;
    let text = encode(huge, || iter::once(huge + 1..huge + 5_001), MOST_CHARS).text;
    assert!(forms("huge committed").contains(&text), "{text}");
    let text = encode(1_000, || iter::once(1_001..41_001), MOST_CHARS).text;
    assert!(forms("run of 40000").contains(&text), "{text}");
}

/// Texts that Parallel Consumer refuses are refused. Texts that it reads are read alike, except a
/// length below 0, from which it makes an offset that does not exist.
#[test]
fn what_is_odd_is_read_as_by_parallel_consumer() {
    for edge in vectors()["edges"].as_array().unwrap() {
        let committed = number(&edge["committed"]);
        let read = decode(committed, edge["metadata"].as_str().unwrap());
        let name = edge["name"].as_str().unwrap();
        if edge["refused"] == true || name.contains("negative") {
            assert!(read.is_err(), "{name}: {read:?}");
            continue;
        }
        let not_done = edge["incomplete"].as_array().unwrap().iter().map(|offset| {
            let offset = number(offset);
            offset..offset + 1
        });
        let expected = done(committed, number(&edge["highest"]), not_done);
        assert!(read.unwrap() == expected, "{name}");
    }
    assert_eq!(decode(0, "AAAA"), Err(DecodeError::Foreign(0)));
    assert_eq!(decode(0, "no base64"), Err(DecodeError::NotBase64));
}

/// A frame of a few bytes that would fill the memory.
#[test]
fn a_frame_that_grows_too_much_is_refused() {
    let body = vec![0; 200 << 20];
    let frame = zstd::bulk::compress(&body, 3).unwrap();
    let text = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        [&b"p"[..], &frame].concat(),
    );
    assert_eq!(decode(0, &text), Err(DecodeError::Damaged));
}

/// Runs above an offset, with gaps and lengths of any size.
fn runs() -> impl Strategy<Value = (u64, Vec<Range<u64>>)> {
    let length = || {
        prop_oneof![
            8 => 1_u64..20,
            2 => 1_u64..40_000,
            1 => 1_u64..3_000_000_000,
        ]
    };
    let committed = prop_oneof![0_u64..1_000, Just(1 << 40), any::<u64>()];
    let lengths = prop::collection::vec((length(), length()), 0..400);
    (committed, lengths).prop_map(|(committed, lengths)| {
        let (mut runs, mut end) = (Vec::new(), committed);
        for (gap, length) in lengths {
            let Some(start) = end.checked_add(gap) else {
                break;
            };
            let Some(next) = start.checked_add(length) else {
                break;
            };
            runs.push(start..next);
            end = next;
        }
        (committed, runs)
    })
}

/// `KEYLANE_KAFKA_ROUND_TRIPS`, for the long run.
fn cases() -> u32 {
    let cases = std::env::var("KEYLANE_KAFKA_ROUND_TRIPS");
    cases.map_or(1_000, |cases| cases.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The whole text, or its beginning and where the rest begins.
    #[test]
    fn what_is_written_is_read((committed, runs) in runs(), most in prop_oneof![4_usize..200, Just(MOST_CHARS)]) {
        let encoded = encode(committed, || runs.iter().cloned(), most);
        prop_assert!(encoded.text.len() <= most);
        let end = encoded.left_out.unwrap_or(u64::MAX);
        let expected = runs.iter().filter(|run| run.start < end).cloned();
        let expected: Beyond = expected.collect();
        prop_assert!(decode(committed, &encoded.text).unwrap() == expected);
        if let Some(left_out) = encoded.left_out {
            prop_assert!(runs.iter().any(|run| run.start == left_out));
        }
    }

    /// Metadata of other programs never makes it panic.
    #[test]
    fn anything_is_read_or_refused(
        committed in any::<u64>(),
        magic in prop::sample::select(&b"laosnJepLx\x01"[..]),
        body in prop::collection::vec(any::<u8>(), 0..200),
        text in "\\PC{0,40}",
    ) {
        let _ = decode(committed, &text);
        let bytes = [&[magic], &body[..]].concat();
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
        if let Ok(beyond) = decode(committed, &text) {
            prop_assert!(beyond.runs().all(|run| run.start >= committed));
        }
    }
}
