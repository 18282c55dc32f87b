//! Tables that judge: old against new, and the bars.

use super::grid::Table;
use crate::against::Compared;
use crate::bars::Bar;
use crate::number::number;

/// Old against new.
pub fn against(compared: &[Compared]) -> Table {
    let mut table = Table::new(
        "Old against new",
        "Medians of both, the median of the ratios of new to old by pair, and their quartiles.",
        &["figure", "old", "new", "new / old", "quartiles"],
    );
    for compared in compared {
        let [lower, median, upper] = compared.ratio.map(|ratio| format!("{ratio:.3}"));
        table.push([
            compared.name.clone(),
            number(compared.old),
            number(compared.new),
            median,
            format!("{lower}..{upper}"),
        ]);
    }
    table
}

/// The bars.
pub fn bars(bars: &[Bar]) -> Table {
    let mut table = Table::of_words(
        "Bars",
        "The worst value is the measured one; in brackets, where.",
        &["bar", "measured", "verdict"],
    );
    for bar in bars {
        table.push([
            bar.asked.clone(),
            bar.measured.clone(),
            bar.verdict().to_owned(),
        ]);
    }
    table
}
