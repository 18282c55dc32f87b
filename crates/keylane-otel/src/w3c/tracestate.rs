//! The header `tracestate`.

use opentelemetry::trace::TraceState;

/// More members than this make the header invalid.
const MOST_MEMBERS: usize = 32;

/// Reads a header. `None` if it is malformed: it is dropped then, and the trace goes on.
pub(crate) fn parse(header: &[u8]) -> Option<TraceState> {
    let text = std::str::from_utf8(header).ok()?;
    let members = text
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']));
    let members = members.filter(|member| !member.is_empty());
    let pairs: Option<Vec<_>> = members.map(pair).collect();
    let pairs = pairs.filter(|pairs| pairs.len() <= MOST_MEMBERS)?;
    TraceState::from_key_value(pairs).ok()
}

fn pair(member: &str) -> Option<(&str, &str)> {
    let (key, value) = member.split_once('=')?;
    let is_visible = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    (!key.is_empty() && !value.is_empty() && value.bytes().all(is_visible)).then_some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order() {
        let state = parse(b"rojo=00f067aa0ba902b7, congo=t61rcWkgMzE ,,a@b=1").expect("valid");
        assert_eq!(
            state.header(),
            "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE,a@b=1"
        );
        assert_eq!(parse(b""), Some(TraceState::NONE));
    }

    #[test]
    fn a_malformed_header_is_none() {
        let many = ["a=1"; MOST_MEMBERS + 1].join(",");
        assert!(parse(&many.as_bytes()[4..]).is_some());
        for header in [&many, "a", "a=", "=1", "a=1=2", "A=1", "a=\u{e9}", "a=1,b"] {
            assert_eq!(parse(header.as_bytes()), None, "{header}");
        }
        assert_eq!(parse(b"a=\xff"), None);
    }
}
