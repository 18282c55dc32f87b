//! What is kept of silent users.

use keylane_testkit::scenario::paused;

use crate::crowd::Crowd;
use crate::crowd_picture;
use crate::support::assert_well_formed;
use crate::table;

const USERS: u32 = 2_000;

fn crowds() -> Vec<Crowd> {
    paused().block_on(Crowd::of_each(USERS)).unwrap()
}

#[test]
fn only_a_task_for_each_keeps_something_of_a_silent_user() {
    let crowds = crowds();
    let kept: Vec<_> = crowds.iter().map(Crowd::last).collect();
    for kept in &kept {
        assert_eq!(kept.users, USERS);
    }
    let [single, per_key, fixed, dynamic] = kept.try_into().unwrap();
    assert_eq!((per_key.queues, per_key.tasks), (2_000, 2_000));
    for kept in [single, fixed, dynamic] {
        assert_eq!(kept.queues, 0);
        assert!(kept.tasks < 200, "{}", kept.tasks);
    }
}

#[test]
fn the_second_table_and_picture_have_each_design() {
    let crowds = crowds();
    let picture = crowd_picture::draw(&crowds);
    assert_well_formed(&picture);
    assert_eq!(picture.matches("<g id=\"line-").count(), 4);
    assert!(!picture.contains("NaN") && !picture.contains("inf"));
    let table = table::crowds(&crowds);
    for crowd in &crowds {
        assert!(table.contains(crowd.choice.name()) && picture.contains(crowd.choice.name()));
    }
    assert!(table.contains("2,000"), "{table}");
}
