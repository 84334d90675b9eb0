//! [`OriginalUri`]: where a request was sent, whatever the router before the layer has made of it.

use http::Uri;
use http::request::Parts;

/// The URI of a request before a router took the prefix of its path away. A layer behind such a router
/// cannot tell `/v1/charges` from `/v2/charges` without it, and would take one for a retry of the other.
///
/// Put it into the request's extensions before the prefix goes. With the feature `axum` the layer also
/// finds what [`axum`'s routers](https://docs.rs/axum/latest/axum/extract/struct.OriginalUri.html) leave there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginalUri(Uri);

impl OriginalUri {
    /// The URI of a request as it was sent.
    pub fn new(uri: Uri) -> Self {
        Self(uri)
    }

    /// The URI by which a request is told from others.
    pub(crate) fn of(parts: &Parts) -> &Uri {
        if let Some(Self(uri)) = parts.extensions.get() {
            return uri;
        }
        #[cfg(feature = "axum")]
        if let Some(axum::extract::OriginalUri(uri)) = parts.extensions.get() {
            return uri;
        }
        &parts.uri
    }
}
