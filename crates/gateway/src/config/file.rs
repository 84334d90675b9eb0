//! What was written: a file's text and its tables, read name by name.
//!
//! A wrong value is noted and the reading goes on, so that every mistake is found at once.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistakes::{Mistakes, Spot};
use super::names::Vocabulary;
use super::schema;
use super::values::{Kind, found};

/// A configuration file's text, or that of none.
#[derive(Default)]
pub(super) struct Source {
    path: Option<String>,
    text: String,
    /// What was asked for, where somebody wants to know.
    asked: Option<RefCell<Vec<Asked>>>,
}

/// A setting that was asked for, whether it was written or not.
pub(super) struct Asked {
    pub(super) table: &'static str,
    pub(super) name: &'static str,
    /// What its value may be, as a JSON Schema says it.
    pub(super) schema: Value,
}

impl Source {
    pub(super) fn new(path: String, text: String) -> Self {
        Self { path: Some(path), text, asked: None }
    }

    /// The same, which keeps in mind what is asked for.
    pub(super) fn attentive(self) -> Self {
        Self { asked: Some(RefCell::default()), ..self }
    }

    /// All that was asked for.
    pub(super) fn into_asked(self) -> Vec<Asked> {
        self.asked.map(RefCell::into_inner).unwrap_or_default()
    }

    fn note(&self, table: &'static str, name: &'static str, schema: impl FnOnce() -> Value) {
        if let Some(asked) = &self.asked {
            asked.borrow_mut().push(Asked { table, name, schema: schema() });
        }
    }

    /// The file at `path`. One that cannot be read is a mistake, and as good as empty.
    pub(super) fn read(path: &Path) -> (Self, Mistakes) {
        let origin = path.display().to_string();
        let mut mistakes = Mistakes::default();
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| {
            let spot = Spot { position: None, origin: origin.clone(), name: None };
            mistakes.add(spot, format!("cannot be read: {error}"));
            String::new()
        });
        (Self::new(origin, text), mistakes)
    }

    /// The file's tables as far as they can be made out, and where the text is not TOML.
    pub(super) fn parse(&self) -> (Spanned<DeTable<'_>>, Mistakes) {
        let (root, errors) = DeTable::parse_recoverable(&self.text);
        let mut mistakes = Mistakes::default();
        for error in errors {
            let spot = self.spot(error.span().map_or(self.text.len(), |span| span.start), None);
            mistakes.add(spot, format!("not TOML: {}", error.message()));
        }
        (root, mistakes)
    }

    fn spot(&self, offset: usize, name: Option<String>) -> Spot {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let column = before[line_start..].trim_start_matches('\u{feff}').chars().count() + 1;
        let origin = self.path.clone().unwrap_or_default();
        Spot { position: Some((line, column)), origin, name }
    }
}

/// A flag's name and value, which goes before what the file says.
pub(super) struct Flag<'a>(pub(super) &'static str, pub(super) &'a Option<String>);

/// One table of the file, whether it was written or not.
pub(super) struct Section<'a> {
    source: &'a Source,
    vocabulary: &'static Vocabulary,
    table: Option<&'a DeTable<'a>>,
    /// Where the table begins, in bytes.
    offset: usize,
    /// Where the values that were right came from.
    spots: BTreeMap<&'static str, Spot>,
    wrong: BTreeSet<&'static str>,
    mistakes: Mistakes,
}

impl<'a> Section<'a> {
    pub(super) fn new(
        source: &'a Source,
        vocabulary: &'static Vocabulary,
        table: Option<&'a DeTable<'a>>,
        offset: usize,
    ) -> Self {
        let (spots, wrong, mistakes) = Default::default();
        Self { source, vocabulary, table, offset, spots, wrong, mistakes }
    }

    /// The value of `name`, if it was written and is right.
    pub(super) fn get<T>(&mut self, name: &'static str, kind: &Kind<T>) -> Option<T> {
        self.source.note(self.vocabulary.table, name, || schema::of(kind));
        let value = self.value(name)?;
        self.settle(name, self.spot(name, value), kind.take(value.get_ref()))
    }

    /// As [`get`](Self::get), with a flag's value before the file's. Both must be right.
    pub(super) fn get_flag<T>(
        &mut self,
        name: &'static str,
        kind: &Kind<T>,
        Flag(flag, value): Flag<'_>,
    ) -> Option<T> {
        let written = self.get(name, kind);
        let Some(text) = value else { return written };
        let value = DeValue::String(Cow::Borrowed(text));
        self.settle(name, Spot::flag(flag), kind.take(&value))
    }

    /// Changes `setting` to the value of `name`, if it was written and is right.
    pub(super) fn set<T>(&mut self, name: &'static str, kind: &Kind<T>, setting: &mut T) {
        if let Some(value) = self.get(name, kind) {
            *setting = value;
        }
    }

    /// As [`set`](Self::set), for a list of different values.
    pub(super) fn set_list<T: PartialEq>(
        &mut self,
        name: &'static str,
        kind: &Kind<T>,
        setting: &mut Vec<T>,
    ) {
        self.source.note(self.vocabulary.table, name, || schema::of_list(kind));
        let Some(value) = self.value(name) else { return };
        let spot = self.spot(name, value);
        let Some(array) = value.get_ref().as_array() else {
            let (expected, found) = (kind.expected, found(value.get_ref()));
            self.mistake(name, spot, format!("expected a list, each {expected}, found {found}"));
            return;
        };
        let mut list = Vec::new();
        for item in array.iter() {
            match kind.take(item.get_ref()) {
                Ok(value) if list.contains(&value) => {
                    let text = format!("{} stands here twice", found(item.get_ref()));
                    self.mistake(name, self.spot(name, item), text);
                }
                Ok(value) => list.push(value),
                Err(text) => self.mistake(name, self.spot(name, item), text),
            }
        }
        if list.len() == array.len() {
            self.settle(name, spot, Ok(()));
            *setting = list;
        }
    }

