//! Backups over the admin API: one is started, and then asked after.
//!
//! `POST /api/v1/backup` with [`BackupRequest`] starts one; `GET /api/v1/backup` shows the last one as a
//! [`BackupView`]. It goes on when whoever started it has gone.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use selfsame::admin::date;
use selfsame::stores::{BackupError, EmbeddedStore};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Admin;
use crate::background;
use crate::store_size::available;

/// Time in which most refusals are known.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);

/// Asks for a backup.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackupRequest {
    /// Absolute path of a folder on the gateway's machine, which must be missing or empty.
    pub(crate) folder: PathBuf,
}

/// A backup as an operator sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BackupView {
    pub(crate) folder: String,
    pub(crate) state: BackupState,
    /// Bytes that were copied.
    pub(crate) bytes: u64,
    /// When it was asked for. Keys that were used before are in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) made: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) records: Option<u64>,
    /// Damaged places that it has because the store has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) damaged: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BackupState {
    Running,
    Done,
    Failed,
}

/// Backups of the gateway's store.
pub(crate) struct Backups {
    /// None where it is no store in a folder.
    store: Option<Weak<EmbeddedStore>>,
    last: Mutex<Option<BackupView>>,
    stop: CancellationToken,
}

impl Backups {
    /// Backups end with `stop`.
    pub(crate) fn new(store: Option<Weak<EmbeddedStore>>, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self { store, last: Mutex::default(), stop })
    }

    fn view(&self) -> Option<BackupView> {
        let mut view = self.last.lock().clone()?;
        if view.state == BackupState::Running
            && let Some(store) = self.store.as_ref().and_then(Weak::upgrade)
        {
            view.bytes = store.backup_bytes_copied();
        }
        Some(view)
    }

    /// Notes a backup that begins, unless another is being made.
    fn begin(&self, folder: &Path) -> bool {
        let mut last = self.last.lock();
        let is_running = last.as_ref().is_some_and(|last| last.state == BackupState::Running);
        if !is_running {
            *last = Some(BackupView {
                folder: folder.display().to_string(),
                state: BackupState::Running,
                bytes: 0,
                made: None,
                records: None,
                damaged: None,
                error: None,
            });
        }
        !is_running
    }

    /// Makes a backup, and notes what came of it.
    async fn make(&self, store: Arc<EmbeddedStore>, folder: PathBuf) -> StatusCode {
        let making = back_up(&store, &folder);
        let (status, made) = tokio::select! {
            made = making => match made {
                Ok(backup) => (StatusCode::OK, Ok(backup)),
                Err(error) => (status_of(&error), Err(error.to_string())),
            },
            () = self.stop.cancelled() => {
                let text = "the gateway is stopping; the backup is not complete, remove it";
                (StatusCode::SERVICE_UNAVAILABLE, Err(text.to_owned()))
            }
        };
        let folder = folder.display();
        let mut last = self.last.lock();
        let Some(view) = last.as_mut() else { return status };
        view.bytes = store.backup_bytes_copied();
        match made {
            Ok(backup) => {
                tracing::info!(
                    %folder,
                    records = backup.records,
                    bytes = backup.bytes,
                    damaged = backup.damaged,
                    "a backup was made"
                );
                view.state = BackupState::Done;
                view.bytes = backup.bytes;
                (view.made, view.records) = (Some(date(backup.made)), Some(backup.records));
                view.damaged = Some(backup.damaged).filter(|damaged| *damaged > 0);
            }
            Err(error) => {
                tracing::warn!(%folder, error, "a backup was not made");
                (view.state, view.error) = (BackupState::Failed, Some(error));
            }
        }
        status
    }
}

/// Makes a backup where there is room for one.
pub(crate) async fn back_up(
    store: &EmbeddedStore,
    folder: &Path,
) -> Result<selfsame::stores::Backup, BackupError> {
    let above = folder.parent().map(Path::to_owned);
    let room = tokio::task::spawn_blocking(move || match above {
        Some(above) => available(&above),
        None => Ok(None),
    });
    // What cannot be looked at is told by the backup itself.
    let room = room.await.map_err(io::Error::other).flatten().ok().flatten();
    if room.is_some_and(|room| room < store.bytes()) {
        return Err(BackupError::Full { path: folder.to_owned() });
    }
    store.backup(folder).await
}

fn status_of(error: &BackupError) -> StatusCode {
    match error {
        BackupError::InProgress | BackupError::Exists { .. } | BackupError::InStore { .. } => {
            StatusCode::CONFLICT
        }
        BackupError::Full { .. } => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Starts a backup. What is refused at once, or done at once, is answered so.
pub(super) async fn start(State(admin): State<Arc<Admin>>, body: String) -> Response {
    let backups = admin.backups.clone();
    let Some(store) = &backups.store else {
        let text = "only a store in a folder is backed up by the gateway; a database and a Redis have backups of \
                    their own\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    let BackupRequest { folder } = match serde_json::from_str(&body) {
        Ok(request) => request,
        Err(error) => {
            let text = format!("the body is not what is expected: {error}\n");
            return (StatusCode::BAD_REQUEST, text).into_response();
        }
    };
    if !folder.is_absolute() {
        let text = "\"folder\" must be an absolute path on the gateway's machine\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    let Some(store) = store.upgrade() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the gateway is stopping\n").into_response();
    };
    if !backups.begin(&folder) {
        let text = format!("{}\n", BackupError::InProgress);
        return (StatusCode::CONFLICT, text).into_response();
    }
    let making = backups.clone();
    let made = background::spawn(async move { making.make(store, folder).await });
    let status = match timeout(REFUSED_WITHIN, made).await {
        Ok(Ok(status)) => status,
        Ok(Err(_)) => StatusCode::INTERNAL_SERVER_ERROR,
        Err(_) => StatusCode::ACCEPTED,
    };
    let view = backups.view();
    match view.as_ref().and_then(|view| view.error.clone()) {
        Some(error) if !status.is_success() => (status, format!("{error}\n")).into_response(),
        _ => (status, Json(view)).into_response(),
    }
}

/// Shows the last backup.
pub(super) async fn show(State(admin): State<Arc<Admin>>) -> Response {
    match admin.backups.view() {
        Some(view) => Json(view).into_response(),
        None => {
            let text = "no backup was made since the gateway started\n";
            (StatusCode::NOT_FOUND, text).into_response()
        }
    }
}
