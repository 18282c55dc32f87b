//! As much of Markdown as the chapters use.

/// The text outside of fenced blocks, with a line for each line.
pub(crate) fn prose(text: &str) -> String {
    let mut is_code = false;
    let lines = text.lines().map(|line| {
        if line.starts_with("```") {
            is_code = !is_code;
            return "";
        }
        if is_code { "" } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The prose without what is between backticks.
fn words(text: &str) -> String {
    let text = prose(text);
    let mut words = String::new();
    let mut rest = &*text;
    while let Some(at) = rest.find('`') {
        words.push_str(&rest[..at]);
        let ticks = rest[at..].bytes().take_while(|byte| *byte == b'`').count();
        let (mark, inside) = rest[at..].split_at(ticks);
        rest = inside.split_once(mark).map_or("", |(_, rest)| rest);
    }
    words + rest
}

/// The targets of all links, and of the definitions of links.
pub(crate) fn targets(text: &str) -> Vec<String> {
    let words = words(text);
    let inline = words.split("](").skip(1);
    let inline = inline.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    inline
        .chain(definitions(&words).map(|(_, target)| target.to_owned()))
        .collect()
}

/// The names in brackets that have no definition: `[text][name]`.
pub(crate) fn undefined(text: &str) -> Vec<String> {
    let words = words(text);
    let uses = words.split("][").skip(1);
    let uses = uses.filter_map(|rest| Some(rest.split_once(']')?.0.to_owned()));
    let is_defined = |name: &str| definitions(&words).any(|(defined, _)| defined == name);
    uses.filter(|name| !is_defined(name)).collect()
}

fn definitions(words: &str) -> impl Iterator<Item = (&str, &str)> {
    words
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.split_once("]: "))
}

/// The names by which the headings can be linked, as mdBook makes them.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let letters = heading.chars().filter_map(|letter| match letter {
            ' ' => Some('-'),
            letter if letter.is_alphanumeric() || "-_".contains(letter) => Some(letter),
            _ => None,
        });
        letters.collect()
    };
    headings.map(anchor).collect()
}

/// What is included: the path, and the anchor in it.
pub(crate) fn includes(text: &str) -> Vec<(&str, Option<&str>)> {
    let all = text.split("{{#include ").skip(1);
    let all = all.filter_map(|rest| Some(rest.split_once("}}")?.0));
    all.map(|include| match include.split_once(':') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (include, None),
    })
    .collect()
}

#[test]
fn links_are_found_and_code_is_not_read() {
    let text = "# One: two!\n\n[a](b.md#c) and `[x](y)`, ``[`x`](z)``, [text][name], [no][none]\n\n\
                ```rust\n[d](e)\n# no heading\n```\n\n[name]: https://f\n";
    assert_eq!(targets(text), ["b.md#c", "https://f"]);
    assert_eq!(undefined(text), ["none"]);
    assert_eq!(anchors(text), ["one-two"]);
    let text = "{{#include a.rs}} {{#include ../b.rs:part}}";
    assert_eq!(includes(text), [("a.rs", None), ("../b.rs", Some("part"))]);
}
