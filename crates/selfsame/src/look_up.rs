//! Looking a key up: which record it names. Nothing is claimed, run or read here.

use http::request::Parts;
use http::{HeaderMap, Method, Response};
use selfsame_core::{ProblemDetails, RecordId};

use crate::body::ResponseBody;
use crate::reject::{self, Refusal};
use crate::service::IdempotencyService;
use crate::steps;
use crate::tenant::MissingTenant;

impl<S> IdempotencyService<S> {
    /// The record of the key in the headers of `parts`, for the tenant that sent them, as a request
    /// with `method` on this route would have it. How old the key is makes no difference.
    ///
    /// # Errors
    /// A refusal: there is no key, or it is none, or nobody knows whose it is. Callers who share
    /// their keys with others are told nothing of them.
    pub fn record_of<B>(
        &self,
        parts: &Parts,
        method: &Method,
    ) -> Result<RecordId, Box<Response<ResponseBody<B>>>> {
        let (engine, policy) = (&self.route.engine, &self.route.policy);
        let found = || {
            let tenant = (policy.tenant)(parts).map_err(Refusal::MissingTenant)?;
            if tenant.is_shared() {
                return Err(Refusal::MissingTenant(MissingTenant::new(
                    "callers without a credential share their keys, so nobody is told of them; send \
                     the credential that the key was used with",
                )));
            }
            let missing = || {
                let header = policy.key_headers.first().map(ToString::to_string);
                let place = format!("the header {}", header.unwrap_or_default());
                Err(Refusal::MissingKey { place })
            };
            let key = steps::key_in(&parts.headers, policy).unwrap_or_else(missing)?;
            let mut asked = parts.clone();
            asked.method = method.clone();
            steps::scope(key, &asked, policy, &engine.secret)
        };
        match found() {
            Ok(identity) => Ok(identity.id),
            Err(refusal) => {
                let dialect = policy.dialect.to_sender_of(&parts.headers);
                Err(Box::new(reject::answer(&refusal, &dialect)))
            }
        }
    }

    /// Whether a request with this method and these headers has a key, or may have one in its body:
    /// whose it is must be known then.
    pub fn may_have_key(&self, method: &Method, headers: &HeaderMap) -> bool {
        let policy = &self.route.policy;
        let has_key = || steps::key_in(headers, policy).is_some();
        steps::is_looked_at(method, policy) && (policy.key_pointer.is_some() || has_key())
    }

    /// A problem, as this route words its refusals to whoever sent `parts`.
    pub fn refuse<B>(&self, parts: &Parts, details: &ProblemDetails) -> Response<ResponseBody<B>> {
        let dialect = self.route.policy.dialect.to_sender_of(&parts.headers);
        dialect.response(details).map(|body| ResponseBody::whole(body, HeaderMap::new()))
    }
}
