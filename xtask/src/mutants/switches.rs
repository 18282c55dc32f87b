//! Many bugs in one build: a patched function gets two bodies and a switch between them.
//!
//! Most of the time of a bug is the time of its build. So wherever a patch changes nothing but
//! bodies of functions, the copy gets both of them, `{ if planted::is("name") { … } else { … } }`,
//! and the environment of the test process names the bug that is there. One build of a test then
//! serves all bugs that it must find, and the run without a bug.
//!
//! Any other patch is planted alone, in a build of its own.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;
use std::ops::Range;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::Error;

/// The environment variable that names the bug.
pub(super) const PLANTED: &str = "KEYLANE_PLANTED";

/// The switch, a module at the end of each crate with bugs.
const SWITCH: &str = r#"
#[doc(hidden)]
pub mod planted {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();

    pub fn is(name: &str) -> bool {
        NAME.get_or_init(|| std::env::var("KEYLANE_PLANTED").unwrap_or_default()) == name
    }
}
"#;

/// A file that a patch changes, before and after.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) path: String,
    pub(super) before: String,
    pub(super) after: String,
}

/// The bugs that are switched on and off, and the files in which they are.
#[derive(Debug, Default)]
pub(super) struct Switches {
    names: HashSet<String>,
    files: BTreeMap<String, File>,
}

#[derive(Debug)]
struct File {
    text: String,
    bodies: Vec<Range<usize>>,
    /// For the body of each number: the bugs in it, and what it is with them.
    planted: BTreeMap<usize, Vec<(String, String)>>,
}

impl Switches {
    /// Takes in what the patch of the bug `name` changes, if it can be switched.
    pub(super) fn add(&mut self, name: &str, changes: Vec<Change>) {
        let differing = changes.iter().map(differing_bodies);
        let Some(differing) = differing.collect::<Option<Vec<_>>>() else {
            return;
        };
        self.names.insert(name.to_owned());
        for (change, differing) in changes.into_iter().zip(differing) {
            let Change { path, before, .. } = change;
            let file = self.files.entry(path).or_insert_with(|| File {
                bodies: bodies(&before).unwrap_or_default(),
                text: before,
                planted: BTreeMap::new(),
            });
            for (number, body) in differing {
                let planted = file.planted.entry(number).or_default();
                planted.push((name.to_owned(), body));
            }
        }
    }

    /// Whether the bug can be switched.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The files with all bugs in them, and with the switch in each of their crates. `read` answers
    /// with a file as it is without bugs.
    pub(super) fn woven(
        &self,
        read: impl Fn(&str) -> Result<String, Error>,
    ) -> Result<Vec<(String, String)>, Error> {
        let mut files: BTreeMap<_, _> = self
            .files
            .iter()
            .map(|(path, file)| (path.clone(), file.woven().text))
            .collect();
        let homes: BTreeSet<_> = self.files.keys().map(|path| home_of(path)).collect();
        for home in homes {
            let text = match files.remove(&home) {
                Some(text) => text,
                None => read(&home)?,
            };
            files.insert(home, text + SWITCH);
        }
        Ok(files.into_iter().collect())
    }

    /// The bugs whose bodies do not compile, as `errors`, the compiler's output, shows.
    ///
    /// Two bodies whose types differ are one error, and it may show the other one of them.
    pub(super) fn blamed(&self, errors: &str) -> BTreeSet<String> {
        let mut places: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
        for (path, line, column) in error_places(errors) {
            places.entry(path).or_default().push((line, column));
        }
        let mut blamed = BTreeSet::new();
        for (path, places) in places {
            let Some(woven) = self.files.get(path).map(File::woven) else {
                continue;
            };
            let names = places.into_iter().filter_map(|place| woven.bug_at(place));
            blamed.extend(names.map(str::to_owned));
        }
        blamed
    }

    /// Takes the bug out again.
    pub(super) fn remove(&mut self, name: &str) {
        self.names.remove(name);
        for file in self.files.values_mut() {
            for planted in file.planted.values_mut() {
                planted.retain(|(other, _)| other != name);
            }
        }
    }
}

/// A file with all its bugs in it.
struct Woven<'a> {
    text: String,
    /// Where each bug is, its switch included. The body without a bug belongs to the last one.
    bugs: Vec<(Range<usize>, &'a str)>,
}

impl<'a> Woven<'a> {
    /// The bug at a line and a column, as the compiler counts them.
    fn bug_at(&self, (line, column): (usize, usize)) -> Option<&'a str> {
        let before: usize = self
            .text
            .split_inclusive('\n')
            .take(line - 1)
            .map(str::len)
            .sum();
        let characters = self.text.get(before..)?.char_indices();
        let at = before + characters.map(|(at, _)| at).nth(column - 1)?;
        let bug = self.bugs.iter().find(|(range, _)| range.contains(&at));
        bug.map(|&(_, name)| name)
    }
}

