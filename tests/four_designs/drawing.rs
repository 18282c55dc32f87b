//! The picture shows what the figures say.

use crate::picture;
use crate::traffic::{SLOW, User};
use crate::waits::run;

/// From 30 ms on.
const DARK: [&str; 4] = ["s2", "s3", "s4", "s5"];

#[test]
fn rows_are_dark_where_users_wait_and_nowhere_else() {
    let (traffic, outcomes) = run(&[]);
    let picture = picture::draw(&traffic, &outcomes);
    assert_well_formed(&picture);
    let panels: Vec<&str> = picture.split("<g id=\"panel-").skip(1).collect();
    assert_eq!(panels.len(), 4);
    for user in 1..=traffic.users {
        let dark = [0, 1, 2, 3].map(|panel| is_dark(panels[panel], user));
        let is_slow = user == SLOW;
        let expected = [true, is_slow, is_slow || traffic.is_mate(user), is_slow];
        assert_eq!(dark, expected, "user {user}");
    }
    let bracket = [0, 1, 2, 3].map(|panel| panels[panel].contains("in its lane"));
    assert_eq!(bracket, [false, false, true, false]);
}

#[test]
fn few_users_and_many_have_a_picture() {
    for options in [
        ["--users", "2"],
        ["--users", "500"],
        ["--lanes", "1"],
        ["--lanes", "1024"],
    ] {
        let (traffic, outcomes) = run(&[&options[..], &["--seconds", "0.1"]].concat());
        let picture = picture::draw(&traffic, &outcomes);
        assert_well_formed(&picture);
        let rows = picture.matches("<title>user ").count();
        assert_eq!(rows, 4 * traffic.users as usize, "{options:?}");
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }
}

fn is_dark(panel: &str, user: User) -> bool {
    let row = panel.split(&format!("<title>user {user}:")).nth(1).unwrap();
    let cells = row.split("</g>").next().unwrap();
    DARK.iter()
        .any(|step| cells.contains(&format!("class=\"{step}\"")))
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
