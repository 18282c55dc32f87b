//! The measures, a file for each kind.

mod size;

mod root;

mod types;

mod circles;

mod imports;

mod calls;

mod bounds;

mod width;

use super::code::{Crate, Names};
use super::measure::{Measure, Measurement, Value};

/// Measures a crate.
pub(super) fn of_crate(code: &Crate) -> Vec<Measurement> {
    let names = Names::of(code);
    let types = types::types(code, &names);
    let values = [
        (Measure::Code, size::code(code)),
        (Measure::Median, size::median(code)),
        (Measure::LongFiles, size::long_files(code)),
        (Measure::RootNames, root::names(code, &names)),
        (Measure::RootModules, root::modules(code)),
        (Measure::Methods, types::methods(code, &types)),
        (Measure::Fields, types::fields(code, &types)),
        (Measure::Imports, imports::value(code, &names)),
        (Measure::Calls, calls::value(code, &names, &types)),
        (Measure::Wheres, bounds::wheres(code)),
        (Measure::Bound, bounds::bound(code)),
        (Measure::WideComments, width::comments(code)),
    ];
    measurements(&code.name, values)
}

/// Measures a document.
pub(super) fn of_document(name: &str, text: &str) -> Vec<Measurement> {
    let values = [
        (Measure::Lines, size::lines(text)),
        (Measure::WideLines, width::lines(text)),
    ];
    measurements(name, values)
}

fn measurements<const N: usize>(of: &str, values: [(Measure, Value); N]) -> Vec<Measurement> {
    let measurements = values.map(|(measure, (value, parts))| Measurement {
        measure,
        of: of.to_owned(),
        value,
        parts,
    });
    measurements.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::code::code_of;

    #[test]
    fn every_measure_is_taken_once() {
        let of = |all: Vec<Measurement>| -> Vec<Measure> {
            all.into_iter().map(|one| one.measure).collect()
        };
        assert_eq!(of(of_crate(&code_of(&[]))), Measure::OF_CRATES);
        assert_eq!(of(of_document("README.md", "")), Measure::OF_DOCUMENTS);
    }
}
