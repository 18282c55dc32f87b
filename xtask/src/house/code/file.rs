//! One file: its lines, and its items without those for tests.

use std::ops::Range;

use proc_macro2::{LineColumn, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::{ImplItem, Item, Macro};

use super::product::{is_test, take_tests};

/// A file of the product.
#[derive(Debug)]
pub(in super::super) struct File {
    /// Its path below `src`.
    pub(in super::super) path: String,
    pub(in super::super) lines: Vec<Line>,
    /// The macros, each with its line, that stand for items and cannot be read as items.
    pub(in super::super) unread: Vec<String>,
}

#[derive(Debug)]
pub(in super::super) struct Line {
    pub(in super::super) text: String,
    /// How many characters come before the end of its code; none without code. A comment is no
    /// code, a doc comment neither.
    pub(in super::super) code_end: usize,
    pub(in super::super) is_test: bool,
}

impl File {
    /// Reads a file. Its items are those of the product; what a macro stands for is among them if
    /// it reads as items.
    pub(in super::super) fn parse(path: &str, text: &str) -> Result<(Self, Vec<Item>), String> {
        let wrong = |error: syn::Error| {
            let line = error.span().start().line;
            format!("{path}, line {line}: {error}")
        };
        let tokens: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| {
            let line = error.span().start().line;
            format!("{path}, line {line}: {error}")
        })?;
        let mut file: syn::File = syn::parse2(tokens.clone()).map_err(wrong)?;
        let mut unread = Vec::new();
        file.items = read_macros(file.items, path, &mut unread);
        let tests = take_tests(&mut file, text);
        let file_of_lines = File {
            path: path.to_owned(),
            lines: lines(text, tokens, &tests),
            unread,
        };
        Ok((file_of_lines, file.items))
    }

    /// How many lines of code it has, without tests.
    pub(in super::super) fn code(&self) -> usize {
        let has_code = |line: &&Line| line.code_end > 0 && !line.is_test;
        self.lines.iter().filter(has_code).count()
    }
}

/// Puts the items into the place of the macros that stand for them.
fn read_macros(items: Vec<Item>, path: &str, unread: &mut Vec<String>) -> Vec<Item> {
    let mut read = Vec::new();
    for mut item in items {
        match &mut item {
            Item::Macro(call) if call.ident.is_none() && !is_test(&call.attrs) => {
                match syn::parse2::<syn::File>(call.mac.tokens.clone()) {
                    Ok(inner) if !inner.items.is_empty() => {
                        read.extend(read_macros(inner.items, path, unread));
                        continue;
                    }
                    _ => unread.push(place(path, &call.mac)),
                }
            }
            Item::Mod(module) if !is_test(&module.attrs) => {
                if let Some((_, items)) = &mut module.content {
                    *items = read_macros(std::mem::take(items), path, unread);
                }
            }
            Item::Impl(block) if !is_test(&block.attrs) => {
                for inner in &block.items {
                    if let ImplItem::Macro(call) = inner {
                        unread.push(place(path, &call.mac));
                    }
                }
            }
            _ => {}
        }
        read.push(item);
    }
    read
}

fn place(path: &str, call: &Macro) -> String {
    let name = call.path.segments.last().map(|last| last.ident.to_string());
    let line = call.path.span().start().line;
    format!("{path}, line {line}: {}!", name.unwrap_or_default())
}

fn lines(text: &str, tokens: TokenStream, tests: &[Range<usize>]) -> Vec<Line> {
    let tests: Vec<Range<LineColumn>> = tests
        .iter()
        .map(|test| position(text, test.start)..position(text, test.end))
        .collect();
    let lines = text.lines().zip(1..).map(|(text, line)| {
        let text = text.trim_end();
        let column = text.len() - text.trim_start().len();
        let first = LineColumn { line, column };
        Line {
            text: text.to_owned(),
            code_end: 0,
            is_test: tests.iter().any(|test| test.contains(&first)),
        }
    });
    let mut marks = Marks(lines.collect());
    marks.add(tokens);
    marks.0
}

/// Where a byte of the text is, as the parser counts: lines from one, characters from zero.
fn position(text: &str, byte: usize) -> LineColumn {
    let before = &text[..byte];
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    LineColumn {
        line: before.matches('\n').count() + 1,
        column: before[start..].chars().count(),
    }
}

