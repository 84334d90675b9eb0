//! [`ForwardAuth`]: another service tells whose request it is, and is asked before anything else is done.
//!
//! Who may pass is remembered for some seconds under a MAC of all that the service was shown, so that no
//! credential is kept and nothing that it looked at may differ. Who may not is never remembered.
//! Requests that show the same at the same time ask once.
//!
//! A question goes on when its client leaves. Until its end it counts as a request of the client's
//! address, which has a share of the questions that are asked at once.

mod question;
mod verdict;

use std::collections::HashMap;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Response};
use http_body_util::Either;
use ipnet::IpNet;
use parking_lot::Mutex;
use selfsame::{IdempotencyService, Problem, ProblemDetails, Secret};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::address_limit::RunPermit;
use crate::background;
use crate::config;
use crate::door::Body;
use crate::room::Seldom;
use crate::upstream::{Inquiry, Outward, Upstream};
use question::Question;
use verdict::Verdict;

/// Limit of the callers that are remembered. One more, and all are forgotten: they are asked about again.
const ALLOWED_MAX: usize = 10_000;
/// How many questions are under way at once. One more waits its turn, in its own time.
const QUESTIONS_MAX: usize = 256;

/// Use that is made of the service's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthRole {
    /// They name the tenant, for routes with `tenant = "forward-auth"`.
    NamesTenants,
    /// They allow a request or deny it; its tenant comes from elsewhere.
    Permits,
}

/// Asks another service whose request it is, or whether it may pass.
pub(crate) struct ForwardAuth {
    settings: config::ForwardAuth,
    role: AuthRole,
    service: Inquiry,
    /// Whose word on a request's way counts.
    trusted: Arc<[IpNet]>,
    /// Of this process alone: what is remembered is of no use to anybody else.
    secret: Secret,
    known: Mutex<Known>,
    room: Semaphore,
    failing: Seldom,
}

/// Callers by the MAC of what they show.
#[derive(Default)]
struct Known {
    /// Questions under way.
    asked: HashMap<[u8; 32], watch::Receiver<Option<Verdict>>>,
    allowed: HashMap<[u8; 32], Allowed>,
}

/// A caller that may pass.
struct Allowed {
    tenant: Arc<str>,
    until: Instant,
}

/// Whose request it is, found in its extensions.
#[derive(Clone)]
pub(crate) struct Vouched(pub(crate) Arc<str>);

impl ForwardAuth {
    pub(crate) fn new(
        settings: &config::ForwardAuth,
        role: AuthRole,
        outward: &Outward,
        trusted: Arc<[IpNet]>,
    ) -> Self {
        Self {
            settings: settings.clone(),
            role,
            service: Inquiry::to(&settings.service, outward),
            trusted,
            secret: Secret::random(),
            known: Mutex::default(),
            room: Semaphore::new(QUESTIONS_MAX),
            failing: Seldom::default(),
        }
    }

    /// Removes what only the service may say.
    pub(crate) fn clean(&self, headers: &mut HeaderMap) {
        if self.role == AuthRole::NamesTenants {
            headers.remove(&self.settings.tenant_header);
        }
    }

