//! [`JsonPointer`]: a place in a JSON text (RFC 6901).

mod seek;

use crate::fingerprint::write_character;

pub(crate) use seek::Found;

/// A place in a JSON text, below its root, as RFC 6901 writes it: `/meta/sent_at`, `/items/0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPointer {
    text: Box<str>,
    steps: Vec<Step>,
}

/// One step down: into an object by name, into an array by number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    /// The name as canonical JSON writes it, without its quotes.
    name: Vec<u8>,
    index: Option<usize>,
}

/// Why a text is not a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPointer {
    /// It points at everything there is.
    #[error("an empty pointer stands for the whole body")]
    Whole,
    /// It does not begin at the root.
    #[error("a pointer begins with a slash, like \"/meta/sent_at\"")]
    NoSlash,
    /// A `~` that is neither `~0` nor `~1`.
    #[error("in a pointer \"~\" is written \"~0\", and a \"/\" within a name \"~1\"")]
    BadEscape,
}

impl JsonPointer {
    /// Takes a pointer to anything below the root. `~1` stands for `/` within a name, `~0` for `~`.
    pub fn parse(text: &str) -> Result<Self, InvalidPointer> {
        if text.is_empty() {
            return Err(InvalidPointer::Whole);
        }
        let steps = text.strip_prefix('/').ok_or(InvalidPointer::NoSlash)?;
        let steps = steps.split('/').map(Step::parse).collect::<Result<_, _>>()?;
        Ok(Self { text: text.into(), steps })
    }

    /// The pointer as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Step {
    fn parse(text: &str) -> Result<Self, InvalidPointer> {
        let mut name = String::with_capacity(text.len());
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let meant = match character {
                '~' => match characters.next() {
                    Some('0') => '~',
                    Some('1') => '/',
                    _ => return Err(InvalidPointer::BadEscape),
                },
                other => other,
            };
            name.push(meant);
        }
        let is_index =
            text == "0" || !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        let index = if is_index { text.parse().ok() } else { None };
        Ok(Self { name: written(&name), index })
    }

    fn is_member(&self, name: &str) -> bool {
        self.name == written(name)
    }

    /// Compares the name of a member, without regard to case.
    fn is_alike(&self, name: &str) -> bool {
        let folded = |name: &str| -> String {
            name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
        };
        std::str::from_utf8(&self.name).is_ok_and(|own| {
            let written = written(name);
            std::str::from_utf8(&written).is_ok_and(|name| folded(own) == folded(name))
        })
    }
}

/// A name as canonical JSON writes it, without its quotes.
fn written(name: &str) -> Vec<u8> {
    let mut written = Vec::with_capacity(name.len());
    name.chars().for_each(|character| write_character(character, &mut written));
    written
}

/// What is left out below one place of a text: the steps that lead further down.
#[derive(Default)]
pub(crate) struct LeftOut<'p>(Vec<&'p [Step]>);

/// What becomes of one member or element.
pub(crate) enum Counts<'p> {
    /// It counts, but for what is left out below it.
    But(LeftOut<'p>),
    /// It does not count.
    Not,
}

impl<'p> LeftOut<'p> {
    pub(crate) fn at_root(pointers: &'p [JsonPointer]) -> Self {
        Self(pointers.iter().map(|pointer| &pointer.steps[..]).collect())
    }

    /// Whether the member of this name counts, which is as canonical JSON writes it.
    pub(crate) fn member(&self, name: &[u8]) -> Counts<'p> {
        self.below(|step| step.name == name)
    }

    /// Whether the element at this place counts.
    pub(crate) fn element(&self, index: usize) -> Counts<'p> {
        self.below(|step| step.index == Some(index))
    }

    fn below(&self, fits: impl Fn(&Step) -> bool) -> Counts<'p> {
        let mut below = Vec::new();
        for steps in &self.0 {
            match steps {
                [last] if fits(last) => return Counts::Not,
                [step, rest @ ..] if fits(step) => below.push(rest),
                _ => {}
            }
        }
        Counts::But(LeftOut(below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_a_slash_before_each_name() {
        for text in ["/", "/a", "/a/b", "/a~1b/~0", "//", "/0", "/é \""] {
            assert!(JsonPointer::parse(text).is_ok(), "{text}");
        }
        assert_ne!(JsonPointer::parse("/a/b"), JsonPointer::parse("/a~1b"));
        assert_ne!(JsonPointer::parse("/"), JsonPointer::parse("//"));
    }

    #[test]
    fn what_is_no_pointer_says_why() {
        use InvalidPointer::*;
        let table = [
            ("", Whole),
            ("sent_at", NoSlash),
            ("#/sent_at", NoSlash),
            ("$.sent_at", NoSlash),
            ("/a~", BadEscape),
            ("/a~2", BadEscape),
            ("/~~0", BadEscape),
        ];
        for (text, expected) in table {
            assert_eq!(JsonPointer::parse(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn only_plain_numbers_are_places_in_an_array() {
        let index = |text: &str| JsonPointer::parse(text).expect("valid").steps[0].index;
        assert_eq!((index("/0"), index("/10")), (Some(0), Some(10)));
        for text in ["/", "/-", "/01", "/00", "/+1", "/1e0", "/-1", "/99999999999999999999999"] {
            assert_eq!(index(text), None, "{text}");
        }
    }
}
