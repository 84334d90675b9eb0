//! Tables for people, and the same as JSON.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::figures::Spread;
use crate::{Options, machine};

/// The column that ratios are taken of.
pub(crate) const RATE: &str = "per second";

/// What one measurement found, by column.
pub(crate) type Sample = Vec<(&'static str, f64)>;

/// Measurements that are compared with each other.
pub(crate) struct Table {
    title: String,
    /// The row that is 1.00, where the others are told as parts of it.
    base: Option<&'static str>,
    columns: &'static [&'static str],
    rows: Vec<Row>,
}

struct Row {
    name: String,
    samples: Vec<Sample>,
}

impl Table {
    pub(crate) fn new(
        title: impl Into<String>,
        base: Option<&'static str>,
        columns: &'static [&'static str],
    ) -> Self {
        Self { title: title.into(), base, columns, rows: Vec::new() }
    }

    /// Adds what a round found. Each row must be in each round, so that ratios are of one moment.
    pub(crate) fn add(&mut self, name: &str, sample: Sample) {
        match self.rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.samples.push(sample),
            None => self.rows.push(Row { name: name.into(), samples: vec![sample] }),
        }
    }

    /// A figure over all rounds.
    pub(crate) fn figure(&self, row: &str, column: &str) -> Option<Spread> {
        Spread::of(self.row(row)?.values(column).collect())
    }

    /// One row's rate as a part of another's, round by round.
    pub(crate) fn ratio(&self, row: &str, base: &str) -> Option<Spread> {
        self.ratio_of(RATE, row, base)
    }

    /// The same for another figure than the rate.
    pub(crate) fn ratio_of(&self, column: &str, row: &str, base: &str) -> Option<Spread> {
        Self::ratio_between((self, row, column), (self, base, column))
    }

    /// The same for figures of two tables: each is a table, a row and a column.
    pub(crate) fn ratio_between(
        of: (&Self, &str, &str),
        base: (&Self, &str, &str),
    ) -> Option<Spread> {
        let [of, base] =
            [of, base].map(|(table, row, column)| Some(table.row(row)?.values(column)));
        Spread::of(of?.zip(base?).map(|(figure, base)| figure / base).collect())
    }

    fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    fn markdown(&self) -> String {
        let base = self.base.filter(|base| self.row(base).is_some());
        let mut head = vec![String::new()];
        head.extend(self.columns.iter().map(ToString::to_string));
        head.extend(base.map(|base| format!("of {base}")));
        let mut lines = vec![head];
        for row in &self.rows {
            let mut line = vec![row.name.clone()];
            let figures = self.columns.iter().map(|column| self.figure(&row.name, column));
            line.extend(figures.map(|figure| figure.map(shown).unwrap_or_default()));
            let ratio = base.and_then(|base| self.ratio(&row.name, base));
            line.extend(base.map(|_| ratio.map(shown).unwrap_or_default()));
            lines.push(line);
        }
        format!("### {}\n\n{}", self.title, aligned(&lines))
    }

    fn json(&self) -> Value {
        let row = |row: &Row| {
            let mut figures: Map<String, Value> = Map::new();
            for column in self.columns {
                figures
                    .extend(self.figure(&row.name, column).map(|f| ((*column).into(), spread(f))));
            }
            let ratio = self.base.and_then(|base| self.ratio(&row.name, base)).map(spread);
            json!({ "name": row.name, "figures": figures, "ratio": ratio })
        };
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        json!({ "title": self.title, "base": self.base, "rows": rows })
    }
}

impl Row {
    fn values(&self, column: &str) -> impl Iterator<Item = f64> {
        let in_sample = move |sample: &Sample| {
            sample.iter().find(|(name, _)| *name == column).map(|(_, value)| *value)
        };
        self.samples.iter().filter_map(in_sample)
    }
}

/// What we want to be true, and whether it is.
pub(crate) struct Target {
    what: String,
    found: String,
    met: bool,
}

