//! A request's target as everything behind reads it: a path, with the host in `Host`.

use http::header::HOST;
use http::uri::Uri;
use http::{HeaderValue, Request};

/// Where the target names a host, as it does over HTTP/2 and in requests to a proxy, that one
/// counts, and not what `Host` says (RFC 9112, 3.2.2; RFC 9113, 8.3.1).
pub(crate) fn host_to_headers<B>(request: &mut Request<B>) {
    let Some(authority) = request.uri().authority() else { return };
    let host = HeaderValue::from_str(authority.as_str()).expect("an authority is ASCII");
    request.headers_mut().insert(HOST, host);
    if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = Uri::from(path);
    }
}

/// A request with the method and path that `text` names: `POST /v1/charges`, or with a host before
/// the path, `POST api.example.com/v1/charges`.
pub(crate) fn named(text: &str) -> Option<Request<()>> {
    let (method, target) = text.split_once(' ')?;
    let (host, path) = target.split_at(target.find('/')?);
    let mut named = Request::new(());
    *named.method_mut() = method.parse().ok()?;
    *named.uri_mut() = path.parse::<Uri>().ok()?;
    if !host.is_empty() {
        named.headers_mut().insert(HOST, HeaderValue::from_str(host).ok()?);
    }
    Some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_target_goes_before_the_header() {
        let table = [
            ("http://api.example.com:8443/v1?a=1", "api.example.com:8443", "/v1?a=1"),
            ("/v1?a=1", "other.example.com", "/v1?a=1"),
            ("*", "other.example.com", "*"),
            ("api.example.com:443", "api.example.com:443", "api.example.com:443"),
        ];
        for (target, host, path) in table {
            let request = Request::get(target).header("host", "other.example.com");
            let mut request = request.body(()).expect("a request");
            host_to_headers(&mut request);
            assert_eq!(request.headers()[HOST], host, "{target}");
            assert_eq!(request.uri(), path, "{target}");
        }
    }
}
