//! Circles: files that lead to each other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Which files a file leads to, by their numbers.
pub(super) type Edges = BTreeMap<usize, BTreeSet<usize>>;

/// The circles, the largest first: each is as many files as possible of which every one leads to
/// every other one.
pub(super) fn circles(edges: &Edges) -> Vec<Vec<usize>> {
    let reachable: BTreeMap<usize, BTreeSet<usize>> = edges
        .keys()
        .map(|from| (*from, reachable(*from, edges)))
        .collect();
    let leads = |from: usize, to: usize| reachable[&from].contains(&to);
    let mut circles: Vec<Vec<usize>> = Vec::new();
    for file in edges.keys() {
        let is_in_one = circles.iter().any(|circle| circle.contains(file));
        if is_in_one || !leads(*file, *file) {
            continue;
        }
        let others = reachable[file].iter().copied();
        let back = |other: &usize| reachable.contains_key(other) && leads(*other, *file);
        circles.push(others.filter(back).collect());
    }
    circles.retain(|circle| circle.len() > 1);
    circles.sort_by_key(|circle| Reverse(circle.len()));
    circles
}

/// What `from` leads to over any number of steps.
fn reachable(from: usize, edges: &Edges) -> BTreeSet<usize> {
    let mut reachable = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        let next = edges.get(&file).into_iter().flatten();
        open.extend(next.filter(|next| reachable.insert(**next)));
    }
    reachable
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
        let mut all = Edges::new();
        for (from, to) in edges {
            all.entry(*from).or_default().insert(*to);
        }
        circles(&all)
    }

    #[test]
    fn a_circle_is_all_that_lead_to_each_other() {
        let two = [
            (1, 2),
            (2, 1),
            (2, 3),
            (3, 4),
            (4, 5),
            (5, 3),
            (6, 1),
            (5, 7),
        ];
        assert_eq!(circles_of(&two), [vec![3, 4, 5], vec![1, 2]]);
        let eight = [(1, 2), (2, 1), (2, 3), (3, 2)];
        assert_eq!(circles_of(&eight), [[1, 2, 3]]);
    }

    #[test]
    fn one_direction_is_no_circle() {
        assert!(circles_of(&[(1, 2), (2, 3), (1, 3), (4, 4)]).is_empty());
    }
}