/// Marks where code is in the lines.
struct Marks(Vec<Line>);

impl Marks {
    fn add(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    if !self.is_comment(group.span()) {
                        self.mark(group.span_open());
                        self.add(group.stream());
                        self.mark(group.span_close());
                    }
                }
                TokenTree::Punct(mark) if self.is_comment(mark.span()) => {}
                token => self.mark(token.span()),
            }
        }
    }

    fn mark(&mut self, token: Span) {
        let (start, end) = (token.start(), token.end());
        for number in start.line..=end.line {
            let line = &mut self.0[number - 1];
            let code_end = match number == end.line {
                true => end.column,
                // All of a line in a literal is code, also if it is empty.
                false => usize::MAX,
            };
            line.code_end = line.code_end.max(code_end);
        }
    }

    /// The parser makes a mark and brackets of a doc comment; all of them are where the comment is.
    fn is_comment(&self, token: Span) -> bool {
        let start = token.start();
        let text = self.0[start.line - 1].text.chars();
        let mut from = text.skip(start.column);
        from.next() == Some('/') && matches!(from.next(), Some('/' | '*'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<usize> {
        let (file, _) = File::parse("a.rs", text).unwrap();
        let numbered = file.lines.iter().zip(1..);
        let has_code = |line: &Line| line.code_end > 0 && !line.is_test;
        let numbers: Vec<_> = numbered
            .filter_map(|(line, number)| has_code(line).then_some(number))
            .collect();
        assert_eq!(numbers.len(), file.code());
        numbers
    }

    #[test]
    fn a_line_of_code_has_a_token_that_is_no_comment() {
        let text = "\
//! About the file.
#![doc = include_str!(\"a\")]

/// About the type.
/* A comment
   of two lines. */
struct A; // And a word behind it.
/** A doc comment
    of two lines. */
fn f() {

    // Why.
    g(
        1,
    );
}
";
        assert_eq!(code(text), [2, 7, 10, 13, 14, 15, 16]);
    }

    #[test]
    fn all_lines_of_a_literal_are_code() {
        assert_eq!(
            code("const A: &str = \"\nä // no comment\n\n\";\n// end\n"),
            [1, 2, 3, 4]
        );
    }

    #[test]
    fn code_ends_before_its_comment() {
        let (file, _) = File::parse("a.rs", "mod ä; // Why.\n").unwrap();
        let line = &file.lines[0];
        assert_eq!((line.text.as_str(), line.code_end), ("mod ä; // Why.", 6));
    }

    #[test]
    fn tests_are_not_counted() {
        let text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    // Why.\n    fn b() {}\n}\n";
        assert_eq!(code(text), [1]);
        let (file, items) = File::parse("a.rs", text).unwrap();
        assert_eq!(items.len(), 1);
        let tests: Vec<bool> = file.lines.iter().map(|line| line.is_test).collect();
        assert_eq!(tests, [false, false, true, true, true, true, true]);
        assert_eq!(
            code("struct A {\n    #[cfg(test)]\n    b: u8,\n}\n"),
            [1, 4]
        );
    }

    #[test]
    fn a_macro_reads_as_items_or_is_named() {
        let text = "\
pin_project! { struct A { #[pin] b: u8, #[cfg(test)] c: u8 } }
cases! { one, two }
mod inner { cases!(three => 3); settings!(); }
impl D { cases!(); }
#[cfg(test)] cases! { four, five }
";
        let (file, items) = File::parse("a.rs", text).unwrap();
        assert!(matches!(&items[0], Item::Struct(item) if item.fields.len() == 1));
        let unread = [
            "a.rs, line 2: cases!",
            "a.rs, line 3: cases!",
            "a.rs, line 3: settings!",
            "a.rs, line 4: cases!",
        ];
        assert_eq!(file.unread, unread);
    }

    #[test]
    fn a_file_that_is_no_rust_is_named() {
        let error = |text| File::parse("a.rs", text).err().unwrap();
        assert!(error("fn a() {}\nfn fn").starts_with("a.rs, line 2: "));
        assert!(error("fn a() {}\n\n}").starts_with("a.rs, line 3: "));
    }
}
