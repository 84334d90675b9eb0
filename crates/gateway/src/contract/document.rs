//! [`Document`]: the contract as people read it, said once for every form that has words.
//!
//! What comes from a configuration is a [`Span`] of its own from the start, so no header name and
//! no path can ever be taken for markup.

use super::problems::Entry;

/// A page: sections of blocks of lines.
pub(super) struct Document {
    pub(super) title: &'static str,
    pub(super) lead: Line,
    pub(super) sections: Vec<Section>,
}

pub(super) struct Section {
    /// What a link to it says after `#`.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) blocks: Vec<Block>,
}

pub(super) enum Block {
    Paragraph(Line),
    List(Vec<Line>),
    /// One after the other.
    Steps(Vec<Line>),
    /// Names, and what there is to say of each.
    Facts(Vec<(&'static str, Line)>),
    Table(Table),
    /// Commands for a shell.
    Shell(String),
    /// A problem, and the statuses it comes with.
    Problem(Entry, String),
}

/// The first cell of a row says what the row is about.
pub(super) struct Table {
    pub(super) head: Vec<&'static str>,
    /// A cell has any number of lines.
    pub(super) rows: Vec<Vec<Vec<Line>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Span {
    Text(String),
    Code(String),
    /// A problem's slug, as a link to what is said of it.
    Problem(&'static str),
}

/// Text without a break.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line(pub(super) Vec<Span>);

impl Line {
    /// The words alone.
    pub(super) fn plain(&self) -> String {
        let text = |span: &Span| match span {
            Span::Text(text) | Span::Code(text) => text.clone(),
            Span::Problem(slug) => (*slug).to_owned(),
        };
        self.0.iter().map(text).collect()
    }
}

/// A line from a template: `` `code` ``, `[slug]` for a link to a problem, and `{}` for the next
/// of `values`.
pub(super) fn line<const N: usize>(template: &'static str, values: [Line; N]) -> Line {
    let mut spans = Vec::new();
    let mut values = values.into_iter();
    let mut rest = template;
    while let Some(at) = rest.find(['`', '[', '{']) {
        let (before, marked) = rest.split_at(at);
        push_text(&mut spans, before);
        let end = match &marked[..1] {
            "`" => '`',
            "[" => ']',
            _ => '}',
        };
        let (inside, after) = marked[1..].split_once(end).expect("what is opened is closed");
        match end {
            '`' => spans.push(Span::Code(inside.to_owned())),
            ']' => spans.push(Span::Problem(inside)),
            _ => spans.extend(values.next().expect("a value for each {}").0),
        }
        rest = after;
    }
    push_text(&mut spans, rest);
    debug_assert!(values.next().is_none(), "a {{}} for each value: {template}");
    Line(spans)
}

fn push_text(spans: &mut Vec<Span>, text: &str) {
    if !text.is_empty() {
        spans.push(Span::Text(text.to_owned()));
    }
}

/// A line of a template without values.
pub(super) fn plain(template: &'static str) -> Line {
    line(template, [])
}

/// Lines of templates without values.
pub(super) fn lines<const N: usize>(templates: [&'static str; N]) -> Vec<Line> {
    templates.into_iter().map(plain).collect()
}

/// Words of our own, such as a duration.
pub(super) fn text(text: impl Into<String>) -> Line {
    Line(vec![Span::Text(text.into())])
}

/// Something to be typed or sent as it stands.
pub(super) fn code(text: impl Into<String>) -> Line {
    Line(vec![Span::Code(text.into())])
}

/// Each of `items` as code: `a`, `b` and `c`, with `word` before the last.
pub(super) fn codes(items: impl IntoIterator<Item = String>, word: &str) -> Line {
    let items: Vec<String> = items.into_iter().collect();
    let mut line = Line::default();
    for (at, item) in items.iter().enumerate() {
        match at {
            0 => {}
            at if at + 1 == items.len() => line.0.push(Span::Text(format!(" {word} "))),
            _ => line.0.push(Span::Text(", ".to_owned())),
        }
        line.0.push(Span::Code(item.clone()));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_text_code_links_and_values() {
        let made = line("Send {}, or `x`: [key-reused]", [code("a`b[{}")]);
        let expected = [
            Span::Text("Send ".into()),
            Span::Code("a`b[{}".into()),
            Span::Text(", or ".into()),
            Span::Code("x".into()),
            Span::Text(": ".into()),
            Span::Problem("key-reused"),
        ];
        assert_eq!(made.0, expected);
        assert_eq!(made.plain(), "Send a`b[{}, or x: key-reused");
    }

    #[test]
    fn several_words_are_joined_as_in_a_sentence() {
        let joined = |items: &[&str]| codes(items.iter().map(ToString::to_string), "and").plain();
        assert_eq!(joined(&["a"]), "a");
        assert_eq!(joined(&["a", "b"]), "a and b");
        assert_eq!(joined(&["a", "b", "c"]), "a, b and c");
    }
}
