//! Text of the user as a log shows it, and text of errors.

/// Escapes what could break a line, and cuts to `longest` characters.
pub fn cut(text: String, longest: usize) -> String {
    // Most texts are short and plain.
    if text.len() <= longest && text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text;
    }
    let mut short = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == longest {
            short.push('…');
            break;
        }
        if c.is_control() {
            short.extend(c.escape_default());
        } else {
            short.push(c);
        }
    }
    short
}

/// Implements `Debug` for an error: its text, and behind it the name of its variant.
///
/// `main` and `unwrap` print `Debug`, and the text says what to do. It contains the fields. What an
/// error gives back belongs to the user: it is not shown, and need not be showable.
#[macro_export]
macro_rules! text_in_debug {
    ($name:ident) => {
        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    };
    (
        $name:ident $(<$($param:ident $(: $bound:path)?),*>)? : $($variant:ident),*
    ) => {
        impl $(<$($param $(: $bound)?),*>)? ::std::fmt::Debug for $name $(<$($param),*>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let variant = match self {
                    $(Self::$variant { .. } => ::std::stringify!($variant),)*
                };
                ::std::write!(f, "{self} ({variant})")
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use std::fmt;

    enum Refused<M> {
        Full(M),
        Late { by: u8 },
    }

    impl<M> fmt::Display for Refused<M> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Full(_) => f.write_str("it is full"),
                Self::Late { by } => write!(f, "it is late by {by}"),
            }
        }
    }

    text_in_debug! { Refused<M>: Full, Late }

    #[test]
    fn debug_is_the_text_with_the_variant_behind_it() {
        struct NotShowable;
        let (full, late) = (Refused::Full(NotShowable), Refused::Late::<()> { by: 3 });
        assert_eq!(format!("{full:?}"), "it is full (Full)");
        assert_eq!(format!("{late:?}"), "it is late by 3 (Late)");
    }
}
