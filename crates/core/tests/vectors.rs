//! The published vectors, as committed in `vectors/`, are what this build computes; and an
//! implementation written from `vectors/README.md` alone computes the same.
//!
//! A difference means that other languages no longer agree with us. To add a vector, write it into
//! its file without its result, and fill that in with
//! `SELFSAME_WRITE_VECTORS=1 cargo test -p selfsame-core --test vectors`.

use std::borrow::Cow;
use std::fmt::Debug;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use selfsame_core::{
    Birth, CountedHeader, Fingerprint, FingerprintForm, FingerprintRules, InvalidKey, JsonPointer,
    Key, RequestFacts, Secret,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// One file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct File<T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    vectors: Vec<T>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyVector {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_hex: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    strict: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    len: Option<usize>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FingerprintVector {
    name: String,
    request: RequestOf,
    #[serde(default, skip_serializing_if = "is_default")]
    rules: RulesOf,
    #[serde(default)]
    plain: String,
    #[serde(default)]
    keyed: String,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestOf {
    method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    authority: Option<String>,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_encoding: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    headers: Vec<(String, Option<String>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_hex: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesOf {
    #[serde(skip_serializing_if = "Option::is_none")]
    form: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    ignore: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unpacked_bytes_max: Option<usize>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DerivedVector {
    name: String,
    birth: String,
    phase: String,
    #[serde(default)]
    key: String,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

/// That `computed` gives back every vector of a file; or, when told so, writes what it gives.
fn check<T>(name: &str, computed: impl Fn(&File<T>, &T) -> T)
where
    T: Clone + PartialEq + Debug + Serialize + DeserializeOwned,
{
    let path = folder().join(name);
    let text = fs::read_to_string(&path).expect("the file is committed");
    let file: File<T> = serde_json::from_str(&text).expect("the file has its form");
    let vectors = file.vectors.iter().map(|vector| computed(&file, vector)).collect();
    let again = File { secret: file.secret.clone(), vectors };
    if env::var_os("SELFSAME_WRITE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(&again).expect("it serialises");
        return fs::write(&path, text + "\n").expect("the folder can be written");
    }
    for (committed, computed) in file.vectors.iter().zip(&again.vectors) {
        assert_eq!(committed, computed, "{name}");
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).expect("ASCII"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

fn in_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A character for each byte.
fn octets(text: &str) -> Vec<u8> {
    text.chars().map(|character| u8::try_from(character).expect("one byte")).collect()
}

fn read_key(vector: &KeyVector) -> KeyVector {
    let raw = match (&vector.raw, &vector.raw_hex) {
        (Some(text), None) => octets(text),
        (None, Some(digits)) => hex(digits),
        _ => panic!("{}: either raw or raw_hex", vector.name),
    };
    let read = if vector.strict { Key::parse_strict(&raw) } else { Key::parse(&raw) };
    let none = KeyVector { key: None, error: None, at: None, len: None, ..vector.clone() };
    let error = |name: &str| Some(name.to_owned());
    match read {
        Ok(key) => KeyVector { key: Some(key.as_str().to_owned()), ..none },
        Err(InvalidKey::Empty) => KeyVector { error: error("empty"), ..none },
        Err(InvalidKey::TooLong { len }) => {
            KeyVector { error: error("too-long"), len: Some(len), ..none }
        }
        Err(InvalidKey::BadByte { at }) => {
            KeyVector { error: error("bad-byte"), at: Some(at), ..none }
        }
        Err(InvalidKey::BadString) => KeyVector { error: error("bad-string"), ..none },
        Err(InvalidKey::NotQuoted) => KeyVector { error: error("not-quoted"), ..none },
        Err(other) => panic!("no header value is wrong in that way: {other}"),
    }
}

fn fingerprint(vector: &FingerprintVector, secret: Option<&Secret>) -> String {
    let FingerprintVector { request, rules, .. } = vector;
    let bytes = |text: &Option<String>| text.as_deref().map(octets);
    let headers = request.headers.iter();
    let headers: Vec<CountedHeader<'_>> =
        headers.map(|(name, value)| (name.as_str(), bytes(value).map(Cow::Owned))).collect();
    let body = match (&request.body, &request.body_hex) {
        (Some(text), None) => text.clone().into_bytes(),
        (None, Some(digits)) => hex(digits),
        _ => panic!("{}: either body or body_hex", vector.name),
    };
    let pointer = |text: &String| JsonPointer::parse(text).expect("a pointer");
    let ignore: Vec<JsonPointer> = rules.ignore.iter().map(pointer).collect();
    let (authority, content_type) = (bytes(&request.authority), bytes(&request.content_type));
    let content_encoding = bytes(&request.content_encoding);
    let facts = RequestFacts {
        method: &request.method.parse().expect("a method"),
        authority: authority.as_deref(),
        path: &request.path,
        query: request.query.as_deref(),
        content_type: content_type.as_deref(),
        content_encoding: content_encoding.as_deref(),
        headers: &headers,
        body: &body,
    };
    let form = match rules.form.as_deref() {
        None => FingerprintForm::Canonical,
        Some("raw") => FingerprintForm::Raw,
        Some(other) => panic!("{}: {other} is no form", vector.name),
    };
    let unpacked_bytes_max = rules.unpacked_bytes_max.unwrap_or(1 << 20);
    let rules = FingerprintRules { form, ignore: &ignore, unpacked_bytes_max };
    in_hex(&Fingerprint::of(&facts, &rules, secret).to_bytes())
}

#[test]
fn keys_are_read_as_published() {
    check("keys.json", |_, vector| read_key(vector));
}

#[test]
fn fingerprints_are_as_published() {
    check("fingerprints.json", |file, vector: &FingerprintVector| {
        let secret = file.secret.as_deref().expect("the file names a secret");
        let secret = Secret::from_bytes(&hex(secret));
        FingerprintVector {
            plain: fingerprint(vector, None),
            keyed: fingerprint(vector, Some(&secret)),
            ..vector.clone()
        }
    });
}

#[test]
fn derived_keys_are_as_published() {
    check("derived-keys.json", |_, vector: &DerivedVector| {
        let birth = Birth::from_bytes(hex(&vector.birth).try_into().expect("16 bytes"));
        let key = birth.derived_key(&vector.phase).as_str().to_owned();
        DerivedVector { key, ..vector.clone() }
    });
}

/// The vectors tell apart what they are there to tell apart: each names those it equals.
#[test]
fn vectors_that_are_called_the_same_are() {
    let text = fs::read_to_string(folder().join("fingerprints.json")).expect("committed");
    let file: File<FingerprintVector> = serde_json::from_str(&text).expect("valid");
    let group = |vector: &FingerprintVector| vector.name.split(':').next().map(str::to_owned);
    for (index, one) in file.vectors.iter().enumerate() {
        for other in &file.vectors[index + 1..] {
            let is_same = group(one) == group(other);
            assert_eq!(is_same, one.plain == other.plain, "{}, {}", one.name, other.name);
            assert_eq!(is_same, one.keyed == other.keyed, "{}, {}", one.name, other.name);
        }
    }
}

#[test]
fn an_implementation_in_another_language_agrees() {
    let run = Command::new("python3").arg(folder().join("check.py")).output();
    let run = run.expect("python3 is installed (in Debian it is in the package python3)");
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}{err}");
}
