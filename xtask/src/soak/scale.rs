//! How often a soak tries something.

/// The scale of a soak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Short,
    Normal,
    Long,
}

/// How often something is tried, at each scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amount {
    short: u64,
    normal: u64,
    long: u64,
}

impl Scale {
    /// The scale of these flags.
    pub(super) fn chosen(is_short: bool, is_long: bool) -> Self {
        match (is_short, is_long) {
            (true, _) => Self::Short,
            (false, true) => Self::Long,
            (false, false) => Self::Normal,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Normal => "normal",
            Self::Long => "long",
        }
    }
}

impl Amount {
    /// A tenth of it, and ten times of it.
    pub(super) const fn of(normal: u64) -> Self {
        Self {
            short: normal / 10,
            normal,
            long: normal * 10,
        }
    }

    /// A tenth of it; there is no more.
    pub(super) const fn at_most(normal: u64) -> Self {
        Self::from(normal / 10, normal)
    }

    /// So much of it at the short scale; there is no more than `normal`.
    pub(super) const fn from(short: u64, normal: u64) -> Self {
        let long = normal;
        Self {
            short,
            normal,
            long,
        }
    }

    pub(super) const fn at(self, scale: Scale) -> u64 {
        match scale {
            Scale::Short => self.short,
            Scale::Normal => self.normal,
            Scale::Long => self.long,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_choose_a_scale() {
        assert_eq!(Scale::chosen(false, false), Scale::Normal);
        assert_eq!(Scale::chosen(true, false), Scale::Short);
        assert_eq!(Scale::chosen(false, true), Scale::Long);
    }

    #[test]
    fn scales_are_ten_times_apart_where_there_is_more() {
        let at = |amount: Amount| {
            [Scale::Short, Scale::Normal, Scale::Long].map(|scale| amount.at(scale))
        };
        assert_eq!(at(Amount::of(2_000)), [200, 2_000, 20_000]);
        assert_eq!(at(Amount::at_most(2_000)), [200, 2_000, 2_000]);
        assert_eq!(at(Amount::from(1, 8)), [1, 8, 8]);
    }
}
