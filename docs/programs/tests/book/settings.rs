//! Each setting of each builder has a row in the chapter of settings, and each row a setting.
//!
//! A setting is a public method of a public type that takes its value by value and returns it again,
//! or a `Result` of it. The methods are read in the sources, so that features do not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use syn::{
    FnArg, GenericArgument, ImplItem, Item, PathArguments, ReceiverKind, ReturnType, Type,
    Visibility,
};

use crate::book::{files, root};

const CHAPTER: &str = "docs/src/settings.md";

/// Crates for tests, or without a stable API.
const LEFT_OUT: [&str; 4] = [
    "keylane-testkit",
    "keylane-lanes",
    "keylane-rt",
    "keylane-disk",
];

/// Types with such methods that are no settings, and what they are instead.
const NO_SETTINGS: [(&str, &str); 18] = [
    (
        "keylane::Shutdown",
        "a call: `within` is where it is awaited",
    ),
    ("keylane::Stop", "a call: `within` is where it is awaited"),
    (
        "keylane_spool::Closing",
        "a call: `within` is where it is awaited",
    ),
    ("keylane_inbox::NewMessage", "a message"),
    ("keylane_spool::Message", "a message"),
    ("keylane_source::RawMessage", "a message"),
    ("keylane_source::Delivery", "a message on its way"),
    (
        "keylane_source::Frontier",
        "a value: its limits have a table",
    ),
    ("keylane_source::Features", "what a connector can do"),
    ("keylane_spool::SinkError", "an error"),
    (
        "keylane_source::Describer",
        "what a connector says about a message",
    ),
    ("keylane_leases::Holder", "what a store answers"),
    ("keylane_source::LaneHolder", "what a store answers"),
    ("keylane_metrics::Labels", "what connectors publish"),
    ("keylane_metrics::Metric", "what connectors publish"),
    ("keylane_redis::Fence", "a write: its commands"),
    ("keylane_zookeeper::Fence", "a write: its operations"),
    (
        "keylane_console::View",
        "how to show messages of a type of yours",
    ),
];

/// The settings of types, by `crate::Type`.
type Settings = BTreeMap<String, BTreeSet<String>>;

/// The tables of a chapter: below a heading the type, then a row for each setting.
fn tables(chapter: &str) -> Settings {
    let mut tables = Settings::new();
    for section in chapter.split("\n## ").skip(1) {
        let of = section
            .split('`')
            .nth(1)
            .expect("a type below each heading");
        let rows = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        tables.insert(
            of.to_owned(),
            rows.map(|(name, _)| name.to_owned()).collect(),
        );
    }
    tables
}

/// The settings in a source text.
fn settings(text: &str, krate: &str, into: &mut Settings) {
    let file = syn::parse_file(text).expect("it compiles");
    for item in file.items {
        let Item::Impl(item) = item else { continue };
        let Some(name) = type_name(&item.self_ty).filter(|_| item.trait_.is_none()) else {
            continue;
        };
        for member in item.items {
            let ImplItem::Fn(function) = member else {
                continue;
            };
            let is_by_value = matches!(
                function.sig.inputs.first(),
                Some(FnArg::Receiver(receiver)) if matches!(receiver.kind, ReceiverKind::Value)
            );
            let returned = match &function.sig.output {
                ReturnType::Type(_, returned) => type_name(ok_of(returned)),
                ReturnType::Default => None,
            };
            let is_same = returned.is_some_and(|returned| returned == "Self" || returned == name);
            if is_by_value && is_same && matches!(function.vis, Visibility::Public(_)) {
                let of = format!("{}::{name}", krate.replace('-', "_"));
                into.entry(of)
                    .or_default()
                    .insert(function.sig.ident.to_string());
            }
        }
    }
}

