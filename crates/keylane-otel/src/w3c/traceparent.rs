//! The header `traceparent`.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId};

/// The length of the header in version 0. Later versions begin with the same characters.
const LENGTH: usize = 55;

/// The flags that are defined: sampled, and random.
const KNOWN_FLAGS: u8 = 0b11;

/// Reads a header. `None` if it is malformed: it is as if there were none.
pub(crate) fn parse(header: &[u8]) -> Option<(TraceId, SpanId, TraceFlags)> {
    if header.len() < LENGTH || header[2] != b'-' || header[35] != b'-' || header[52] != b'-' {
        return None;
    }
    let version = number(&header[..2])?;
    let is_whole = match version {
        0xff => false,
        0 => header.len() == LENGTH,
        // What a later version adds begins with a hyphen.
        _ => header.get(LENGTH).is_none_or(|next| *next == b'-'),
    };
    let trace = TraceId::from(number(&header[3..35])?);
    let span = SpanId::from(u64::try_from(number(&header[36..52])?).ok()?);
    let flags = u8::try_from(number(&header[53..LENGTH])?).ok()?;
    let is_valid = is_whole && trace != TraceId::INVALID && span != SpanId::INVALID;
    is_valid.then(|| (trace, span, TraceFlags::new(flags & KNOWN_FLAGS)))
}

/// Writes a header of version 0.
pub(crate) fn format(span: &SpanContext) -> String {
    let flags = span.trace_flags().to_u8() & KNOWN_FLAGS;
    format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id())
}

/// Reads hexadecimal digits. Capital letters are not allowed.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TraceState;

    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_read_and_written() {
        let (trace, span, flags) = parse(HEADER.as_bytes()).expect("valid");
        assert_eq!(trace, TraceId::from(0x4bf92f3577b34da6a3ce929d0e0e4736));
        assert_eq!(span, SpanId::from(0x00f067aa0ba902b7));
        assert!(flags.is_sampled());
        let context = SpanContext::new(trace, span, flags, true, TraceState::NONE);
        assert_eq!(format(&context), HEADER);
    }

    #[test]
    fn a_later_version_may_be_longer() {
        let later = HEADER.replacen("00", "cc", 1);
        assert!(parse(later.as_bytes()).is_some());
        assert!(parse(format!("{later}-what-comes").as_bytes()).is_some());
        assert!(parse(format!("{later}.what-comes").as_bytes()).is_none());
    }

    #[test]
    fn a_malformed_header_is_none() {
        let malformed = [
            String::new(),
            HEADER[..54].to_owned(),
            format!("{HEADER}-"),
            format!("{HEADER} "),
            HEADER.replacen("00", "ff", 1),
            HEADER.replacen("00", "0g", 1),
            HEADER.replace("4bf92f", "4BF92F"),
            HEADER.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            HEADER.replace("00f067aa0ba902b7", &"0".repeat(16)),
            HEADER.replace("-01", "-0x"),
            HEADER.replace('-', "_"),
        ];
        for header in malformed {
            assert_eq!(parse(header.as_bytes()), None, "{header}");
        }
    }

    #[test]
    fn nothing_panics() {
        for cut in 0..HEADER.len() {
            for byte in [0, b'-', 0xff] {
                let mut header = HEADER.as_bytes().to_vec();
                header[cut] = byte;
                let _ = parse(&header);
                let _ = parse(&header[..cut]);
            }
        }
    }
}
