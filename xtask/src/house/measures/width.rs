//! Lines of prose that are too wide: comments, and the documents at the top.
//!
//! A line does not count if it holds a link, is a row of a table, or is in a fence (```` ``` ````):
//! it cannot be broken.

use crate::house::code::{Crate, Line};
use crate::house::measure::Value;

/// As in `rustfmt.toml`.
const OF_COMMENTS: usize = 100;
const OF_DOCUMENTS: usize = 120;

/// The lines of comments that are too wide, of each file.
pub(super) fn comments(code: &Crate) -> Value {
    let files = code.files.iter();
    let wide = files.map(|file| (&*file.path, wide_comments(&file.lines)));
    let mut wide: Vec<(&str, Vec<usize>)> = wide.filter(|(_, lines)| !lines.is_empty()).collect();
    wide.sort_by_key(|(_, lines)| std::cmp::Reverse(lines.len()));
    let count = wide.iter().map(|(_, lines)| lines.len()).sum();
    let line = |(path, lines): (&str, Vec<usize>)| format!("{path}: {}", numbers(&lines));
    (count, wide.into_iter().map(line).collect())
}

/// The lines of a document that are too wide.
pub(super) fn lines(text: &str) -> Value {
    let mut prose = Prose::default();
    let wide = text.lines().zip(1..);
    let wide: Vec<usize> = wide
        .filter_map(|(line, number)| {
            prose
                .is_too_wide(line, line, OF_DOCUMENTS)
                .then_some(number)
        })
        .collect();
    let shown = if wide.is_empty() {
        Vec::new()
    } else {
        vec![numbers(&wide)]
    };
    (wide.len(), shown)
}

fn wide_comments(lines: &[Line]) -> Vec<usize> {
    let mut wide = Vec::new();
    let mut prose = Prose::default();
    let mut before = "";
    for (line, number) in lines.iter().zip(1..) {
        let (mark, text) = comment(line);
        // A fence ends with its comment at the latest.
        if mark != before {
            prose = Prose::default();
        }
        before = mark;
        if !line.is_test && !text.is_empty() && prose.is_too_wide(&line.text, text, OF_COMMENTS) {
            wide.push(number);
        }
    }
    wide
}

/// What the comment of a line begins with, if it has the line for itself, and the text of it.
fn comment(line: &Line) -> (&str, &str) {
    let mut characters = line.text.chars();
    characters.by_ref().take(line.code_end).for_each(drop);
    let text = characters.as_str().trim_start();
    let mark = ["//!", "///", "//"]
        .into_iter()
        .find(|mark| text.starts_with(mark));
    let mark = mark.unwrap_or_default();
    let text = text[mark.len()..].trim_start();
    (if line.code_end == 0 { mark } else { "" }, text)
}

/// The lines of one text, from the first on.
#[derive(Debug, Default)]
struct Prose {
    is_fenced: bool,
}

impl Prose {
    /// Whether this line is too wide. `text` is the prose in it.
    fn is_too_wide(&mut self, line: &str, text: &str, width: usize) -> bool {
        let text = text.trim_start();
        if text.starts_with("```") {
            self.is_fenced = !self.is_fenced;
            return false;
        }
        let cannot_break = self.is_fenced || text.starts_with('|') || holds_link(text);
        !cannot_break && line.chars().count() > width
    }
}

/// An address, a link with its target, or a line that defines a target.
fn holds_link(text: &str) -> bool {
    let defines = text.starts_with('[') && text.contains("]: ");
    defines || text.contains("](") || text.contains("://")
}

fn numbers(lines: &[usize]) -> String {
    let numbers: Vec<String> = lines.iter().map(usize::to_string).collect();
    match numbers.len() {
        1 => format!("line {}", numbers[0]),
        _ => format!("lines {}", numbers.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::code::code_of;

    fn wide(text: &str) -> Vec<String> {
        let (count, parts) = comments(&code_of(&[("lib.rs", text)]));
        assert_eq!(parts.is_empty(), count == 0);
        parts
    }

    /// Text that makes a line of `width` columns behind `start`.
    fn line(start: &str, width: usize) -> String {
        let rest = width - start.chars().count();
        format!("{start}{}\n", "ä".repeat(rest))
    }

    #[test]
    fn comments_of_all_kinds_have_a_width() {
        let starts = ["//! ", "/// ", "// ", "    // ", "mod a {} // ", "/* "];
        for start in starts {
            let end = if start == "/* " { "*/" } else { "" };
            let text = |width| format!("{}{end}\nfn f() {{}}\n", line(start, width).trim_end());
            assert_eq!(wide(&text(100 - end.len())), [""; 0], "{start}");
            assert_eq!(wide(&text(101)), ["lib.rs: line 1"], "{start}");
        }
    }

    #[test]
    fn code_has_no_width_here() {
        let text = format!("const A: &str = \"// {}\";\n", "a".repeat(100));
        assert_eq!(wide(&text), [""; 0]);
        let text = format!("const A: &str = \"\n{}\";\n", line("// ", 110));
        assert_eq!(wide(&text), [""; 0]);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", line("// ", 110));
        assert_eq!(wide(&tests), [""; 0]);
    }

    #[test]
    fn what_cannot_break_does_not_count() {
        for start in [
            "/// | row |",
            "/// see [x](y)",
            "/// https://a.b/",
            "/// [x]: y",
        ] {
            assert_eq!(wide(&format!("{}mod a {{}}\n", line(start, 110))), [""; 0]);
        }
        let fenced = format!(
            "/// ```text\n{0}/// ```\n{0}mod a {{}}\n",
            line("/// ", 110)
        );
        assert_eq!(wide(&fenced), ["lib.rs: line 4"]);
    }

    #[test]
    fn a_fence_ends_with_its_comment() {
        let wide_line = line("/// ", 110);
        let text = format!("/// ```\nmod a {{}}\n{wide_line}mod b {{}}\n");
        assert_eq!(wide(&text), ["lib.rs: line 3"]);
        let text = format!("//! ```\n{wide_line}{wide_line}mod b {{}}\n");
        assert_eq!(wide(&text), ["lib.rs: lines 2, 3"]);
    }

    #[test]
    fn documents_have_a_width() {
        let row = line("| row |", 130);
        let text = format!("# Title\n\n{}{}{row}", line("", 120), line("", 121));
        assert_eq!(lines(&text), (1, vec!["line 4".to_owned()]));
        assert_eq!(lines("\n"), (0, Vec::new()));
        let fenced = format!("```\n{0}```\n{0}{0}", line("", 121));
        assert_eq!(lines(&fenced), (2, vec!["lines 4, 5".to_owned()]));
    }
}
