//! [`Mistakes`]: everything that is wrong with a configuration, in the order of the file.

use std::fmt;

/// Everything that is wrong with a configuration: one line each, then their number.
#[derive(Debug, Default)]
pub struct Mistakes(Vec<Mistake>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mistake {
    spot: Spot,
    text: String,
}

/// Where something was written. What has no line (a flag, a whole file) comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spot {
    /// Line and column, both counted from 1, the column in characters.
    pub(super) position: Option<(usize, usize)>,
    /// The file's path, or the flag.
    pub(super) origin: String,
    /// The setting with its table, where the origin does not say it already.
    pub(super) name: Option<String>,
}

impl Spot {
    pub(super) fn flag(flag: &str) -> Self {
        Self { position: None, origin: flag.to_owned(), name: None }
    }

    fn line(&self) -> Option<usize> {
        self.position.map(|(line, _)| line)
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        self.name.as_ref().map_or(Ok(()), |name| write!(f, ": {name}"))
    }
}

impl Mistakes {
    pub(super) fn add(&mut self, spot: Spot, text: impl Into<String>) {
        self.0.push(Mistake { spot, text: text.into() });
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds what is not even TOML, one mistake for each such line: a parser stumbles several
    /// times over it, and what it made of the line is not worth a complaint.
    pub(super) fn add_syntax(&mut self, mut syntax: Self) {
        syntax.0.sort();
        syntax.0.dedup_by_key(|mistake| mistake.spot.line());
        let broken: Vec<usize> =
            syntax.0.iter().filter_map(|mistake| mistake.spot.line()).collect();
        self.0.retain(|mistake| mistake.spot.line().is_none_or(|line| !broken.contains(&line)));
        self.append(syntax);
    }

    pub(super) fn sorted(mut self) -> Self {
        self.0.sort();
        self
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Mistake { spot, text } in &self.0 {
            writeln!(f, "{spot}: {text}")?;
        }
        match self.0.len() {
            1 => f.write_str("1 mistake"),
            count => write!(f, "{count} mistakes"),
        }
    }
}

impl std::error::Error for Mistakes {}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(line: usize) -> Spot {
        let name = Some("store.url".to_owned());
        Spot { position: Some((line, 7)), origin: "selfsame.toml".to_owned(), name }
    }

    #[test]
    fn mistakes_are_listed_by_position_and_counted() {
        let mut mistakes = Mistakes::default();
        mistakes.add(on(10), "later");
        mistakes.add(on(9), "sooner");
        mistakes.add(Spot::flag("--listen"), "first");
        let expected = "--listen: first\n\
            selfsame.toml:9:7: store.url: sooner\n\
            selfsame.toml:10:7: store.url: later\n\
            3 mistakes";
        assert_eq!(mistakes.sorted().to_string(), expected);
    }
    #[test]
    fn of_a_line_that_is_not_toml_only_that_is_said() {
        let mut mistakes = Mistakes::default();
        mistakes.add(on(1), "nonsense that follows");
        mistakes.add(on(2), "wrong");
        let mut syntax = Mistakes::default();
        syntax.add(on(1), "a: broken");
        syntax.add(on(1), "b: and again");
        mistakes.add_syntax(syntax);
        let expected = "selfsame.toml:1:7: store.url: a: broken\n\
            selfsame.toml:2:7: store.url: wrong\n\
            2 mistakes";
        assert_eq!(mistakes.sorted().to_string(), expected);
    }
}
