//! Text of the user, as a log shows it.

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
