//! What is measured.

/// A measure of a crate, or of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Measure {
    Code,
    Median,
    LongFiles,
    RootNames,
    RootModules,
    Methods,
    Fields,
    Imports,
    Calls,
    Wheres,
    Bound,
    WideComments,
    Lines,
    WideLines,
}

/// The value of a measure, for one crate or one document.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Measurement {
    pub(super) measure: Measure,
    /// The crate or the document.
    pub(super) of: String,
    pub(super) value: usize,
    /// What the value is made of, a line each; the largest part comes first.
    pub(super) parts: Vec<String>,
}

/// What one measure has found in one crate: the value, and what it is made of.
pub(super) type Value = (usize, Vec<String>);

impl Measure {
    /// Those of a crate, in the order of the table.
    pub(super) const OF_CRATES: [Self; 12] = [
        Self::Code,
        Self::Median,
        Self::LongFiles,
        Self::RootNames,
        Self::RootModules,
        Self::Methods,
        Self::Fields,
        Self::Imports,
        Self::Calls,
        Self::Wheres,
        Self::Bound,
        Self::WideComments,
    ];

    /// Those of a document.
    pub(super) const OF_DOCUMENTS: [Self; 2] = [Self::Lines, Self::WideLines];

    pub(super) fn named(name: &str) -> Option<Self> {
        let all = Self::OF_CRATES.into_iter().chain(Self::OF_DOCUMENTS);
        all.into_iter().find(|measure| measure.name() == name)
    }

    /// Its name in the limits and in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Median => "median",
            Self::LongFiles => "long",
            Self::RootNames => "names",
            Self::RootModules => "modules",
            Self::Methods => "methods",
            Self::Fields => "fields",
            Self::Imports => "imports",
            Self::Calls => "calls",
            Self::Wheres => "wheres",
            Self::Bound => "bound",
            Self::WideComments => "comments",
            Self::Lines => "lines",
            Self::WideLines => "wide",
        }
    }

    /// What to do about a value above the limit.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Code => "remove what repeats, or move a part into a crate of its own",
            Self::Median => "split the files that have several nouns",
            Self::LongFiles => "split the file: one noun, one file",
            Self::RootNames => "move names into a public module, or do not publish them",
            Self::RootModules => "join two modules, or do not publish one",
            Self::Methods => "give the type parts that own their methods",
            Self::Fields => "give the fields that change together a type of their own",
            Self::Imports => "move what both files need into a file that imports neither",
            Self::Calls => "return what is to do next, and let one caller do it",
            Self::Wheres => "name the bounds once, in a trait that has them as its supertraits",
            Self::Bound => "name the bound once, in a trait that has its parts as supertraits",
            Self::WideComments => "break the lines of the comments at 100 columns",
            Self::Lines => "move tables to what they are about, or delete what is said elsewhere",
            Self::WideLines => "break the lines at 120 columns",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measure_has_its_name() {
        let all = Measure::OF_CRATES.into_iter().chain(Measure::OF_DOCUMENTS);
        for measure in all {
            assert_eq!(Measure::named(measure.name()), Some(measure));
        }
        assert_eq!(Measure::named("size"), None);
    }
}