/// The type of `Ok`, if it is a `Result`.
fn ok_of(of: &Type) -> &Type {
    let Type::Path(path) = of else { return of };
    let last = path.path.segments.last().expect("a path has a name");
    match &last.arguments {
        PathArguments::AngleBracketed(list) if last.ident == "Result" => match list.args.first() {
            Some(GenericArgument::Type(ok)) => ok,
            _ => of,
        },
        _ => of,
    }
}

/// The public types that a source text declares, also inside a macro.
fn public_types(text: &str, krate: &str, into: &mut BTreeSet<String>) {
    for line in text.lines().map(str::trim_start) {
        let kinds = ["pub struct ", "pub enum "];
        let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) else {
            continue;
        };
        let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap();
        into.insert(format!("{}::{name}", krate.replace('-', "_")));
    }
}

fn type_name(of: &Type) -> Option<String> {
    let Type::Path(path) = of else { return None };
    Some(path.path.segments.last()?.ident.to_string())
}

fn of_all_crates() -> Settings {
    let (mut all, mut public) = (Settings::new(), BTreeSet::new());
    for (path, text) in files("crates", ".rs") {
        let mut parts = path.iter().skip(1).map(|part| part.to_str().unwrap());
        let (krate, folder) = (parts.next().unwrap(), parts.next().unwrap());
        if krate.starts_with("keylane") && folder == "src" && !LEFT_OUT.contains(&krate) {
            settings(&text, krate, &mut all);
            public_types(&text, krate, &mut public);
        }
    }
    all.retain(|of, _| public.contains(of));
    all
}

#[test]
fn each_setting_has_a_row_and_each_row_a_setting() {
    let chapter = fs::read_to_string(root().join(CHAPTER)).unwrap();
    let (tables, settings) = (tables(&chapter), of_all_crates());
    for (of, rows) in &tables {
        let there = settings.get(of).cloned().unwrap_or_default();
        let missing: Vec<_> = there.difference(rows).collect();
        let wrong: Vec<_> = rows.difference(&there).collect();
        assert!(
            missing.is_empty() && wrong.is_empty(),
            "{CHAPTER}, the table of {of}: add rows for {missing:?}, and remove {wrong:?}"
        );
    }
    for (of, instead) in NO_SETTINGS {
        let is_needed = settings.contains_key(of) && !tables.contains_key(of);
        assert!(is_needed, "{of} needs no exception as {instead}");
    }
    let excepted = |of: &String| NO_SETTINGS.iter().any(|(no, _)| no == of);
    let without = settings
        .iter()
        .filter(|(of, _)| !tables.contains_key(*of) && !excepted(of));
    let without: Vec<_> = without.collect();
    assert!(without.is_empty(), "{CHAPTER}: add a table for {without:?}");
}

#[test]
fn settings_and_rows_are_read() {
    let text = "
        impl<K> Builder<K> {
            pub fn one(mut self, n: u32) -> Self { self }
            pub fn two<T>(self) -> Builder<T> { todo!() }
            pub fn three(self) -> Result<Self, Error> { todo!() }
            pub fn build(self) -> Result<Thing, Error> { todo!() }
            pub fn shown(&self) -> Self { todo!() }
            fn private(self) -> Self { self }
            pub(crate) fn of_the_crate(self) -> Self { self }
        }
        impl Clone for Builder<u32> { fn four(self) -> Self { self } }
        pub struct Builder<K>(K);
        pub(crate) struct Hidden;
    ";
    let mut found = Settings::new();
    settings(text, "keylane-x", &mut found);
    let chapter = "# S\n\n## A\n\n`keylane_x::Builder`, `x`.\n\n\
                   | setting |\n| --- |\n| `one` | 1 |\n| `two` | 2 |\n| `three` | 3 |\n";
    assert_eq!(found, tables(chapter));
    let names = ["one", "two", "three"].map(str::to_owned);
    assert_eq!(found["keylane_x::Builder"], BTreeSet::from(names));
    let mut public = BTreeSet::new();
    public_types(text, "keylane-x", &mut public);
    assert_eq!(public, BTreeSet::from(["keylane_x::Builder".to_owned()]));
}
