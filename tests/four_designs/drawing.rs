//! The picture shows what the figures say.

use crate::picture;
use crate::support::{assert_well_formed, run};
use crate::traffic::{SLOW, User};

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
