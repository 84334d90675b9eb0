//! [`Dialect`]: how a refusal is worded, by the route's profile and the request's protocol; and
//! whose pages may read it.

mod cors;
mod grpc;
mod stripe;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LINK, ORIGIN, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use selfsame_core::headers::{STRIPE_SHOULD_RETRY, X_SHOULD_RETRY};
use selfsame_core::{Problem, ProblemDetails, RecordId};

pub use cors::{InvalidOrigin, Origin};

/// How many seconds a client is asked to wait before it tries again.
const RETRY_AFTER_SECONDS: &str = "1";

/// Whose manners a route has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Those of the IETF draft: problems as RFC 9457 says, 422 for a key that was reused.
    Ietf,
    /// Those of Stripe's API, as its SDKs expect them.
    Stripe,
}

/// How a refusal is worded.
#[derive(Debug, Clone)]
pub struct Dialect {
    manners: Arc<Manners>,
    protocol: Protocol,
    /// Where the request's page comes from, if a page sent it.
    sender: Option<HeaderValue>,
}

/// What all who speak a dialect share.
#[derive(Debug, Clone)]
struct Manners {
    profile: Profile,
    contract_page: Arc<str>,
    readers: Arc<[Origin]>,
}

/// What a client listens for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Grpc,
}

impl Protocol {
    /// That of whoever sent a request with these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        if crate::grpc::is_call(headers) { Self::Grpc } else { Self::Http }
    }
}

impl Dialect {
    /// By this profile; `contract_page` is where the rules are told.
    pub fn new(profile: Profile, contract_page: impl Into<Arc<str>>) -> Self {
        let contract_page = contract_page.into();
        let manners = Manners { profile, contract_page, readers: Arc::default() };
        Self { manners: Arc::new(manners), protocol: Protocol::Http, sender: None }
    }

    /// The same, with refusals that pages of these origins can read: a browser hides them
    /// otherwise. Not needed behind a layer that sees to CORS itself.
    #[must_use]
    pub fn readable_by(self, readers: impl Into<Arc<[Origin]>>) -> Self {
        let manners = Manners { readers: readers.into(), ..Manners::clone(&self.manners) };
        Self { manners: Arc::new(manners), ..self }
    }

    /// The same to whoever sent a request with these headers: a gRPC client reads a status in the
    /// trailers, and nothing else.
    #[must_use]
    pub fn to_sender_of(&self, headers: &HeaderMap) -> Self {
        Self {
            protocol: Protocol::of(headers),
            sender: headers.get(ORIGIN).cloned(),
            manners: self.manners.clone(),
        }
    }

    /// What the client listens for.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The status a problem is answered with.
    pub fn status(&self, problem: Problem) -> StatusCode {
        match (self.manners.profile, problem) {
            (Profile::Stripe, Problem::KeyReused) => StatusCode::BAD_REQUEST,
            _ => problem.status(),
        }
    }

    /// Refuses a request: logs the problem, and returns it as a response.
    pub fn response(&self, details: &ProblemDetails) -> Response<Bytes> {
        self.log(details);
        self.render(details)
    }

    /// A problem as a response, with the headers that belong to it.
    pub fn render(&self, details: &ProblemDetails) -> Response<Bytes> {
        let problem = details.problem;
        let mut response = match (self.protocol, self.manners.profile) {
            (Protocol::Grpc, _) => grpc::trailers_only(details),
            (_, Profile::Ietf) => {
                let body = details.to_json(&self.manners.contract_page);
                self.written(problem, "application/problem+json", body)
            }
            (_, Profile::Stripe) => {
                let body = stripe::error(details, &self.manners.contract_page);
                self.written(problem, "application/json", body)
            }
        };
        let headers = response.headers_mut();
        let link =
            format!("<{}>; rel=\"describedby\"", problem.type_uri(&self.manners.contract_page));
        headers.insert(LINK, HeaderValue::from_str(&link).expect("a URL and a slug are ASCII"));
        self.advise(headers, problem.is_retryable());
        let is_soon_over = problem.status() == StatusCode::SERVICE_UNAVAILABLE;
        let is_busy = matches!(
            problem,
            Problem::InProgress | Problem::TooManyKeys | Problem::TooManyRequests
        );
        if is_soon_over || is_busy {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        }
        cors::open(headers, &self.manners.readers, self.sender.as_ref());
        response
    }

    /// Logs a refusal, so that its `instance` can be looked up.
    fn log(&self, details: &ProblemDetails) {
        let problem = details.problem;
        let reason = match problem {
            // The detail may name members of the request's body.
            Problem::KeyReused => problem.title(),
            _ => &details.detail,
        };
        tracing::debug!(
            record = details.record.as_ref().map(RecordId::short),
            problem = problem.slug(),
            status = self.status(problem).as_u16(),
            instance = details.instance,
            reason,
            "refused"
        );
    }

    /// Makes the headers of a recorded answer fit the page that asks again.
    pub(crate) fn fit_cors(&self, headers: &mut HeaderMap) {
        cors::fit(headers, &self.manners.readers, self.sender.as_ref());
    }

    fn written(&self, problem: Problem, kind: &'static str, body: Vec<u8>) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status(problem);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }

    /// Tells SDKs, which go by the status alone, whether another try can help.
    pub(crate) fn advise(&self, headers: &mut HeaderMap, retryable: bool) {
        let advice = HeaderValue::from_static(if retryable { "true" } else { "false" });
        if self.manners.profile == Profile::Stripe {
            headers.insert(STRIPE_SHOULD_RETRY, advice.clone());
        }
        headers.insert(X_SHOULD_RETRY, advice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn refused(profile: Profile, problem: Problem) -> (Response<Bytes>, Value) {
        let dialect = Dialect::new(profile, "https://api.example.com/rules");
        let response = dialect.response(&ProblemDetails::new(problem, "because").with("extra", 1));
        let body = serde_json::from_slice(response.body()).expect("JSON");
        (response, body)
    }

    #[test]
    fn a_problem_names_the_page_and_says_whether_to_retry() {
        let (response, body) = refused(Profile::Ietf, Problem::KeyReused);
        assert_eq!(response.status(), 422);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(body["type"], "https://api.example.com/rules#key-reused");
        assert_eq!(
            response.headers()[LINK],
            "<https://api.example.com/rules#key-reused>; rel=\"describedby\""
        );
        assert_eq!(response.headers()[X_SHOULD_RETRY], "false");
        assert_eq!(response.headers().get(STRIPE_SHOULD_RETRY), None);
    }

    #[test]
    fn stripes_sdks_find_what_they_look_for() {
        let (response, body) = refused(Profile::Stripe, Problem::KeyReused);
        assert_eq!(response.status(), 400);
        assert_eq!(body["error"]["type"], "idempotency_error");
        assert_eq!(response.headers()[STRIPE_SHOULD_RETRY], "false");
        assert_eq!(response.headers()[X_SHOULD_RETRY], "false");

        let (response, body) = refused(Profile::Stripe, Problem::InProgress);
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(body["error"]["type"], "invalid_request_error");
        assert_eq!(body["error"]["code"], "idempotency_key_in_use");
        assert_eq!(body["error"]["extra"], 1);
        assert_eq!(response.headers()[STRIPE_SHOULD_RETRY], "true");

        let (_, body) = refused(Profile::Stripe, Problem::StoreUnavailable);
        assert_eq!(body["error"]["type"], "api_error");
        assert_eq!(body["error"]["code"], "store_unavailable");
    }
}
