//! Headers as bytes of one column: `(name_len:u32 · name · value_len:u32 · value)*`, little-endian.

use bytes::Bytes;
use keylane_inbox::Header;

/// Encodes headers; returns `None` if there are none.
pub(super) fn encode(headers: &[Header]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for header in headers {
        for part in [header.name.as_bytes(), &header.value[..]] {
            // Limits are far below 4 GiB.
            out.extend((part.len() as u32).to_le_bytes());
            out.extend(part);
        }
    }
    (!headers.is_empty()).then_some(out)
}

/// Decodes headers. Never panics: returns `None` for any other layout.
pub(super) fn decode(column: Option<Vec<u8>>) -> Option<Vec<Header>> {
    let mut rest = Bytes::from(column.unwrap_or_default());
    let mut headers = Vec::new();
    while !rest.is_empty() {
        let name = String::from_utf8(part(&mut rest)?.to_vec()).ok()?;
        headers.push(Header::new(name, part(&mut rest)?));
    }
    Some(headers)
}

fn part(rest: &mut Bytes) -> Option<Bytes> {
    let len = u32::from_le_bytes(*rest.first_chunk()?) as usize;
    let end = len.checked_add(4).filter(|end| *end <= rest.len())?;
    Some(rest.split_to(end).slice(4..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for headers in [
            vec![],
            vec![Header::new("", "")],
            vec![Header::new("a", vec![0, 255]), Header::new("a", "b")],
        ] {
            assert_eq!(decode(encode(&headers)), Some(headers));
        }
    }

    #[test]
    fn other_bytes_are_no_headers() {
        let whole = encode(&[Header::new("name", "value")]).unwrap();
        for end in 1..whole.len() {
            assert_eq!(decode(Some(whole[..end].to_vec())), None, "{end}");
        }
        assert_eq!(decode(Some(vec![255; 40])), None);
        let mut no_text = whole;
        no_text[4] = 255;
        assert_eq!(decode(Some(no_text)), None);
    }
}
