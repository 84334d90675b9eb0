//! [`Outline`]: short digests of what a request is made of. Beside a fingerprint, which says that two
//! requests differ, they tell in what.

use std::borrow::Cow;

use super::content_type::ContentType;
use super::{Content, FingerprintForm, FingerprintRules, RequestFacts, json, read};
use crate::digest::Digester;
use crate::{RecordId, Secret};

const VERSION: u8 = 2;
/// What a request has beside its body, in the order of their digests.
const PARTS: [&str; 4] = ["method", "path", "query", "content type"];
/// Stands for the number of members where they are not told apart.
const NO_MEMBERS: u8 = u8::MAX;
/// A guess that hits one of these by chance names a member too few; nobody is told a value.
const SHORT: usize = 4;

type Short = [u8; SHORT];

/// What a request is made of, for the one record whose key it came with: nothing can be told by it of
/// another record's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    parts: [Short; PARTS.len()],
    /// None where the body is no JSON object, or has too many.
    members: Option<Vec<Member>>,
}

/// A top-level member of a JSON body.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    /// As canonical JSON has it, in quotes.
    written_name: Vec<u8>,
    name: Short,
    value: Short,
}

/// In what a request differs from the first one with its key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Difference {
    /// Which of its method, path, query and content type are others.
    pub parts: Vec<&'static str>,
    /// The members of its JSON body that are others now, or were not there, by their names.
    pub members: Vec<String>,
    /// How many members the first body had besides. Their names are not known any more.
    pub missing: usize,
}

impl Outline {
    /// The most members of a body that are told apart.
    pub const MEMBERS_MAX: usize = 64;

    /// The outline of a request to this record, with the members of its body.
    pub fn of(
        id: &RecordId,
        facts: &RequestFacts<'_>,
        rules: &FingerprintRules<'_>,
        secret: &Secret,
    ) -> Self {
        let member = |(name, value): (&[u8], &[u8])| Member {
            written_name: name.to_vec(),
            name: short(id, secret, "outline/name", &[name]),
            value: short(id, secret, "outline/value", &[name, value]),
        };
        let members = read(facts, rules, |content, _, _| {
            let members = match content {
                Content::Json(text) => json::members(text),
                Content::Raw(_) | Content::Form(_) => None,
            };
            let members = members.filter(|members| members.len() <= Self::MEMBERS_MAX);
            members.map(|members| members.into_iter().map(member).collect())
        });
        Self { members, ..Self::of_parts(id, facts, rules, secret) }
    }

    /// The outline of a request to this record without its body, which is not looked at.
    pub fn of_parts(
        id: &RecordId,
        facts: &RequestFacts<'_>,
        rules: &FingerprintRules<'_>,
        secret: &Secret,
    ) -> Self {
        let content_type = content_type(facts, rules);
        let parts = [
            Some(facts.method.as_str().as_bytes()),
            Some(facts.path.as_bytes()),
            facts.query.map(str::as_bytes),
            content_type.as_deref(),
        ];
        // Every first claim pays for this: one HMAC hides all parts, each under bytes of its own that
        // no other record has.
        let mask = secret.tag("outline/parts", &[id.as_bytes()]);
        let (mask, _) = mask.as_chunks::<SHORT>();
        let part = |at: usize| {
            let hash = parts[at].map_or(0, hash).to_be_bytes();
            std::array::from_fn(|byte| hash[byte] ^ mask[at][byte])
        };
        Self { parts: std::array::from_fn(part), members: None }
    }

    /// The bytes a record keeps: the version, a digest of each part, the number of members, and two
    /// digests of each.
    pub fn to_bytes(&self) -> Vec<u8> {
        let members = self.members.as_deref().unwrap_or_default();
        let count = self.members.as_ref().map_or(NO_MEMBERS, |members| {
            u8::try_from(members.len()).expect("they are not too many")
        });
        let mut bytes = Vec::with_capacity(2 + SHORT * (PARTS.len() + 2 * members.len()));
        bytes.push(VERSION);
        bytes.extend_from_slice(self.parts.as_flattened());
        bytes.push(count);
        for member in members {
            bytes.extend_from_slice(&member.name);
            bytes.extend_from_slice(&member.value);
        }
        bytes
    }

