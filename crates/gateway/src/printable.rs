//! Text from outside, made safe to print: names, keys and reasons may hold what a terminal would obey.
//!
//! Control characters (escape sequences and line breaks among them) and marks that change the direction of
//! text are shown as `\u{1b}`.

use std::borrow::Cow;
use std::io::{self, Write};

/// Text on one line.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe, |c| c.escape_default().to_string())
}

/// Text of several lines.
pub(crate) fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_unsafe(c), |c| c.escape_default().to_string())
}

/// JSON with the same meaning. Characters beyond ASCII only stand in its strings.
pub(crate) fn printable_json(text: &str) -> Cow<'_, str> {
    let is_raw = |c| c >= '\u{7f}' && is_unsafe(c);
    escaped(text, is_raw, |c| format!("\\u{:04x}", u32::from(c)))
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(
    text: &str,
    is_escaped: impl Fn(char) -> bool,
    escape: impl Fn(char) -> String,
) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_escaped(c) {
            true => written.push_str(&escape(c)),
            false => written.push(c),
        }
    }
    Cow::Owned(written)
}

/// Form of a log.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LogForm {
    Json,
    /// For a terminal, with colours. The escape character of values is escaped by `tracing_subscriber`.
    Text,
}

/// Standard error, to which each entry of the log is written at once.
pub(crate) struct LogWriter(pub(crate) LogForm);

impl Write for LogWriter {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(entry);
        io::stderr().write_all(log_entry(&text, self.0).as_bytes())?;
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Entry on one line, with the line break at its end.
fn log_entry(entry: &str, form: LogForm) -> Cow<'_, str> {
    match form {
        LogForm::Json => printable_json(entry),
        LogForm::Text => {
            let line = entry.strip_suffix('\n').unwrap_or(entry);
            let is_obeyed = |c| c != '\u{1b}' && c != '\t' && is_unsafe(c);
            match escaped(line, is_obeyed, |c| c.escape_default().to_string()) {
                Cow::Borrowed(_) => Cow::Borrowed(entry),
                Cow::Owned(escaped) => Cow::Owned(escaped + &entry[line.len()..]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        let table = [
            ("ann", "ann"),
            ("käthe ☕ 👩\u{200d}💻 \\", "käthe ☕ 👩\u{200d}💻 \\"),
            ("\u{1b}[2Jann", "\\u{1b}[2Jann"),
            ("two\r\nlines\tand\0", "two\\r\\nlines\\tand\\u{0}"),
            ("\u{9b}2J\u{7f}", "\\u{9b}2J\\u{7f}"),
            ("a\u{202e}b\u{2066}c\u{2069}\u{200f}", "a\\u{202e}b\\u{2066}c\\u{2069}\\u{200f}"),
            ("\u{2028}", "\\u{2028}"),
        ];
        for (text, expected) in table {
            assert_eq!(printable(text), expected);
        }
        assert_eq!(printable_lines("a\n\u{1b}b"), "a\n\\u{1b}b");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({"a\u{202e}": ["\u{1b}[2J\u{9b}\u{7f}\n", "é"]});
        let text = serde_json::to_string_pretty(&value).expect("JSON");
        let printed = printable_json(&text);
        assert!(printed.chars().all(|c| c == '\n' || !is_unsafe(c)), "{printed}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printed).expect("JSON"), value);
    }

    #[test]
    fn an_entry_of_a_log_is_one_line() {
        let entry = "\u{1b}[2mINFO\u{1b}[0m a\nb \u{202e}c\u{9b}\n";
        let expected = "\u{1b}[2mINFO\u{1b}[0m a\\nb \\u{202e}c\\u{9b}\n";
        assert_eq!(log_entry(entry, LogForm::Text), expected);
        assert_eq!(log_entry("plain\n", LogForm::Text), "plain\n");
        assert_eq!(log_entry("{\"a\":\"\u{202e}\"}\n", LogForm::Json), "{\"a\":\"\\u202e\"}\n");
    }
}
