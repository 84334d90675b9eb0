//! [`Inquiry`]: another service that the gateway itself asks, over connections like those to upstreams.

use std::sync::Arc;

use bytes::Bytes;
use http::header::HOST;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use selfsame::BoxError;

use super::{Connector, Outgoing, Outward, http1};
use crate::config;

/// Another service that is asked.
pub(crate) struct Inquiry {
    client: Client<Connector, Outgoing>,
    address: config::Upstream,
}

impl Inquiry {
    /// To the service at `address`.
    pub(crate) fn to(address: &config::Upstream, outward: &Outward) -> Self {
        // The upstream may go by another name; this one by its own.
        let outward = outward.by_own_names();
        Self { client: http1(address, &outward), address: address.clone() }
    }

    /// What it says at `path` to these headers.
    pub(crate) async fn get(
        &self,
        path: &PathAndQuery,
        headers: &HeaderMap,
    ) -> Result<Response<Incoming>, BoxError> {
        let uri = Uri::builder()
            .scheme(self.address.scheme())
            .authority(self.address.authority.clone())
            .path_and_query(path.clone())
            .build()?;
        let mut headers = headers.clone();
        headers.insert(HOST, HeaderValue::from_str(self.address.authority.as_str())?);
        let ask = || {
            let body = Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync();
            let mut request = Request::new(Outgoing { body, head_rules: Arc::default() });
            *request.uri_mut() = uri.clone();
            *request.headers_mut() = headers.clone();
            self.client.request(request)
        };
        match ask().await {
            // A kept connection may have been closed just then; a question can be asked twice.
            Err(error) if !error.is_connect() => Ok(ask().await?),
            answered => Ok(answered?),
        }
    }
}
