//! [`ContractPage`]: the contract's forms, rendered once, as answers.

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;

use super::{Contract, Form, PATH, negotiation};
use crate::config::Config;

/// Long enough to spare us readers in a hurry, short enough for a new configuration to be seen.
const FRESH_FOR: &str = "max-age=300";
/// Nothing is loaded, run or sent by the page; its style stands in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// The contract's forms, as one configuration has them: another that counts has others.
pub(crate) struct ContractPage {
    markdown: Bytes,
    html: Bytes,
    json: Bytes,
    openapi: Bytes,
}

impl ContractPage {
    /// Where the page is, below the service's address.
    pub(crate) const PATH: &str = PATH;

    /// Tells whether a request for `path`, in its normal form, is one for this page.
    pub(crate) fn is_at(path: &str) -> bool {
        matches!(path.strip_prefix(PATH), Some("" | "/"))
    }

    pub(crate) fn new(config: &Config) -> Self {
        let contract = Contract::of(config);
        let render = |form| Bytes::from(contract.render(form));
        Self {
            markdown: render(Form::Markdown),
            html: render(Form::Html),
            json: render(Form::Json),
            openapi: render(Form::Openapi),
        }
    }

    /// The answer to a request for the page.
    pub(crate) fn answer(&self, method: &Method, headers: &HeaderMap) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            return not_allowed();
        }
        let offer = negotiation::choose(headers);
        let body = match offer.form {
            Form::Markdown => &self.markdown,
            Form::Html => &self.html,
            Form::Json => &self.json,
            Form::Openapi => &self.openapi,
        };
        let mut response = Response::new(Full::default());
        let headers = response.headers_mut();
        let content_type = HeaderValue::try_from(offer.content_type());
        headers.insert(CONTENT_TYPE, content_type.expect("a media type is a header value"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        headers.insert(VARY, HeaderValue::from_static("Accept"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(FRESH_FOR));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if method == Method::GET {
            *response.body_mut() = Full::new(body.clone());
        }
        response
    }
}

/// The answer to who wants to do something else than read.
pub(crate) fn not_allowed() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from("this page can only be read: GET or HEAD\n"));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
