//! The example run in paused time, and what its picture must be at least.

use clap::Parser;
use keylane_testkit::scenario::paused;

use crate::arguments::Arguments;
use crate::designs::Choice;
use crate::outcome::Outcome;
use crate::traffic::Traffic;

pub(crate) fn parse(options: &[&str]) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from(["four_designs"].iter().chain(options))
}

/// The load and what each design made of it.
pub(crate) fn run(options: &[&str]) -> (Traffic, [Outcome; 4]) {
    let traffic = Traffic::new(&parse(options).unwrap());
    let outcomes = Choice::ALL.map(|choice| paused().block_on(choice.run(&traffic)).unwrap());
    (traffic, outcomes)
}

/// One root, each tag closed by its own name, attributes in quotes, no stray `<` or `&`.
pub(crate) fn assert_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut roots = 0;
    let mut rest = svg.trim();
    while let Some(tag) = rest.strip_prefix('<') {
        let (tag, after) = tag.split_once('>').expect("a tag ends");
        assert!(!tag.contains('<'), "<{tag}>");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else {
            let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
            let (attributes, is_closed) = match attributes.strip_suffix('/') {
                Some(attributes) => (attributes, true),
                None => (attributes, false),
            };
            assert_eq!(
                attributes.matches('"').count(),
                2 * attributes.matches("=\"").count()
            );
            roots += usize::from(open.is_empty());
            if !is_closed {
                open.push(name);
            }
        }
        let text = after.find('<').unwrap_or(after.len());
        assert!(!after[..text].contains(['&', '>']), "{}", &after[..text]);
        rest = &after[text..];
    }
    assert_eq!((open.len(), roots, rest), (0, 1, ""));
}