    /// Finds out whose request this is, and writes it down for the layer and for the upstream; or only whether
    /// it may pass.
    ///
    /// # Errors
    /// The answer to a request that may not pass, or of which that cannot be told.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        parts: &mut Parts,
        service: &IdempotencyService<Upstream>,
    ) -> Result<(), Response<Body>> {
        match self.ask(parts).await {
            Verdict::Allowed(tenant) => {
                if self.role == AuthRole::NamesTenants {
                    self.vouch(parts, tenant);
                }
                Ok(())
            }
            Verdict::Denied(denial) => Err(denial.response().map(Either::Right)),
            Verdict::Failed => {
                let detail = "the service that tells callers apart cannot be asked at the moment; \
                              nothing was sent, try again";
                let details = ProblemDetails::new(Problem::AuthUnavailable, detail);
                Err(service.refuse(parts, &details).map(Either::Left))
            }
        }
    }

    fn vouch(&self, parts: &mut Parts, tenant: Arc<str>) {
        let name = tenant.parse().expect("it came in a header");
        parts.headers.insert(&self.settings.tenant_header, name);
        parts.extensions.insert(Vouched(tenant));
    }

    /// Whose request this is.
    async fn ask(self: &Arc<Self>, parts: &Parts) -> Verdict {
        let question = Question::about(parts, &self.settings, &self.trusted);
        let id = question.id(&self.secret);
        let permit = parts.extensions.get().cloned();
        let mut told = match self.look_up(id, question, permit) {
            Ok(tenant) => {
                counted("known");
                return Verdict::Allowed(tenant);
            }
            Err(told) => told,
        };
        let told = told.wait_for(Option::is_some).await;
        // It is told before its teller goes, unless that came to grief.
        told.ok().and_then(|verdict| verdict.clone()).unwrap_or(Verdict::Failed)
    }

    /// The caller, or where it will be told. Nobody asks twice at once.
    fn look_up(
        self: &Arc<Self>,
        id: [u8; 32],
        question: Question,
        permit: Option<RunPermit>,
    ) -> Result<Arc<str>, watch::Receiver<Option<Verdict>>> {
        let now = Instant::now();
        let mut known = self.known.lock();
        if let Some(allowed) = known.allowed.get(&id).filter(|allowed| allowed.until > now) {
            return Ok(allowed.tenant.clone());
        }
        if let Some(told) = known.asked.get(&id) {
            return Err(told.clone());
        }
        let (tell, told) = watch::channel(None);
        known.asked.insert(id, told.clone());
        drop(known);
        let auth = self.clone();
        // On a task of its own: others may wait for it when this client has gone.
        background::spawn(async move {
            let _forgotten = Forget { auth: &auth, id };
            let verdict = auth.verdict(&question, permit.as_ref()).await;
            match &verdict {
                Verdict::Allowed(tenant) if !auth.settings.cache.is_zero() => {
                    let (tenant, until) = (tenant.clone(), now + auth.settings.cache);
                    auth.known.lock().allow(id, Allowed { tenant, until });
                }
                _ => {}
            }
            tell.send_replace(Some(verdict));
        });
        Err(told)
    }

    async fn verdict(&self, question: &Question, permit: Option<&RunPermit>) -> Verdict {
        let asked = async {
            // First, so that one address does not keep all others waiting.
            let _turn_of_address = match permit {
                Some(permit) => Some(permit.question_turn().await),
                None => None,
            };
            let _turn = self.room.acquire().await.map_err(|_| "it is closed")?;
            let response = self.service.get(&self.settings.path, question.headers()).await?;
            let named_in =
                (self.role == AuthRole::NamesTenants).then_some(&self.settings.tenant_header);
            verdict::of(response, named_in).await
        };
        let verdict = match timeout(self.settings.timeout, asked).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(error)) => self.failed(&*error),
            Err(_) => self.failed("it took too long"),
        };
        counted(verdict.label());
        verdict
    }

    fn failed(&self, reason: impl std::fmt::Display) -> Verdict {
        if self.failing.is_due() {
            tracing::warn!(%reason, "the service that tells callers apart cannot be asked");
        }
        Verdict::Failed
    }
}

impl Known {
    fn allow(&mut self, id: [u8; 32], caller: Allowed) {
        if self.allowed.len() >= ALLOWED_MAX {
            self.allowed.clear();
        }
        self.allowed.insert(id, caller);
    }
}

/// Forgets a question at its end, whatever that is.
struct Forget<'a> {
    auth: &'a ForwardAuth,
    id: [u8; 32],
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.auth.known.lock().asked.remove(&self.id);
    }
}

fn counted(result: &'static str) {
    metrics::counter!("selfsame_forward_auth_total", "result" => result).increment(1);
}