impl File {
    fn woven(&self) -> Woven<'_> {
        let (mut text, mut bugs) = (String::new(), Vec::new());
        let mut end = 0;
        for (number, body) in self.bodies.iter().enumerate() {
            text += &self.text[end..body.start];
            let planted = self.planted.get(&number).map_or(&[][..], Vec::as_slice);
            if !planted.is_empty() {
                text += "{ ";
            }
            for (name, with_bug) in planted {
                let start = text.len();
                write!(text, "if crate::planted::is(\"{name}\") {with_bug} else ")
                    .expect("a string has room");
                bugs.push((start..text.len(), &**name));
            }
            text += &self.text[body.clone()];
            if !planted.is_empty() {
                bugs.last_mut().expect("there is one").0.end = text.len();
                text += " }";
            }
            end = body.end;
        }
        text += &self.text[end..];
        Woven { text, bugs }
    }
}

/// Where each error of the compiler's output is: a path, a line and a column, from 1.
fn error_places(errors: &str) -> impl Iterator<Item = (&str, usize, usize)> {
    let mut is_error = false;
    errors.lines().filter_map(move |line| {
        if line.starts_with("error") {
            is_error = true;
        } else if line.starts_with("warning") {
            is_error = false;
        }
        // The first place of an error is its own. Those of its notes follow.
        let place = line
            .trim_start()
            .strip_prefix("--> ")
            .filter(|_| is_error)?;
        is_error = false;
        let mut parts = place.rsplitn(3, ':');
        let (column, line) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        (line > 0 && column > 0).then_some((parts.next()?, line, column))
    })
}

/// The file at the top of the crate that has this file.
fn home_of(path: &str) -> String {
    match path.find("/src/") {
        Some(at) => format!("{}/src/lib.rs", &path[..at]),
        // An example of several files has no folder for its sources.
        None => path
            .split('/')
            .take(2)
            .chain(["lib.rs"])
            .collect::<Vec<_>>()
            .join("/"),
    }
}

/// The bodies that differ, by number, as they are afterwards. Nothing if anything else differs.
fn differing_bodies(change: &Change) -> Option<Vec<(usize, String)>> {
    let Change { before, after, .. } = change;
    let (old, new) = (bodies(before)?, bodies(after)?);
    if outside(before, &old) != outside(after, &new) {
        return None;
    }
    let pairs = old.into_iter().zip(new).enumerate();
    let differs = pairs.filter(|(_, (old, new))| before[old.clone()] != after[new.clone()]);
    Some(
        differs
            .map(|(number, (_, new))| (number, after[new].to_owned()))
            .collect(),
    )
}

/// The text between the bodies.
fn outside<'a>(text: &'a str, bodies: &[Range<usize>]) -> Vec<&'a str> {
    let starts = std::iter::once(0).chain(bodies.iter().map(|body| body.end));
    let ends = bodies.iter().map(|body| body.start).chain([text.len()]);
    starts
        .zip(ends)
        .map(|(start, end)| &text[start..end])
        .collect()
}

/// The bodies that may get a switch: where each begins and ends, braces included. Nothing if the
/// text is no Rust.
fn bodies(text: &str) -> Option<Vec<Range<usize>>> {
    let mut found = Vec::new();
    collect(text.parse().ok()?, &mut found);
    Some(found)
}

