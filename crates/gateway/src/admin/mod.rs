//! The admin listener: metrics, health, and a way out for held keys.

mod auth;
pub(crate) mod backup;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, StatusCode};
use axum::middleware;
use axum::routing::{any, get, post};
use bytes::Bytes;
use http_body_util::Full;
use metrics_exporter_prometheus::PrometheusHandle;
use selfsame::admin::AdminService;
use selfsame::stores::{EmbeddedHealth, RedisHealth};
use selfsame_core::{FullStore, RecordId};
use tokio_util::sync::CancellationToken;

use crate::contract::ContractPage;
use crate::internal_listener::InternalListener;
use crate::live::{self, Live};
use crate::verification::FoundDamage;

use self::backup::Backups;

pub(crate) use auth::{Token, token_path};
pub(crate) use selfsame::admin::date;

/// What the admin listener can see and do.
pub(crate) struct Admin {
    pub(crate) live: Arc<Live>,
    pub(crate) store: Arc<dyn FullStore>,
    /// Health of the Redis that has the claims, if one has.
    pub(crate) redis: Option<RedisHealth>,
    /// Health of the disk that has the records, if it is this machine's.
    pub(crate) disk: Option<EmbeddedHealth>,
    pub(crate) backups: Arc<Backups>,
    pub(crate) found_damage: Arc<FoundDamage>,
    pub(crate) keys: AdminService,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) token: Token,
    /// Whether everyone who reaches the listener is on this machine.
    pub(crate) on_loopback: bool,
    pub(crate) stop: CancellationToken,
}

const INDEX: &str = "Selfsame, admin listener\n\n\
    /metrics        for Prometheus\n\
    /healthz        the process lives, and its disk did not fail\n\
    /readyz         the store can be reached, takes new keys, and no shutdown is under way\n\
    /api/v1/keys    ?find=KEY or ?find=RECORD-ID; or by ?state=, tenant=, tenant_name=,\n\
    \x20               route=, since=, limit=; without any, the keys that are held\n\
    /.well-known/idempotency    the contract page, as clients read it\n\
    /api/v1/reload  POST: reads the configuration again, as SIGHUP does\n\
    /api/v1/backup  POST: backs up a store in a folder to {\"folder\": \"/…\"}; GET: the last backup\n\n\
    On the command line: selfsame keys show|free|complete|erase, selfsame store backup\n";

/// Serves until the process ends: health must be told while connections drain.
pub(crate) async fn serve(listener: InternalListener, admin: Arc<Admin>) {
    let acting = Router::new()
        .route("/api/v1/reload", post(reload))
        .route_layer(middleware::from_fn_with_state(admin.clone(), auth::acting));
    let reading = Router::new()
        .route("/", get(|| async { INDEX }))
        .route("/metrics", get(metrics))
        .route(ContractPage::PATH, any(contract))
        .route_layer(middleware::from_fn_with_state(admin.clone(), auth::reading));
    let keys = Router::new()
        .route("/api/v1/backup", post(backup::start).get(backup::show))
        .nest_service("/api/v1", admin.keys.clone())
        .layer(middleware::from_fn_with_state(admin.clone(), auth::by_method));
    let health = Router::new().route("/healthz", get(healthy)).route("/readyz", get(ready));
    let router = health
        .merge(
            reading
                .merge(acting)
                .merge(keys)
                .layer(middleware::from_fn_with_state(admin.clone(), auth::host)),
        )
        .with_state(admin);
    listener.serve(router).await;
}

async fn contract(
    State(admin): State<Arc<Admin>>,
    method: Method,
    headers: HeaderMap,
) -> Response<Full<Bytes>> {
    admin.live.contract().answer(&method, &headers)
}

/// Reads the configuration again; one that cannot be taken changes nothing, and says why.
async fn reload(State(admin): State<Arc<Admin>>) -> (StatusCode, String) {
    match live::reload(admin.live.clone()).await {
        Ok(routes) => (StatusCode::OK, format!("read again, and counts; routes: {routes}\n")),
        Err(error) => {
            let text = format!("the configuration stays as it was:\n{error:#}\n");
            (StatusCode::UNPROCESSABLE_ENTITY, text)
        }
    }
}

async fn metrics(State(admin): State<Arc<Admin>>) -> String {
    admin.metrics.render()
}

/// Says whether a restart would help.
async fn healthy(State(admin): State<Arc<Admin>>) -> (StatusCode, String) {
    match admin.disk.as_ref().and_then(EmbeddedHealth::failure) {
        None => (StatusCode::OK, "ok\n".into()),
        Some(cause) => {
            let text = format!(
                "the store: the disk failed ({cause}), and nothing is written until a restart; mend it, \
                 then restart\n"
            );
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

async fn ready(State(admin): State<Arc<Admin>>) -> (StatusCode, String) {
    if admin.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n".into());
    }
    let (status, text) = healthy(State(admin.clone())).await;
    if status != StatusCode::OK {
        return (status, text);
    }
    if let Some(disk) = &admin.disk {
        if let Some(time) = disk.stalled_for() {
            let text =
                format!("the store: the disk has not answered for {} s\n", time.as_secs().max(1));
            return (StatusCode::SERVICE_UNAVAILABLE, text);
        }
        if let Some(cause) = disk.shortage() {
            let text = format!("the store takes no new keys: {cause}\n");
            return (StatusCode::SERVICE_UNAVAILABLE, text);
        }
        if let Some(time) = disk.closed_for() {
            let text = format!(
                "the store has lost records, and takes no key that it does not know for {} s; \
                 selfsame store reopen\n",
                time.as_secs().max(1)
            );
            return (StatusCode::SERVICE_UNAVAILABLE, text);
        }
    }
    if let Some(time) = admin.redis.as_ref().and_then(RedisHealth::closed_for) {
        let text = format!(
            "the store: Redis has lost records, and takes no new key for {} s; selfsame store reopen\n",
            time.as_secs().max(1)
        );
        return (StatusCode::SERVICE_UNAVAILABLE, text);
    }
    match admin.store.get(&RecordId::from_bytes([0; RecordId::LEN])).await {
        Ok(_) => (StatusCode::OK, sound(&admin)),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("the store: {error}\n")),
    }
}

/// Text for a store that works. Damage closes no more than the keys it is in.
fn sound(admin: &Admin) -> String {
    match admin.found_damage.places() {
        0 => "ok\n".to_owned(),
        places => {
            format!("ok\nthe store: verification found {places} damaged places; see the log\n")
        }
    }
}
