//! [`DerivedKey`]: a key that is spent by its use.

use http::HeaderValue;
use selfsame_core::Key;

/// The key for the one effect of a [`call`](super::Phases::call): the same for each attempt. It can
/// be neither copied nor looked at, only used.
#[derive(Debug)]
#[must_use = "without it, whoever is called cannot know a repeated call"]
pub struct DerivedKey(Key);

impl DerivedKey {
    pub(super) fn new(key: Key) -> Self {
        Self(key)
    }

    /// The key as text; it looks like a UUID.
    pub fn into_string(self) -> String {
        self.0.as_str().to_owned()
    }
}

impl From<DerivedKey> for HeaderValue {
    fn from(key: DerivedKey) -> Self {
        HeaderValue::from_str(key.0.as_str()).expect("a key is printable")
    }
}
