//! The contract as a page of HTML that needs nothing else: no script, no font, no request.

use super::document::{Block, Document, Line, Section, Span, Table};
use super::problems::Entry;

/// How much code stays on one line.
const WHOLE_CHARACTERS_MAX: usize = 32;

const STYLE: &str = include_str!("style.css");

/// The page, with the service's name in its title where it is known.
pub(super) fn render(document: &Document, host: Option<&str>) -> String {
    let title = escaped(document.title);
    let service = host.map(escaped).unwrap_or_default();
    let separator = if host.is_some() { " · " } else { "" };
    let contents: String = document.sections.iter().map(entry_of_contents).collect();
    let sections: String = document.sections.iter().map(render_section).collect();
    let over = if host.is_some() { service.as_str() } else { "This API" };
    format!(
        "<!doctype html>\n\
         <html lang=\"en\">\n\
         <head>\n\
         <meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}{separator}{service}</title>\n\
         <style>\n{STYLE}</style>\n\
         </head>\n\
         <body>\n\
         <a class=\"skip\" href=\"#main\">Skip to the text</a>\n\
         <header>\n<p class=\"over\">{over}</p>\n<h1>{title}</h1>\n\
         <p class=\"lead\">{}</p>\n</header>\n\
         <nav aria-label=\"Contents\">\n<ul>\n{contents}</ul>\n</nav>\n\
         <main id=\"main\">\n{sections}</main>\n\
         </body>\n\
         </html>\n",
        inline(&document.lead)
    )
}

fn entry_of_contents(section: &Section) -> String {
    format!("<li><a href=\"#{}\">{}</a></li>\n", section.id, escaped(section.title))
}

fn render_section(section: &Section) -> String {
    let blocks: String = section.blocks.iter().map(render_block).collect();
    let (id, title) = (section.id, escaped(section.title));
    format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n\
         <h2 id=\"{id}-title\">{title}</h2>\n{blocks}</section>\n"
    )
}

fn render_block(block: &Block) -> String {
    match block {
        Block::Paragraph(line) => format!("<p>{}</p>\n", inline(line)),
        Block::List(items) => format!("<ul>\n{}</ul>\n", render_items(items)),
        Block::Steps(items) => format!("<ol>\n{}</ol>\n", render_items(items)),
        Block::Facts(facts) => {
            let fact = |(name, line): &(&str, Line)| {
                format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(name), inline(line))
            };
            format!("<dl>\n{}</dl>\n", facts.iter().map(fact).collect::<String>())
        }
        Block::Table(table) => render_table(table),
        // Long commands scroll in a box of their own, which a keyboard must reach.
        Block::Shell(commands) => format!(
            "<pre tabindex=\"0\" role=\"region\" aria-label=\"Commands for a shell\"><code>{}</code></pre>\n",
            escaped(commands)
        ),
        Block::Problem(entry, status) => problem(entry, status),
    }
}

fn render_items(items: &[Line]) -> String {
    items.iter().map(|item| format!("<li>{}</li>\n", inline(item))).collect()
}

fn problem(entry: &Entry, status: &str) -> String {
    let (class, retry) = match entry.retryable {
        Some(true) => ("yes", "retry: yes"),
        Some(false) => ("no", "retry: no"),
        None => ("ask", "retry: as it says"),
    };
    let slug = entry.slug;
    format!(
        "<article id=\"{slug}\" aria-labelledby=\"{slug}-title\">\n\
         <div>\n<h3 id=\"{slug}-title\"><a href=\"#{slug}\">{slug}</a></h3>\n\
         <p class=\"marks\"><span>{}</span> <span class=\"{class}\">{retry}</span></p>\n</div>\n\
         <div>\n<p><strong>{}.</strong> {}</p>\n\
         <p><b>To do:</b> {}</p>\n</div>\n\
         </article>\n",
        escaped(status),
        escaped(entry.title),
        inline(&entry.meaning),
        inline(&entry.action)
    )
}

/// Narrow screens show each row as a block, which takes the table's meaning from the elements: the
/// roles say it again, and each cell its column.
fn render_table(table: &Table) -> String {
    let head: String = table
        .head
        .iter()
        .map(|name| format!("<th role=\"columnheader\" scope=\"col\">{}</th>", escaped(name)))
        .collect();
    let rows: String = table.rows.iter().map(|cells| render_row(&table.head, cells)).collect();
    format!(
        "<table role=\"table\">\n\
         <thead role=\"rowgroup\"><tr role=\"row\">{head}</tr></thead>\n\
         <tbody role=\"rowgroup\">\n{rows}</tbody>\n</table>\n"
    )
}

fn render_row(head: &[&str], cells: &[Vec<Line>]) -> String {
    let mut row = String::new();
    for (at, (name, lines)) in head.iter().zip(cells).enumerate() {
        let cell = match &lines[..] {
            [] => "–".to_owned(),
            [only] => inline(only),
            several => format!("<ul>\n{}</ul>", render_items(several)),
        };
        row.push_str(&match at {
            0 => format!("<th role=\"rowheader\" scope=\"row\">{cell}</th>"),
            // Where rows are blocks, there is no hole to be filled.
            _ if lines.is_empty() => format!("<td role=\"cell\" class=\"empty\">{cell}</td>"),
            _ => format!("<td role=\"cell\" data-column=\"{}\">{cell}</td>", escaped(name)),
        });
    }
    format!("<tr role=\"row\">{row}</tr>\n")
}

fn inline(line: &Line) -> String {
    line.0
        .iter()
        .map(|span| match span {
            Span::Text(text) => escaped(text),
            Span::Code(text) => code(text),
            Span::Problem(slug) => format!("<a href=\"#{slug}\"><code>{slug}</code></a>"),
        })
        .collect()
}

/// Code stays whole where a narrow screen can hold it; a path is broken at its slashes.
fn code(text: &str) -> String {
    match text.len() <= WHOLE_CHARACTERS_MAX && !text.contains('/') {
        true => format!("<code>{}</code>", escaped(text)),
        false => {
            format!("<code class=\"long\">{}</code>", escaped(text).replace('/', "<wbr>/"))
        }
    }
}

/// As text, or as an attribute in quotes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}
