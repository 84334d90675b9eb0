//! [`Tenant`], [`Scope`] and [`RecordId`]: whose key it is, and where it counts.

use std::fmt;

use crate::{Key, Secret};

/// Whose key it is. Keys of different tenants never meet.
#[derive(Clone)]
pub struct Tenant {
    /// Where it was found, and behind that what was found there.
    found: Box<[u8]>,
    source_len: usize,
    name: Option<Box<str>>,
}

/// Where the tenants come from that callers have in common.
const ANONYMOUS: &str = "anonymous";
const EVERYONE: &str = "none";

impl Tenant {
    /// The tenant that all callers without a credential share.
    pub fn anonymous() -> Self {
        Self::named(ANONYMOUS, "anonymous")
    }

    /// A tenant known by something secret that came from `source`: only its HMAC is kept.
    pub fn credential(source: &str, credential: &[u8]) -> Self {
        let found = [source.as_bytes(), credential].concat().into();
        Self { found, source_len: source.len(), name: None }
    }

    /// A tenant whose name, from `source`, may be kept and shown.
    pub fn named(source: &str, name: &str) -> Self {
        Self { name: Some(name.into()), ..Self::credential(source, name.as_bytes()) }
    }

    /// The tenant that all callers are, where they are not told apart.
    pub fn everyone() -> Self {
        Self::named(EVERYONE, "everyone")
    }

    /// Whether callers who do not know of each other have it in common.
    pub fn is_shared(&self) -> bool {
        let source = &self.found[..self.source_len];
        [ANONYMOUS, EVERYONE].iter().any(|shared| shared.as_bytes() == source)
    }

    /// The name people see, where there is one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// What stands for this tenant in the store.
    pub fn tag(&self, secret: &Secret) -> TenantTag {
        let (source, value) = self.found.split_at(self.source_len);
        let digest = secret.tag("tenant", &[source, value]);
        let mut tag = [0; TenantTag::LEN];
        tag.copy_from_slice(&digest[..TenantTag::LEN]);
        TenantTag(tag)
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value may be a credential: only its source is told.
        write!(f, "Tenant({})", self.found[..self.source_len].escape_ascii())
    }
}

/// A tenant as the store keeps it: an HMAC under the installation's secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TenantTag(pub(crate) [u8; TenantTag::LEN]);

impl TenantTag {
    /// How many bytes a tag has.
    pub const LEN: usize = 16;

    /// The tag that is written so, in hexadecimal.
    pub fn parse(text: &str) -> Option<Self> {
        from_hex(text).map(Self)
    }

    /// The tag a store kept.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes a store keeps.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for TenantTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for TenantTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TenantTag({})", hex(&self.0))
    }
}

/// Where a key counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// One key space for the tenant: using a key on another endpoint is an error.
    Tenant,
    /// A key space for each method and route of the tenant.
    Endpoint {
        /// The request's method.
        method: http::Method,
        /// The route as written in the configuration.
        route: String,
    },
    /// A key space for each function of the tenant.
    Function {
        /// What the function is called.
        name: String,
    },
}

/// The identity of a record: a keyed hash of tenant, scope and key. All that a store sees.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId([u8; RecordId::LEN]);

impl RecordId {
    /// How many bytes an id has.
    pub const LEN: usize = 32;

    /// The id of `key`, as used by `tenant` within `scope`.
    pub fn derive(secret: &Secret, tenant: TenantTag, scope: &Scope, key: &Key) -> Self {
        let key = key.as_str().as_bytes();
        Self(match scope {
            Scope::Tenant => secret.tag("record/tenant", &[&tenant.0, key]),
            Scope::Endpoint { method, route } => secret.tag(
                "record/endpoint",
                &[&tenant.0, method.as_str().as_bytes(), route.as_bytes(), key],
            ),
            Scope::Function { name } => {
                secret.tag("record/function", &[&tenant.0, name.as_bytes(), key])
            }
        })
    }

    /// The id under which the same key is only observed: what is recorded there is never met by
    /// a request that is protected.
    #[must_use]
    pub fn observed(&self, secret: &Secret) -> Self {
        Self(secret.tag("record/observed", &[&self.0]))
    }

    /// The id that is written so, in hexadecimal.
    pub fn parse(text: &str) -> Option<Self> {
        from_hex(text).map(Self)
    }

    /// The id a store kept.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes a store keeps.
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// The first characters, as logs show them and `keys show` takes them.
    pub fn short(&self) -> String {
        hex(&self.0[..6])
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({})", self.short())
    }
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(tenant: &Tenant, scope: &Scope, key: &str) -> RecordId {
        let secret = Secret::from_bytes(&[7; Secret::LEN]);
        let key = Key::parse(key.as_bytes()).expect("valid");
        RecordId::derive(&secret, tenant.tag(&secret), scope, &key)
    }

    #[test]
    fn separators_cannot_move_between_tenant_and_key() {
        let left = id(&Tenant::named("header:x", "a:b"), &Scope::Tenant, "c");
        let right = id(&Tenant::named("header:x", "a"), &Scope::Tenant, "b:c");
        assert_ne!(left, right);
    }

    #[test]
    fn a_name_from_another_source_is_another_tenant() {
        let header = id(&Tenant::named("header:x", "acme"), &Scope::Tenant, "k");
        let cookie = id(&Tenant::credential("cookie:x", b"acme"), &Scope::Tenant, "k");
        assert_ne!(header, cookie);
        assert_ne!(header, id(&Tenant::anonymous(), &Scope::Tenant, "k"));
    }

    #[test]
    fn endpoints_have_key_spaces_of_their_own() {
        let tenant = Tenant::anonymous();
        let scope =
            |route: &str| Scope::Endpoint { method: http::Method::POST, route: route.into() };
        assert_ne!(id(&tenant, &scope("/a"), "k"), id(&tenant, &scope("/b"), "k"));
        assert_ne!(id(&tenant, &scope("/a"), "k"), id(&tenant, &Scope::Tenant, "k"));
        assert_eq!(id(&tenant, &scope("/a"), "k"), id(&tenant, &scope("/a"), "k"));
        let function = |name: &str| Scope::Function { name: name.into() };
        assert_ne!(id(&tenant, &function("a"), "k"), id(&tenant, &function("b"), "k"));
    }

    #[test]
    fn an_observed_key_has_a_record_of_its_own() {
        let secret = Secret::from_bytes(&[7; Secret::LEN]);
        let protected = id(&Tenant::anonymous(), &Scope::Tenant, "k");
        let observed = protected.observed(&secret);
        assert_ne!(observed, protected);
        assert_eq!(observed, protected.observed(&secret));
        assert_ne!(observed, id(&Tenant::anonymous(), &Scope::Tenant, "l").observed(&secret));
    }

    #[test]
    fn a_tag_is_read_as_it_is_shown() {
        let tag = Tenant::anonymous().tag(&Secret::from_bytes(&[7; Secret::LEN]));
        assert_eq!(TenantTag::parse(&tag.to_string()), Some(tag));
        for wrong in ["", "7e", &tag.to_string()[1..], &format!("{tag}0"), &"x".repeat(32)] {
            assert_eq!(TenantTag::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn debug_does_not_print_a_credential() {
        let tenant = Tenant::credential("authorization", b"Bearer sk_live_1");
        assert!(!format!("{tenant:?}").contains("sk_live"));
    }
}
