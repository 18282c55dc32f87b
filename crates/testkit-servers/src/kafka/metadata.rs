//! Asks a node for the members of its cluster.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// An answer of one to three nodes is much smaller.
const LONGEST: usize = 64 * 1_024;

/// The request `Metadata`, in the last of its versions whose lengths are plain integers except in
/// fields that are not needed here.
const METADATA: i16 = 3;
const VERSION: i16 = 4;

/// The state of the cluster, as a node reports it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) cluster: String,
    /// The live nodes, in no order.
    pub(super) nodes: Vec<i32>,
}

/// Asks the node whose listener has this port.
pub(super) fn metadata(port: u16) -> io::Result<Metadata> {
    let mut stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&request())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    parse(&mut answer.as_slice()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the request with its length in front.
fn request() -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(METADATA.to_be_bytes());
    body.extend(VERSION.to_be_bytes());
    body.extend(0_i32.to_be_bytes()); // the number of the request
    body.extend((-1_i16).to_be_bytes()); // no name of a client
    body.extend(0_i32.to_be_bytes()); // no topics
    body.push(0); // nor new ones
    let length = i32::try_from(body.len()).expect("19 bytes");
    [length.to_be_bytes().as_slice(), &body].concat()
}

fn parse(bytes: &mut &[u8]) -> Option<Metadata> {
    let _number = int(bytes)?;
    let _throttled = int(bytes)?;
    let mut nodes = Vec::new();
    for _ in 0..int(bytes)? {
        nodes.push(int(bytes)?);
        let _host = text(bytes)?;
        let _port = int(bytes)?;
        let _rack = text(bytes)?;
    }
    let cluster = text(bytes)??;
    Some(Metadata { cluster, nodes })
}

fn int(bytes: &mut &[u8]) -> Option<i32> {
    bytes
        .split_off(..4)?
        .try_into()
        .ok()
        .map(i32::from_be_bytes)
}

/// Reads a text, or its absence.
fn text(bytes: &mut &[u8]) -> Option<Option<String>> {
    let length = bytes.split_off(..2)?.try_into().ok()?;
    let Ok(length) = usize::try_from(i16::from_be_bytes(length)) else {
        return Some(None);
    };
    let text = String::from_utf8(bytes.split_off(..length)?.to_vec()).ok()?;
    Some(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Vec<u8> {
        let text = |text: &str| [&(text.len() as i16).to_be_bytes(), text.as_bytes()].concat();
        let mut answer = Vec::new();
        for int in [0_i32, 0, 2] {
            answer.extend(int.to_be_bytes());
        }
        for (id, rack) in [(0_i32, Some("r")), (2, None)] {
            answer.extend(id.to_be_bytes());
            answer.extend(text("127.0.0.1"));
            answer.extend(9_092_i32.to_be_bytes());
            answer.extend(rack.map_or((-1_i16).to_be_bytes().to_vec(), text));
        }
        answer.extend(text("cluster"));
        answer
    }

    #[test]
    fn an_answer_is_read_and_half_a_one_is_not() {
        let answer = answer();
        let read = parse(&mut answer.as_slice()).unwrap();
        assert_eq!(
            (read.cluster.as_str(), &*read.nodes),
            ("cluster", &[0, 2][..])
        );
        for half in 0..answer.len() {
            assert_eq!(parse(&mut &answer[..half]), None);
        }
    }
}
