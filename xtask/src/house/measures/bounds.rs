//! Bounds that are written again and again.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Token, TypeParam, TypeParamBound, WhereClause, WherePredicate};

use crate::house::code::Crate;
use crate::house::measure::Value;

/// A `where` clause counts with so many predicates, or so many characters.
const PREDICATES: usize = 3;
const CHARACTERS: usize = 80;

/// A bound counts with so many parts.
const PARTS: usize = 3;

/// How many are shown.
const SHOWN: usize = 3;

/// How often a long `where` clause stands that is somewhere else already. The order of what is in
/// it makes no difference.
pub(super) fn wheres(code: &Crate) -> Value {
    let clauses = Counts::of(code).clauses;
    let repeated = clauses.values().map(|times| times - 1).sum();
    (repeated, most_frequent(clauses))
}

/// How often the most frequent of the long bounds of a type stands: in `where` clauses, and behind
/// parameters.
pub(super) fn bound(code: &Crate) -> Value {
    let bounds = Counts::of(code).bounds;
    let most = bounds.values().copied().max().unwrap_or(0);
    (most, most_frequent(bounds))
}

fn most_frequent(counts: BTreeMap<String, usize>) -> Vec<String> {
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.retain(|(_, times)| *times > 1);
    counts.sort_by_key(|(_, times)| Reverse(*times));
    let shown = counts.into_iter().take(SHOWN);
    shown
        .map(|(text, times)| format!("{times} times: {text}"))
        .collect()
}

/// How often each long clause and each long bound stands.
#[derive(Debug, Default)]
struct Counts {
    clauses: BTreeMap<String, usize>,
    bounds: BTreeMap<String, usize>,
}

impl Counts {
    fn of(code: &Crate) -> Self {
        let mut counts = Self::default();
        let items = code.modules.iter().flat_map(|module| &module.items);
        items.for_each(|item| counts.visit_item(item));
        counts
    }

    fn add_bound(
        &mut self,
        bounded: &impl ToTokens,
        bounds: &Punctuated<TypeParamBound, Token![+]>,
    ) {
        if bounds.len() >= PARTS {
            *self.bounds.entry(sorted(bounded, bounds)).or_default() += 1;
        }
    }
}

impl<'ast> Visit<'ast> for Counts {
    fn visit_where_clause(&mut self, clause: &'ast WhereClause) {
        let mut predicates: Vec<String> = clause.predicates.iter().map(predicate).collect();
        predicates.sort();
        let text = predicates.join(", ");
        if predicates.len() >= PREDICATES || text.chars().count() >= CHARACTERS {
            *self.clauses.entry(text).or_default() += 1;
        }
        for predicate in &clause.predicates {
            if let WherePredicate::Type(predicate) = predicate {
                self.add_bound(&predicate.bounded_ty, &predicate.bounds);
            }
        }
        visit::visit_where_clause(self, clause);
    }

    fn visit_type_param(&mut self, parameter: &'ast TypeParam) {
        self.add_bound(&parameter.ident, &parameter.bounds);
        visit::visit_type_param(self, parameter);
    }
}

fn predicate(predicate: &WherePredicate) -> String {
    match predicate {
        WherePredicate::Type(predicate) => sorted(&predicate.bounded_ty, &predicate.bounds),
        predicate => text(predicate),
    }
}

fn sorted(bounded: &impl ToTokens, bounds: &Punctuated<TypeParamBound, Token![+]>) -> String {
    let mut bounds: Vec<String> = bounds.iter().map(text).collect();
    bounds.sort();
    format!("{}: {}", text(bounded), bounds.join(" + "))
}

/// The text of a node as one would write it, more or less.
fn text(node: &impl ToTokens) -> String {
    let closer = [
        (" :: ", "::"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ,", ","),
        (" (", "("),
        ("& ", "&"),
    ];
    let text = node.to_token_stream().to_string();
    closer.into_iter().fold(text, |text, (apart, together)| {
        text.replace(apart, together)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::code::code_of;

    #[test]
    fn a_clause_counts_from_the_second_on() {
        let code = code_of(&[
            (
                "lib.rs",
                "mod a; fn f<A, B, C>() where A: Copy, B: fmt::Debug + 'static, C: Send {}",
            ),
            (
                "a.rs",
                "struct S<A, B, C> where C: Send, B: 'static + fmt::Debug, A: Copy,;
                 impl<A, B, C> S<A, B, C> where A: Copy, B: fmt::Debug + 'static, C: Send {
                     fn g<A, B>() where A: Copy, B: Send {}
                     fn h<A, B>() where A: Copy, B: Send {}
                     fn i<A, B, C>() where A: Copy, B: Send, C: Send {}
                 }
                 #[cfg(test)] fn j<A, B, C>() where A: Copy, B: Send, C: Send {}",
            ),
        ]);
        let (repeated, parts) = wheres(&code);
        assert_eq!(repeated, 2);
        assert_eq!(
            parts,
            ["3 times: A: Copy, B: 'static + fmt::Debug, C: Send"]
        );
    }

    #[test]
    fn a_long_clause_counts_whatever_its_predicates() {
        let long = "F: Fn(&Message<Key, Value>) -> BoxFuture<'static, Result<(), Box<dyn Error>>>";
        let counted = |clause: &str| {
            let text = format!("fn f<F>() where {clause} {{}} fn g<F>() where {clause} {{}}");
            wheres(&code_of(&[("lib.rs", &text)]))
        };
        let (repeated, parts) = counted(&format!("{long} + Send"));
        assert_eq!(
            (repeated, &*parts[0]),
            (1, &*format!("2 times: {long} + Send"))
        );
        assert_eq!(counted(long).0, 0);
        assert_eq!(long.len(), 77);
    }

    #[test]
    fn a_bound_counts_wherever_it_stands() {
        let code = code_of(&[(
            "lib.rs",
            "fn f<E: Send + Sync + 'static>() {}
             fn g<E>() where E: 'static + Send + Sync {}
             trait T { fn h<E, F>() where F: Sized + Send + Copy, E: Send + Sync + 'static; }
             fn i<E: Send + 'static>() {}
             fn j<E: Send + 'static>() {}
             fn k<E: Send + 'static>() {}
             fn l<E: Send + 'static>() {}",
        )]);
        assert_eq!(
            bound(&code),
            (3, vec!["3 times: E: 'static + Send + Sync".to_owned()])
        );
        assert_eq!(bound(&code_of(&[])), (0, Vec::new()));
    }
}