    /// As [`set_list`](Self::set_list), for a list that makes no sense when empty.
    pub(super) fn set_filled_list<T: PartialEq>(
        &mut self,
        name: &'static str,
        kind: &Kind<T>,
        setting: &mut Vec<T>,
    ) {
        match self.value(name) {
            Some(value) if value.get_ref().as_array().is_some_and(|array| array.is_empty()) => {
                let text = format!("expected a list of at least one, each {}", kind.expected);
                self.mistake(name, self.spot(name, value), text);
            }
            _ => self.set_list(name, kind, setting),
        }
    }

    /// The table `[name]` within this one.
    pub(super) fn child(&mut self, vocabulary: &'static Vocabulary) -> Section<'a> {
        let name = vocabulary.table;
        let Some(value) = self.value(name) else {
            return Section::new(self.source, vocabulary, None, self.offset);
        };
        let table = value.get_ref().as_table();
        if table.is_none() {
            let text = format!("expected a table: write [{name}] on a line of its own");
            self.mistake(name, self.spot(name, value), text);
        }
        Section::new(self.source, vocabulary, table, value.span().start)
    }

    /// The tables `[[name]]` within this one.
    pub(super) fn children(&mut self, vocabulary: &'static Vocabulary) -> Vec<Section<'a>> {
        let name = vocabulary.table;
        let Some(value) = self.value(name) else { return Vec::new() };
        let items = match value.get_ref() {
            DeValue::Array(array) => array.iter().collect(),
            _ => vec![value],
        };
        let mut sections = Vec::new();
        for item in items {
            let table = item.get_ref().as_table();
            if table.is_none() || value.get_ref().is_table() {
                let text = format!("expected a list of tables: write [[{name}]] above each");
                self.mistake(name, self.spot(name, item), text);
            }
            sections.push(Section::new(self.source, vocabulary, table, item.span().start));
        }
        sections
    }

    /// Whether the table stands in the file.
    pub(super) fn is_written(&self) -> bool {
        self.table.is_some()
    }

    /// Takes over from `base` which settings are in doubt, because their values were wrong there.
    pub(super) fn inherit(&mut self, base: &Section<'_>) {
        self.wrong.extend(&base.wrong);
    }

    pub(super) fn is_wrong(&self, name: &str) -> bool {
        self.wrong.contains(name)
    }

    /// The spot to name when settings do not fit together: the last of them in this table. None
    /// where this table has none of them, or where one is wrong by itself.
    pub(super) fn blame(&self, names: &[&'static str]) -> Option<Spot> {
        if names.iter().any(|name| self.is_wrong(name)) {
            return None;
        }
        names.iter().filter_map(|name| self.spots.get(name)).max().cloned()
    }

    /// Notes that settings do not fit together.
    pub(super) fn clash(&mut self, names: &[&'static str], text: impl Into<String>) {
        if let Some(spot) = self.blame(names) {
            self.mistakes.add(spot, text);
        }
    }

    /// Notes that something is missing from this table.
    pub(super) fn missing(&mut self, name: &'static str, text: &str) {
        // It may stand on a line that is not TOML.
        if self.is_wrong(name) || DeTable::parse(&self.source.text).is_err() {
            return;
        }
        // Without a file, only a flag can have been forgotten.
        let spot = match self.source.path {
            Some(_) => self.source.spot(self.offset, Some(self.full_name(name))),
            None => Spot::flag(&format!("--{name}")),
        };
        self.mistake(name, spot, text.to_owned());
    }

    /// Hands over the mistakes, with the names that nobody knows.
    pub(super) fn finish(mut self, mistakes: &mut Mistakes) {
        for name in self.table.into_iter().flat_map(DeTable::keys) {
            if !self.vocabulary.contains(name.get_ref()) {
                let spot = self.source.spot(name.span().start, None);
                self.mistakes.add(spot, self.vocabulary.complaint(name.get_ref()));
            }
        }
        mistakes.append(self.mistakes);
    }

    fn settle<T>(&mut self, name: &'static str, spot: Spot, value: Result<T, String>) -> Option<T> {
        match value {
            Ok(value) => {
                self.wrong.remove(name);
                self.spots.insert(name, spot);
                Some(value)
            }
            Err(text) => {
                self.mistake(name, spot, text);
                None
            }
        }
    }

    fn mistake(&mut self, name: &'static str, spot: Spot, text: String) {
        self.wrong.insert(name);
        self.mistakes.add(spot, text);
    }

    fn value(&self, name: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        debug_assert!(self.vocabulary.contains(name), "{name} is missing from names.rs");
        self.table?.get(name)
    }

    fn spot<T>(&self, name: &str, value: &Spanned<T>) -> Spot {
        self.source.spot(value.span().start, Some(self.full_name(name)))
    }

    fn full_name(&self, name: &str) -> String {
        match self.vocabulary.table {
            "" => name.to_owned(),
            table => format!("{table}.{name}"),
        }
    }
}