/// A function is read as one: what is inside of its body does not count.
fn collect(tokens: TokenStream, found: &mut Vec<Range<usize>>) {
    /// What the next braces are.
    #[derive(Clone, Copy, PartialEq)]
    enum Next {
        Anything,
        Body,
        /// The function returns an `impl Trait`, which two bodies would make two types. An `async`
        /// block in it may have the switch.
        BodyOfImpl,
    }
    let mut next = Next::Anything;
    for token in tokens {
        match token {
            TokenTree::Ident(word) if word == "fn" || word == "async" => next = Next::Body,
            TokenTree::Ident(word) if word == "impl" && next == Next::Body => {
                next = Next::BodyOfImpl;
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => next = Next::Anything,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                if next == Next::Body {
                    found.push(group.span().byte_range());
                } else {
                    collect(group.stream(), found);
                }
                next = Next::Anything;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, before: &str, after: &str) -> Change {
        let [path, before, after] = [path, before, after].map(str::to_owned);
        Change {
            path,
            before,
            after,
        }
    }

    fn switches(before: &str, after: &str) -> Switches {
        let mut switches = Switches::default();
        switches.add(
            "bug",
            vec![change("crates/keylane/src/a.rs", before, after)],
        );
        switches
    }

    fn woven(switches: &Switches) -> String {
        let files = switches.woven(|_| Ok("mod a;".to_owned())).unwrap();
        let [(_, text), (home, with_switch)] = &files[..] else {
            panic!("{files:?}")
        };
        assert_eq!(home, "crates/keylane/src/lib.rs");
        assert!(with_switch.starts_with("mod a;\n#[doc(hidden)]"));
        assert!(with_switch.contains(PLANTED));
        text.clone()
    }

    #[test]
    fn a_function_gets_both_bodies() {
        let before =
            "impl A {\n fn f() -> char { '{' }\n fn g(); // {\n fn h(a: [u8; 2]) { 1; }\n}";
        let after = before.replace("1;", "");
        let mut switches = switches(before, &after);
        assert!(switches.has("bug"));
        let one = "{ if crate::planted::is(\"bug\") {  } else { 1; } }";
        assert_eq!(woven(&switches), before.replace("{ 1; }", one));
        let path = "crates/keylane/src/a.rs";
        let after = before.replace("1;", "2;");
        switches.add("other", vec![change(path, before, &after)]);
        let two = "{ if crate::planted::is(\"bug\") {  } \
                   else if crate::planted::is(\"other\") { 2; } else { 1; } }";
        assert_eq!(woven(&switches), before.replace("{ 1; }", two));
    }

    #[test]
    fn each_crate_has_a_switch_of_its_own() {
        let mut switches = Switches::default();
        let path = "crates/keylane-tower/src/a.rs";
        switches.add("bug", vec![change(path, "fn f() { 1 }", "fn f() { 2 }")]);
        let path = "crates/keylane/src/lib.rs";
        switches.add("other", vec![change(path, "fn f() { 1 }", "fn f() { 2 }")]);
        let read = |path: &str| Ok(format!("// {path}"));
        let files = switches.woven(read).unwrap();
        let paths: Vec<_> = files.iter().map(|(path, _)| &path[..]).collect();
        let tower = [
            "crates/keylane-tower/src/a.rs",
            "crates/keylane-tower/src/lib.rs",
        ];
        assert_eq!(paths, [tower[0], tower[1], "crates/keylane/src/lib.rs"]);
        let text = "fn f() { if crate::planted::is(\"bug\") { 2 } else { 1 } }";
        assert_eq!(files[0].1, text);
        assert!(
            files[1]
                .1
                .starts_with("// crates/keylane-tower/src/lib.rs\n#[doc(hidden)]")
        );
        let both = text.replace("bug", "other") + SWITCH;
        assert_eq!(files[2].1, both);
    }

    #[test]
    fn a_bug_that_does_not_compile_is_known_by_its_place_and_is_taken_out() {
        let before = "fn f() -> u8 {\n    1\n}\nfn g() {}\n";
        let path = "crates/keylane/src/a.rs";
        let mut switches = Switches::default();
        for (name, with_bug) in [("one", "2"), ("other", "é()"), ("third", "3")] {
            let after = before.replace('1', with_bug);
            switches.add(name, vec![change(path, before, &after)]);
        }
        let errors = format!(
            "warning: unused\n --> {path}:2:5\nerror[E0425]: no `é`\n  --> {path}:4:5\n   |\n\
             note: see\n  --> {path}:2:5\nerror: could not compile `keylane`\n"
        );
        assert_eq!(
            switches.blamed(&errors),
            BTreeSet::from(["other".to_owned()])
        );
        let at = |place: &str| switches.blamed(&format!("error: no\n --> {path}:{place}\n"));
        assert_eq!(at("1:17"), BTreeSet::from(["one".to_owned()]));
        assert_eq!(at("5:12"), BTreeSet::from(["third".to_owned()]));
        assert_eq!(
            at("9:4"),
            BTreeSet::new(),
            "no bug is in the other function"
        );
        assert_eq!(at("90:1"), BTreeSet::new());
        switches.remove("other");
        assert!(!switches.has("other"));
        let two = "fn f() -> u8 { if crate::planted::is(\"one\") {\n    2\n} \
                   else if crate::planted::is(\"third\") {\n    3\n} else {\n    1\n} }\nfn g() {}\n";
        assert_eq!(woven(&switches), two);
        switches.remove("one");
        switches.remove("third");
        assert_eq!(woven(&switches), before);
    }

    #[test]
    fn an_opaque_future_has_one_type() {
        let before = "fn f() -> impl Future { let a = 1; async move { a } }";
        let switched = switches(before, &before.replace("{ a }", "{ 2 }"));
        let block = "{ if crate::planted::is(\"bug\") { 2 } else { a } }";
        assert_eq!(woven(&switched), before.replace("{ a }", block));
        assert!(!switches(before, &before.replace('1', "2")).has("bug"));
        // What the function takes may have any type.
        let before = "async fn f(a: impl Future) -> u8 { 1 }";
        assert!(switches(before, &before.replace('1', "2")).has("bug"));
    }

    #[test]
    fn the_switch_is_in_the_crate_of_the_bug() {
        let homes = [
            "crates/keylane/src/lane/view.rs",
            "examples/watchman/books/mod.rs",
        ]
        .map(home_of);
        assert_eq!(
            homes,
            ["crates/keylane/src/lib.rs", "examples/watchman/lib.rs"]
        );
    }

    #[test]
    fn what_is_outside_of_bodies_is_planted_alone() {
        let before = "const A: u8 = 1; fn f() { 1 }";
        assert!(!switches(before, "const A: u8 = 2; fn f() { 1 }").has("bug"));
        assert!(!switches(before, "const A: u8 = 1; fn f() -> u8 { 1 }").has("bug"));
        assert!(!switches(before, "const A: u8 = 1; fn f() { 1 } fn g() {}").has("bug"));
        assert!(!switches(before, "const A: u8 = 1; fn f() { 1").has("bug"));
        let both = "const A: u8 = 2; fn f() { 2 }";
        assert!(!switches(before, both).has("bug"));
    }
}
