//! The contract as Markdown, broken into lines that a terminal can show.

use super::document::{Block, Document, Line, Span, Table, line, text};
use super::problems::Entry;

/// How long a line may become, tables aside.
const WIDTH: usize = 90;

pub(super) fn render(document: &Document) -> String {
    let mut page = format!("# {}\n\n{}", document.title, wrapped("", &document.lead));
    for section in &document.sections {
        page.push_str(&format!("\n## {}\n", section.title));
        for block in &section.blocks {
            page.push('\n');
            page.push_str(&render_block(block));
        }
    }
    page
}

fn render_block(block: &Block) -> String {
    match block {
        Block::Paragraph(line) => wrapped("", line),
        Block::List(items) => items.iter().map(|item| wrapped("- ", item)).collect(),
        Block::Steps(items) => {
            (1..).zip(items).map(|(number, item)| wrapped(&format!("{number}. "), item)).collect()
        }
        Block::Facts(facts) => {
            facts.iter().map(|(name, line)| wrapped(&format!("- **{name}:** "), line)).collect()
        }
        Block::Table(table) => render_table(table),
        Block::Shell(commands) => format!("```sh\n{commands}```\n"),
        Block::Problem(entry, status) => problem(entry, status),
    }
}

/// The slug alone is the heading: that is what readers of Markdown make the anchor from.
fn problem(entry: &Entry, status: &str) -> String {
    let retry = match entry.retryable {
        Some(true) => "retry: yes",
        Some(false) => "retry: no",
        None => "retry: as it says",
    };
    let meaning = line("{}. {}", [text(entry.title), entry.meaning.clone()]);
    format!(
        "### {}\n\n**{status}** · {retry}\n\n{}\n{}",
        entry.slug,
        wrapped("", &meaning),
        wrapped("**To do:** ", &entry.action)
    )
}

fn render_table(table: &Table) -> String {
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = row(table.head.iter().map(|name| (*name).to_owned()).collect());
    text.push_str(&row(vec!["---".to_owned(); table.head.len()]));
    for cells in &table.rows {
        let cell = |lines: &Vec<Line>| {
            if lines.is_empty() {
                return "–".to_owned();
            }
            let lines: Vec<String> = lines.iter().map(|line| words(line).join(" ")).collect();
            // Even inside code, a bar would end the cell.
            lines.join("<br>").replace('|', "\\|")
        };
        text.push_str(&row(cells.iter().map(cell).collect()));
    }
    text
}

/// The line behind `mark`, broken between words; what follows stands under what the mark begins.
fn wrapped(mark: &str, line: &Line) -> String {
    let indent = match mark.split_once(' ') {
        Some((bullet, _)) if !bullet.starts_with('*') => " ".repeat(bullet.len() + 1),
        _ => String::new(),
    };
    let mut text = String::new();
    let mut row = mark.trim_end().to_owned();
    for word in words(line) {
        let is_full = row.chars().count() + 1 + word.chars().count() > WIDTH;
        if is_full && !row.trim().is_empty() {
            text.push_str(&row);
            text.push('\n');
            row.clone_from(&indent);
        }
        if !row.trim().is_empty() {
            row.push(' ');
        }
        row.push_str(&word);
    }
    text + &row + "\n"
}

/// What a line may be broken between: words of text, and code as a whole.
fn words(line: &Line) -> Vec<String> {
    let mut words = vec![String::new()];
    for span in &line.0 {
        match span {
            Span::Text(text) => {
                for (at, word) in text.split(' ').enumerate() {
                    if at > 0 {
                        words.push(String::new());
                    }
                    push(&mut words, word);
                }
            }
            Span::Code(text) => push(&mut words, &code(text)),
            Span::Problem(slug) => push(&mut words, &format!("[`{slug}`](#{slug})")),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn push(words: &mut [String], text: &str) {
    words.last_mut().expect("there is a first word").push_str(text);
}

/// Between as many backticks as the text does not hold.
fn code(text: &str) -> String {
    let mut fence = "`".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

#[cfg(test)]
mod tests {
    use super::super::document::code as code_line;
    use super::*;

    #[test]
    fn code_survives_backticks_and_bars() {
        assert_eq!(code("a"), "`a`");
        assert_eq!(code("a`b"), "``a`b``");
        assert_eq!(code("`a"), "`` `a ``");
        let table = Table { head: vec!["a"], rows: vec![vec![vec![code_line("x|y")]]] };
        assert_eq!(render_table(&table), "| a |\n| --- |\n| `x\\|y` |\n");
    }

    #[test]
    fn long_lines_are_broken_between_words_and_never_within_code() {
        let words = text("word ".repeat(30));
        let long = line("{} {}, the end", [words, code_line("two words")]);
        let wrapped = wrapped("- ", &long);
        assert!(wrapped.starts_with("- word word") && wrapped.contains("\n  word"), "{wrapped}");
        assert!(wrapped.lines().all(|line| line.len() <= WIDTH), "{wrapped}");
        assert!(wrapped.ends_with("`two words`, the end\n"), "{wrapped}");
    }
}