    /// In what this request differs from the one whose bytes were kept, as far as that can be told.
    pub fn differs_from(&self, kept: &[u8]) -> Option<Difference> {
        let (&version, rest) = kept.split_first()?;
        let (parts, rest) = rest.split_at_checked(SHORT * PARTS.len())?;
        let (&count, members) = rest.split_first()?;
        if version != VERSION {
            return None;
        }
        let parts = PARTS.iter().zip(parts.chunks(SHORT)).zip(&self.parts);
        let parts = parts.filter(|((_, kept), now)| kept != now).map(|((name, _), _)| *name);
        let mut difference = Difference { parts: parts.collect(), ..Difference::default() };
        if let Some(now) = self.members.as_ref().filter(|_| count != NO_MEMBERS) {
            let kept: Vec<_> = members.chunks_exact(2 * SHORT).map(|m| m.split_at(SHORT)).collect();
            let was = |member: &Member| kept.iter().find(|(name, _)| *name == member.name);
            let differs = |member: &&Member| was(member).is_none_or(|was| was.1 != member.value);
            difference.members =
                now.iter().filter(differs).filter_map(Member::spoken_name).collect();
            let is_here = |name: &[u8]| now.iter().any(|member| member.name == *name);
            difference.missing = kept.iter().filter(|(name, _)| !is_here(name)).count();
        }
        Some(difference).filter(|found| *found != Difference::default())
    }
}

/// The content type as far as it counts, whatever the body is: without a boundary, which each
/// retry may choose anew.
fn content_type<'a>(
    facts: &RequestFacts<'a>,
    rules: &FingerprintRules<'_>,
) -> Option<Cow<'a, [u8]>> {
    let sent = facts.content_type?;
    let kind = match rules.form {
        FingerprintForm::Raw => None,
        FingerprintForm::Canonical => ContentType::read(sent),
    };
    Some(kind.map_or(Cow::Borrowed(sent), |kind| kind.text(Some("boundary"))))
}

