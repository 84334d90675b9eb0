//! Erasing: what a key's record keeps, or what all records of a tenant do.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use selfsame_core::{Erased, Find, RecordId, TenantTag, Whose};
use serde::{Deserialize, Serialize};

use super::Admin;
use super::api::Failure;
use crate::telemetry;

/// How many records of a tenant are erased at a time.
const BITE: usize = 200;

/// Whose records are to be erased.
#[derive(Serialize, Deserialize)]
pub(crate) struct TenantRequest {
    /// The tenant's tag, as records show it.
    #[serde(default)]
    pub(crate) tag: Option<String>,
    /// The tenant's name, where it has one.
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// Where to go on, as the last answer said.
    #[serde(default)]
    pub(crate) after: Option<String>,
}

/// What was done to some of a tenant's records.
#[derive(Serialize, Deserialize)]
pub(crate) struct TenantErased {
    pub(crate) erased: usize,
    /// Those that run, and were left alone.
    pub(crate) running: usize,
    /// Where to go on, unless that was all.
    pub(crate) next: Option<String>,
}

/// The answer and the checkpoint of one record go; retries are told that the key was used.
pub(super) async fn key(
    State(admin): State<Arc<Admin>>,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    let id = RecordId::parse(&id).ok_or_else(|| Failure::bad("a record id is 64 hex digits"))?;
    match admin.store.erase(&[id]).await?[..] {
        [Erased::Done] => {
            telemetry::erased(1);
            tracing::info!(record = id.short(), "a record was erased by an operator");
            Ok(StatusCode::NO_CONTENT)
        }
        [Erased::Running] => {
            let text = "the key is running: wait until it has ended, and erase it then";
            Err(Failure(StatusCode::CONFLICT, text.into()))
        }
        _ => Err(Failure(StatusCode::NOT_FOUND, "there is no such record".into())),
    }
}

/// The same for some of a tenant's records; asked again, it goes on where it stopped.
pub(super) async fn tenant(
    State(admin): State<Arc<Admin>>,
    Json(request): Json<TenantRequest>,
) -> Result<Json<TenantErased>, Failure> {
    let whose = match (request.tag, request.name) {
        (Some(tag), None) => Whose::Tag(
            TenantTag::parse(&tag)
                .ok_or_else(|| Failure::bad("a tenant's tag is 32 hex digits"))?,
        ),
        (None, Some(name)) => Whose::Name(name),
        _ => return Err(Failure::bad("say whose records, by \"tag\" or by \"name\"")),
    };
    let after = match request.after {
        Some(after) => Some(
            RecordId::parse(&after).ok_or_else(|| Failure::bad("\"after\" is no record's id"))?,
        ),
        None => None,
    };
    let found = admin.store.find(&Find::Tenant { whose, after }, BITE).await?;
    let next = found.last().filter(|_| found.len() == BITE).map(|record| record.id.to_string());
    // Tombstones too: what an erasure that was cut off has left is taken away by the next.
    let ids: Vec<RecordId> = found.iter().map(|record| record.id).collect();
    let outcomes = admin.store.erase(&ids).await?;
    let count = |outcome| outcomes.iter().filter(|erased| **erased == outcome).count();
    let (erased, running) = (count(Erased::Done), count(Erased::Running));
    telemetry::erased(erased);
    tracing::info!(erased, running, "records of a tenant were erased by an operator");
    Ok(Json(TenantErased { erased, running, next }))
}
