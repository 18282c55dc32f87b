//! Sends one command to a server, in its protocol.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// The longest line. Lines of the protocol are much shorter: values have their length in front.
const LONGEST_LINE: u64 = 64 * 1_024;

/// The deepest nesting of arrays. No command comes near it.
const DEEPEST: usize = 16;

/// The reply of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Text(String),
    Error(String),
    Nil,
    Array(Vec<Reply>),
}

/// Prints a line for each element of an array.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Error(text) => write!(f, "(error) {text}"),
            Self::Nil => f.write_str("(nil)"),
            Self::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "\n" };
                    write!(f, "{separator}{element}")?;
                }
                Ok(())
            }
        }
    }
}

/// Sends `command` to the server on this port, after the password if there is one. A server that
/// does not reply within `patience` is an error of the kind [`TimedOut`](io::ErrorKind::TimedOut).
pub(super) fn ask(
    port: u16,
    password: Option<&str>,
    command: &[&str],
    patience: Duration,
) -> io::Result<Reply> {
    let asked = || {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut requests = Vec::new();
        if let Some(password) = password {
            requests.extend(request(&["AUTH", password]));
        }
        requests.extend(request(command));
        stream.write_all(&requests)?;
        let mut replies = BufReader::new(stream);
        if password.is_some()
            && let refused @ Reply::Error(_) = read(&mut replies, DEEPEST)?
        {
            return Ok(refused);
        }
        read(&mut replies, DEEPEST)
    };
    asked().map_err(|error: io::Error| match error.kind() {
        // The error of the system for a socket.
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    })
}

/// Returns the value of `name` in the reply to `INFO` or `CLUSTER INFO`.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .find_map(|(field, value)| (field == name).then_some(value))
}

/// Returns an array of values.
fn request(command: &[&str]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        request.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    request
}

fn read(stream: &mut impl BufRead, depth: usize) -> io::Result<Reply> {
    let line = line(stream)?;
    let (kind, rest) = line.split_at_checked(1).ok_or_else(invalid)?;
    let length = || -> io::Result<Option<u64>> {
        match rest {
            "-1" => Ok(None),
            length => length.parse().map(Some).map_err(|_| invalid()),
        }
    };
    match kind {
        "+" | ":" => Ok(Reply::Text(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        "$" => match length()? {
            Some(length) => value(stream, length).map(Reply::Text),
            None => Ok(Reply::Nil),
        },
        "*" => match length()? {
            Some(length) => {
                let depth = depth.checked_sub(1).ok_or_else(invalid)?;
                let elements = (0..length).map(|_| read(stream, depth));
                elements.collect::<io::Result<_>>().map(Reply::Array)
            }
            None => Ok(Reply::Nil),
        },
        _ => Err(invalid()),
    }
}

/// Reads a line without its end.
fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    stream.take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    let line = match line.strip_suffix(b"\r\n") {
        Some(line) => line,
        None if line.len() as u64 == LONGEST_LINE => return Err(invalid()),
        None => return Err(io::ErrorKind::UnexpectedEof.into()),
    };
    Ok(String::from_utf8_lossy(line).into_owned())
}

/// Reads so many bytes, without memory reserved before they arrive, and the end of the line.
fn value(stream: &mut impl BufRead, length: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    let with_end = length.checked_add(2).ok_or_else(invalid)?;
    stream.take(with_end).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != with_end {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let value = bytes.strip_suffix(b"\r\n").ok_or_else(invalid)?;
    Ok(String::from_utf8_lossy(value).into_owned())
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no reply of a Redis server")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(bytes: &str) -> io::Result<Reply> {
        read(&mut bytes.as_bytes(), DEEPEST)
    }

    #[test]
    fn a_command_has_the_length_of_each_word() {
        let request = request(&["SET", "ß", ""]);
        assert_eq!(
            String::from_utf8(request).unwrap(),
            "*3\r\n$3\r\nSET\r\n$2\r\nß\r\n$0\r\n\r\n"
        );
    }

    #[test]
    fn a_reply_becomes_text() {
        let text = |bytes| parsed(bytes).unwrap().to_string();
        assert_eq!(text("+OK\r\n"), "OK");
        assert_eq!(text(":-7\r\n"), "-7");
        assert_eq!(text("$4\r\na\r\nb\r\n"), "a\r\nb");
        assert_eq!(text("$0\r\n\r\n"), "");
        assert_eq!(text("$-1\r\n"), "(nil)");
        assert_eq!(text("*0\r\n"), "");
        assert_eq!(text("*-1\r\n"), "(nil)");
        assert_eq!(
            text("*3\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n-ERR no\r\n"),
            "1\na\n(nil)\n(error) ERR no"
        );
        let refused = parsed("-WRONGPASS no\r\n").unwrap();
        assert_eq!(refused, Reply::Error("WRONGPASS no".to_owned()));
    }

    #[test]
    fn half_a_reply_is_none() {
        let whole = "*2\r\n$2\r\nab\r\n:7\r\n";
        assert!(parsed(whole).is_ok());
        for half in 0..whole.len() {
            assert!(parsed(&whole[..half]).is_err(), "{half}");
        }
    }

    #[test]
    fn another_server_is_not_believed() {
        let line = "x".repeat(100_000);
        let deep = "*1\r\n".repeat(100_000);
        let wrong = [
            "HTTP/1.1 400 Bad Request\r\n",
            "\r\n",
            "ß\r\n",
            "$x\r\n",
            "$-2\r\n",
            "$18446744073709551615\r\n",
            "$1\r\nabc",
            &format!("+{line}\r\n"),
            &deep,
        ];
        for wrong in wrong {
            let error = parsed(wrong).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{wrong:.20}");
        }
    }

    #[test]
    fn fields_are_found_by_their_whole_names() {
        let info = "# Replication\r\nrole:master\r\nmaster_host:a:b\r\n";
        assert_eq!(field(info, "role"), Some("master"));
        assert_eq!(field(info, "master_host"), Some("a:b"));
        assert_eq!(field(info, "master"), None);
    }
}
