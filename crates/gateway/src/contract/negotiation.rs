//! Which form of the page a request gets, by its `Accept` (RFC 9110, 12.5.1).

use http::HeaderMap;
use http::header::ACCEPT;

use super::Form;

/// What can be had, the most wished for first. A client that takes everything is most often `curl`,
/// whose reader sits at a terminal: it gets Markdown. Browsers name HTML before everything else.
const OFFERS: [Offer; 6] = [
    Offer { kind: "text", subtype: "markdown", form: Form::Markdown, text: true },
    Offer { kind: "text", subtype: "plain", form: Form::Markdown, text: true },
    Offer { kind: "text", subtype: "html", form: Form::Html, text: true },
    Offer { kind: "application", subtype: "json", form: Form::Json, text: false },
    Offer {
        kind: "application",
        subtype: "vnd.oai.openapi+json",
        form: Form::Openapi,
        text: false,
    },
    Offer { kind: "application", subtype: "openapi+json", form: Form::Openapi, text: false },
];

/// A form under one of its media types.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Offer {
    kind: &'static str,
    subtype: &'static str,
    pub(super) form: Form,
    text: bool,
}

impl Offer {
    fn media_type(&self) -> String {
        format!("{}/{}", self.kind, self.subtype)
    }

    /// What `Content-Type` says.
    pub(super) fn content_type(&self) -> String {
        let charset = if self.text { "; charset=utf-8" } else { "" };
        self.media_type() + charset
    }
}

/// The media type by which a form is asked for.
pub(super) fn media_type(form: Form) -> String {
    let offer = OFFERS.iter().find(|offer| offer.form == form);
    offer.expect("every form is on offer").media_type()
}

/// The best offer. Where none fits, the first: a page in another form says more than a 406.
pub(super) fn choose(headers: &HeaderMap) -> &'static Offer {
    let lines: Vec<&str> =
        headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let ranges: Vec<Range<'_>> =
        lines.iter().flat_map(|line| line.split(',')).filter_map(Range::read).collect();
    let mut best: Option<(Wish, &Offer)> = None;
    for offer in &OFFERS {
        let wish = Wish::of(&ranges, offer);
        let better = |(found, _): &(Wish, &Offer)| wish > *found;
        if wish.weight > 0 && best.as_ref().is_none_or(better) {
            best = Some((wish, offer));
        }
    }
    best.map_or(&OFFERS[0], |(_, offer)| offer)
}

/// A media range and how much it is wished for, in thousandths.
struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    weight: u16,
}

impl<'a> Range<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let weight = parts
            .filter_map(|parameter| parameter.split_once('='))
            .find(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
            .and_then(|(_, value)| value.trim().parse::<f32>().ok())
            .map_or(1000, |weight| (weight.clamp(0.0, 1.0) * 1000.0) as u16);
        Some(Self { kind, subtype, weight })
    }

    /// How closely the range names the offer; none where it does not.
    fn closeness(&self, offer: &Offer) -> Option<u8> {
        let same = |range: &str, offer: &str| range.eq_ignore_ascii_case(offer);
        match (self.kind, self.subtype) {
            ("*", "*") => Some(0),
            (kind, "*") if same(kind, offer.kind) => Some(1),
            (kind, subtype) if same(kind, offer.kind) && same(subtype, offer.subtype) => Some(2),
            _ => None,
        }
    }
}

/// How much an offer is wished for: by its weight; then by how closely it was named; then by who
/// was named first, because that is what people mean by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    weight: u16,
    closeness: u8,
    place: std::cmp::Reverse<usize>,
}

impl Wish {
    /// The closest range counts, whatever the others say. Without any, everything is welcome.
    fn of(ranges: &[Range<'_>], offer: &Offer) -> Self {
        let everything = Range { kind: "*", subtype: "*", weight: 1000 };
        let ranges = if ranges.is_empty() { std::slice::from_ref(&everything) } else { ranges };
        let wishes = ranges.iter().enumerate().filter_map(|(place, range)| {
            let place = std::cmp::Reverse(place);
            Some(Self { weight: range.weight, closeness: range.closeness(offer)?, place })
        });
        let closest = wishes.max_by_key(|wish| (wish.closeness, wish.place));
        closest.unwrap_or(Self { weight: 0, closeness: 0, place: std::cmp::Reverse(0) })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn chosen(lines: &[&'static str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT, HeaderValue::from_static(line));
        }
        choose(&headers).content_type()
    }

    #[test]
    fn each_client_gets_what_it_can_read_best() {
        const MARKDOWN: &str = "text/markdown; charset=utf-8";
        const PLAIN: &str = "text/plain; charset=utf-8";
        const HTML: &str = "text/html; charset=utf-8";
        const JSON: &str = "application/json";
        const OPENAPI: &str = "application/vnd.oai.openapi+json";
        let table: [(&[&str], &str); 21] = [
            (&[], MARKDOWN),
            (&[""], MARKDOWN),
            (&["*/*"], MARKDOWN),
            (&["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"], HTML),
            (&["text/html"], HTML),
            (&["Text/HTML;level=1"], HTML),
            (&["text/markdown"], MARKDOWN),
            (&["text/plain"], PLAIN),
            (&["text/*"], MARKDOWN),
            (&["application/json"], JSON),
            (&["application/json, text/plain, */*"], JSON),
            (&["text/plain, application/json"], PLAIN),
            (&["text/html;q=0.5, application/json;q=0.9"], JSON),
            (&["text/html; q=0.5", "application/json; Q=0.4"], HTML),
            (&["application/*"], JSON),
            (&["application/vnd.oai.openapi+json;version=3.1"], OPENAPI),
            (&["application/openapi+json"], "application/openapi+json"),
            (&["*/*, text/markdown;q=0, text/plain;q=0"], HTML),
            (&["image/png"], MARKDOWN),
            (&["*/*;q=0"], MARKDOWN),
            (&["nonsense, ;q=1, a/b/c;q=x"], MARKDOWN),
        ];
        for (accept, expected) in table {
            assert_eq!(chosen(accept), expected, "{accept:?}");
        }
    }
}
