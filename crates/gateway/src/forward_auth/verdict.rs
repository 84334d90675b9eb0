//! [`Verdict`]: what the service said.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited};
use selfsame::BoxError;

/// How much of a denial is read; of a longer one, its status alone is given on.
const DENIAL_BYTES_MAX: usize = 64 * 1024;
/// How long a caller's name may be.
const TENANT_LEN_MAX: usize = 255;

/// What the service said.
#[derive(Debug, Clone)]
pub(super) enum Verdict {
    /// It is this caller's, where the service names callers.
    Allowed(Arc<str>),
    /// It may not pass.
    Denied(Arc<Denial>),
    /// Nothing that could be understood.
    Failed,
}

/// Why a request may not pass, in the service's own words.
#[derive(Debug)]
pub(super) struct Denial {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Verdict {
    /// Its name in metrics.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Allowed(_) => "allowed",
            Self::Denied(_) => "denied",
            Self::Failed => "failed",
        }
    }
}

impl Denial {
    /// The same for the client, and for nobody else.
    pub(super) fn response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body.clone()));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// What `response` says; with a `tenant_header`, it must name the caller there.
pub(super) async fn of<B>(
    response: Response<B>,
    tenant_header: Option<&HeaderName>,
) -> Result<Verdict, BoxError>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let (head, body) = response.into_parts();
    match head.status {
        status if status.is_success() => Ok(Verdict::Allowed(match tenant_header {
            Some(name) => tenant(&head.headers, name)?,
            None => Arc::default(),
        })),
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            let mut headers = HeaderMap::new();
            for name in [WWW_AUTHENTICATE, CONTENT_TYPE] {
                for value in head.headers.get_all(&name) {
                    headers.append(&name, value.clone());
                }
            }
            let body = Limited::new(body, DENIAL_BYTES_MAX).collect().await;
            let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            Ok(Verdict::Denied(Arc::new(Denial { status, headers, body })))
        }
        status => Err(format!("it answered {status}").into()),
    }
}

fn tenant(headers: &HeaderMap, name: &HeaderName) -> Result<Arc<str>, String> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(format!(
            "it let a request pass and did not say whose it is: {name} must be there once"
        ));
    };
    match value.to_str() {
        Ok(text) if (1..=TENANT_LEN_MAX).contains(&text.len()) => Ok(text.into()),
        _ => Err(format!("what it says in {name} is no name of 1 to {TENANT_LEN_MAX} characters")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X_TENANT: HeaderName = HeaderName::from_static("x-tenant");

    async fn verdict(status: u16, headers: &[(&str, &str)], body: &str) -> Result<Verdict, String> {
        let response = Response::builder().status(status);
        let response =
            headers.iter().fold(response, |response, (name, value)| response.header(*name, *value));
        let response = response.body(Full::from(body.to_owned())).expect("a response");
        of(response, Some(&X_TENANT)).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn who_may_pass_has_one_name() {
        for status in [200, 204] {
            let verdict = verdict(status, &[("x-tenant", "ann")], "").await;
            assert!(matches!(verdict, Ok(Verdict::Allowed(name)) if &*name == "ann"));
        }
        let long = "x".repeat(256);
        for headers in [
            &[][..],
            &[("x-tenant", "")],
            &[("x-tenant", "ann"), ("x-tenant", "bob")],
            &[("x-tenant", "é")],
            &[("x-tenant", &long)],
        ] {
            assert!(verdict(200, headers, "").await.is_err(), "{headers:?}");
        }
    }

    #[tokio::test]
    async fn who_may_not_is_told_in_the_service_s_words() {
        let headers =
            [("www-authenticate", "Bearer"), ("content-type", "text/plain"), ("set-cookie", "a=b")];
        for (body, given) in [("no", "no"), (&*"x".repeat(70_000), "")] {
            let Ok(Verdict::Denied(denial)) = verdict(401, &headers, body).await else {
                panic!("it is denied")
            };
            let response = denial.response();
            assert_eq!(response.status(), 401);
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
            assert_eq!(response.headers()["cache-control"], "no-store");
            assert!(!response.headers().contains_key("set-cookie"));
            let body = response.into_body().collect().await.expect("it is here").to_bytes();
            assert_eq!(body, given);
        }
    }

    #[tokio::test]
    async fn anything_else_is_a_failure() {
        for status in [302, 400, 404, 429, 500, 503] {
            assert!(verdict(status, &[("x-tenant", "ann")], "").await.is_err(), "{status}");
        }
    }
}