impl Target {
    pub(crate) fn new(what: impl Into<String>, found: impl Into<String>, met: bool) -> Self {
        Self { what: what.into(), found: found.into(), met }
    }

    /// A figure that should be at least this; nothing where it was not measured.
    pub(crate) fn at_least(what: &str, least: f64, found: Option<Spread>) -> Option<Self> {
        let found = found?;
        Some(Self::new(
            format!("{what}: at least {}", number(least)),
            shown(found),
            found.median >= least,
        ))
    }

    /// A figure that should be below this; nothing where it was not measured.
    pub(crate) fn below(what: &str, most: f64, found: Option<Spread>) -> Option<Self> {
        let found = found?;
        Some(Self::new(
            format!("{what}: below {}", number(most)),
            shown(found),
            found.median < most,
        ))
    }
}

/// Prints everything, and writes it where it is wanted as JSON.
pub(crate) fn publish(
    options: &Options,
    notes: &[String],
    tables: &[Table],
    targets: &[Target],
) -> Result<()> {
    let mut text = String::new();
    let how = format!(
        "Medians of {} rounds of {} s each, with the least and the greatest in brackets. {}.",
        options.rounds(),
        options.seconds(),
        machine::describe()
    );
    writeln!(text, "{how}")?;
    for note in notes {
        writeln!(text, "{note}")?;
    }
    for table in tables.iter().filter(|table| !table.rows.is_empty()) {
        write!(text, "\n{}", table.markdown())?;
    }
    if !targets.is_empty() {
        let mut lines = vec![["target", "found", ""].map(String::from).to_vec()];
        for Target { what, found, met } in targets {
            let verdict = if *met { "met" } else { "**missed**" };
            lines.push(vec![what.clone(), found.clone(), verdict.into()]);
        }
        write!(text, "\n### Targets\n\n{}", aligned(&lines))?;
    }
    println!("{text}");
    if let Some(path) = &options.json {
        let target = |t: &Target| json!({ "what": t.what, "found": t.found, "met": t.met });
        let all = json!({
            "machine": machine::describe(),
            "seconds": options.seconds(),
            "rounds": options.rounds(),
            "notes": notes,
            "tables": tables.iter().map(Table::json).collect::<Vec<_>>(),
            "targets": targets.iter().map(target).collect::<Vec<_>>(),
        });
        std::fs::write(path, format!("{all:#}\n"))
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

fn spread(spread: Spread) -> Value {
    json!({ "median": spread.median, "min": spread.min, "max": spread.max })
}

/// The median, and how far the rounds lie apart.
pub(crate) fn shown(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    match min == max {
        true => number(median),
        false => format!("{} ({}–{})", number(median), number(min), number(max)),
    }
}

/// About three digits; thousands apart.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        ..0.1 => format!("{value:.3}"),
        0.1..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => {
            let digits = format!("{value:.0}");
            let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
            String::from_utf8(groups.join(&b","[..])).expect("digits are ASCII")
        }
    }
}

/// A Markdown table whose columns line up for those who read it plain.
pub(crate) fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(at))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            text.push_str(&format!("| {cell:width$} "));
        }
        text.push_str("|\n");
        if at == 0 {
            for width in &widths {
                text.push_str(&format!("|{:-<1$}", "", width + 2));
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round() {
        let mut table = Table::new("t", Some("base"), &[RATE]);
        for (base, other) in [(100.0, 50.0), (10.0, 9.0), (1000.0, 600.0)] {
            table.add("base", vec![(RATE, base)]);
            table.add("other", vec![(RATE, other)]);
        }
        let ratio = table.ratio("other", "base").expect("measured");
        assert_eq!((ratio.min, ratio.median, ratio.max), (0.5, 0.6, 0.9));
        assert!(table.markdown().contains("0.60 (0.50–0.90)"));
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.071, 12.34, 345.6, 12345.6, 1234567.0].map(number);
        assert_eq!(shown, ["0", "0.071", "12.3", "346", "12,346", "1,234,567"]);
    }
}