/// A quick hash (FNV-1a) that is not zero. Whoever makes two parts collide is told of one too few.
fn hash(bytes: &[u8]) -> u32 {
    let hash = bytes
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

fn short(id: &RecordId, secret: &Secret, purpose: &str, fields: &[&[u8]]) -> Short {
    let mut digester = Digester::new(Some(secret), purpose);
    digester.field(id.as_bytes());
    for field in fields {
        digester.field(field);
    }
    let [a, b, c, d, ..] = digester.finish();
    [a, b, c, d]
}

impl Member {
    fn spoken_name(&self) -> Option<String> {
        serde_json::from_slice(&self.written_name).ok()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::{FingerprintForm, JsonPointer};

    const JSON: &[u8] = b"application/json";
    const BODY: &str = r#"{"amount": 20, "currency": "eur", "to": {"iban": 1}, "sent_at": 5}"#;

    fn facts<'a>(body: &'a str) -> RequestFacts<'a> {
        RequestFacts {
            method: &Method::POST,
            authority: None,
            path: "/payments",
            query: None,
            content_type: Some(JSON),
            content_encoding: None,
            headers: &[],
            body: body.as_bytes(),
        }
    }

    fn outline(facts: &RequestFacts<'_>) -> Outline {
        outline_at(1, facts, FingerprintForm::Canonical)
    }

    fn outline_at(id: u8, facts: &RequestFacts<'_>, form: FingerprintForm) -> Outline {
        let ignore = ["/sent_at", "/to/trace"].map(|text| JsonPointer::parse(text).expect("valid"));
        let rules = FingerprintRules { form, ignore: &ignore, unpacked_bytes_max: 1 << 20 };
        let id = RecordId::from_bytes([id; RecordId::LEN]);
        Outline::of(&id, facts, &rules, &Secret::from_bytes(&[7; Secret::LEN]))
    }

    fn difference(first: &RequestFacts<'_>, second: &RequestFacts<'_>) -> Option<Difference> {
        outline(second).differs_from(&outline(first).to_bytes())
    }

    fn members(names: &[&str], missing: usize) -> Option<Difference> {
        let members = names.iter().map(ToString::to_string).collect();
        Some(Difference { members, missing, ..Difference::default() })
    }

    #[test]
    fn members_that_differ_are_named_and_missing_ones_counted() {
        let table = [
            (r#"{"currency":"eur","amount":20,"to":{"iban":1}}"#, None),
            (r#"{"amount":20,"currency":"eur","to":{"iban":1,"trace":9},"sent_at":6}"#, None),
            (r#"{"amount":21,"currency":"eur","to":{"iban":1}}"#, members(&["amount"], 0)),
            (
                r#"{"amount":20.0,"currency":"usd","to":{"iban":2}}"#,
                members(&["amount", "currency", "to"], 0),
            ),
            (r#"{"amount":20,"to":{"iban":1}}"#, members(&[], 1)),
            (
                r#"{"amount":20,"currency":"eur","to":{"iban":1},"a\"\u00e9":1}"#,
                members(&["a\"é"], 0),
            ),
            ("{}", members(&[], 3)),
        ];
        for (second, expected) in table {
            assert_eq!(difference(&facts(BODY), &facts(second)), expected, "{second}");
        }
    }

    #[test]
    fn parts_that_differ_are_named() {
        let first = RequestFacts { query: Some("a=1"), ..facts(BODY) };
        let second = RequestFacts {
            method: &Method::PATCH,
            path: "/refunds",
            query: None,
            content_type: Some(b"application/json; charset=utf-8"),
            ..facts(BODY)
        };
        let parts = vec!["method", "path", "query"];
        assert_eq!(
            difference(&first, &second),
            Some(Difference { parts, ..Difference::default() })
        );
        let plain = RequestFacts { content_type: Some(b"text/plain"), ..first };
        let parts = vec!["content type"];
        assert_eq!(difference(&first, &plain), Some(Difference { parts, ..Difference::default() }));
    }

    #[test]
    fn parts_are_told_without_the_body() {
        let of_parts = |facts: &RequestFacts<'_>| {
            let form = FingerprintForm::Canonical;
            let rules = FingerprintRules { form, ignore: &[], unpacked_bytes_max: 1 << 20 };
            let id = RecordId::from_bytes([1; RecordId::LEN]);
            Outline::of_parts(&id, facts, &rules, &Secret::from_bytes(&[7; Secret::LEN]))
        };
        let first = facts(BODY);
        let kept = of_parts(&first).to_bytes();
        assert_eq!(kept.len(), 2 + SHORT * PARTS.len());
        assert_eq!(of_parts(&facts("{}")).differs_from(&kept), None);
        let other = RequestFacts { path: "/refunds", content_type: None, ..first };
        for now in [of_parts(&other), outline(&other)] {
            let parts = vec!["path", "content type"];
            let expected = Difference { parts, ..Difference::default() };
            assert_eq!(now.differs_from(&kept), Some(expected));
        }
        // With and without members they say the same of the parts.
        assert_eq!(of_parts(&first).differs_from(&outline(&first).to_bytes()), None);
        let form = |boundary| RequestFacts { content_type: Some(boundary), ..facts("no form") };
        let kept = outline(&form(b"multipart/form-data; boundary=a")).to_bytes();
        let now = of_parts(&form(b"multipart/form-data; boundary=b"));
        assert_eq!(now.differs_from(&kept), None, "what differs is in the body");
    }

    #[test]
    fn what_is_no_object_has_no_members() {
        let many: Vec<_> = (0..=Outline::MEMBERS_MAX).map(|at| format!("\"{at}\":1")).collect();
        let many = format!("{{{}}}", many.join(","));
        for second in ["[1]", "7", "{\"a\":1,\"a\":2}", "no JSON", &many] {
            assert_eq!(difference(&facts(BODY), &facts(second)), None, "{second}");
            assert_eq!(difference(&facts(second), &facts(BODY)), None, "{second}");
        }
        let raw = |body| outline_at(1, &facts(body), FingerprintForm::Raw);
        assert_eq!(raw(BODY).differs_from(&raw("{}").to_bytes()), None);
        let form = RequestFacts { content_type: Some(b"text/plain"), ..facts(BODY) };
        assert_eq!(difference(&form, &RequestFacts { body: b"{}", ..form }), None);
    }

    #[test]
    fn nothing_is_told_of_another_records_request() {
        let [one, other] =
            [1, 2].map(|id| outline_at(id, &facts(BODY), FingerprintForm::Canonical));
        let (one, other) = (one.to_bytes(), other.to_bytes());
        assert_eq!(one.len(), 1 + SHORT * PARTS.len() + 1 + 3 * 2 * SHORT);
        let digests = |bytes: &[u8]| -> Vec<Short> {
            let shorts = bytes[1..17].chunks(SHORT).chain(bytes[18..].chunks(SHORT));
            shorts.filter(|short| *short != [0; SHORT]).map(|s| s.try_into().expect("4")).collect()
        };
        assert!(digests(&one).iter().all(|short| !digests(&other).contains(short)));
    }

    #[test]
    fn bytes_that_are_no_outline_tell_nothing() {
        let kept = outline(&facts(BODY)).to_bytes();
        let now = outline(&facts("{}"));
        for len in 0..18 {
            assert_eq!(now.differs_from(&kept[..len]), None, "{len}");
        }
        let later = [&[VERSION + 1], &kept[1..]].concat();
        assert_eq!(now.differs_from(&later), None);
    }
}
