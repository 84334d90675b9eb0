//! [`Sweeping`]: removal of expired records in the background, for as long as anything uses the store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use selfsame_core::{FullStore, Record, StoreError};
use tokio::sync::watch;

use crate::quota::{Quotas, note_held};
use crate::{background, telemetry};

/// Records that one step looks at.
const STEP: usize = 500;
/// Pause between the steps of one pass.
const STEP_PAUSE: Duration = Duration::from_millis(20);
/// Default pause between two passes through the store.
const PAUSE: Duration = Duration::from_secs(60);

/// Interval at which expired records are removed. The default is once a minute.
///
/// A pass goes through the whole store in small steps: it removes what expired, reduces to a tombstone
/// what is only remembered, and holds what died without an outcome. Pauses vary by a quarter, so that
/// processes that were started together do not sweep together. Where many processes share a PostgreSQL
/// database, one of them sweeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweeping {
    pause: Option<Duration>,
    is_counted: bool,
}

impl Sweeping {
    /// A pass through the store after each pause of this length, which is at least a second.
    pub fn every(pause: Duration) -> Self {
        Self { pause: Some(pause.max(Duration::from_secs(1))), is_counted: false }
    }

    /// No sweeping here: another process does it, or nobody.
    pub fn off() -> Self {
        Self { pause: None, is_counted: false }
    }

    /// Also counts the records of each state after each pass, as the metric `selfsame_records`. That
    /// reads the whole store once more.
    #[must_use]
    pub fn counted(self) -> Self {
        Self { is_counted: true, ..self }
    }
}

impl Default for Sweeping {
    fn default() -> Self {
        Self::every(PAUSE)
    }
}

/// The task that sweeps. It ends when this is dropped.
pub(crate) struct Sweeper {
    settings: watch::Sender<Sweeping>,
}

impl Sweeper {
    /// Starts sweeping with the default settings. The task does not keep the store open.
    pub(crate) fn start(store: &Arc<dyn FullStore>, quotas: Arc<Quotas>) -> Self {
        let (settings, changes) = watch::channel(Sweeping::default());
        background::spawn(run(Arc::downgrade(store), quotas, changes));
        Self { settings }
    }

    pub(crate) fn set(&self, sweeping: Sweeping) {
        self.settings.send_replace(sweeping);
    }
}

async fn run(
    store: Weak<dyn FullStore>,
    quotas: Arc<Quotas>,
    mut settings: watch::Receiver<Sweeping>,
) {
    let mut is_first = true;
    let mut is_failing = false;
    loop {
        let current = *settings.borrow_and_update();
        let wait = async {
            match current.pause {
                // The first pass comes soon: a process may be restarted more often than it sweeps.
                Some(pause) if is_first => tokio::time::sleep(part_of(pause / 10)).await,
                Some(pause) => tokio::time::sleep(pause * 3 / 4 + part_of(pause / 2)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = settings.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            () = wait => {}
        }
        is_first = false;
        match pass(&store, &quotas, &settings).await {
            Ok(()) if is_failing => {
                is_failing = false;
                tracing::info!("expired records are removed again");
            }
            Ok(()) => {}
            // Said once: a store that is away says so in other places, too.
            Err(error) if !is_failing => {
                is_failing = true;
                tracing::warn!(%error, "expired records could not be removed; it is tried again");
            }
            Err(_) => {}
        }
    }
}

/// Goes through the whole store once, unless the settings change or nobody uses it any more.
async fn pass(
    store: &Weak<dyn FullStore>,
    quotas: &Quotas,
    settings: &watch::Receiver<Sweeping>,
) -> Result<(), StoreError> {
    let (mut removed, mut buried, mut held) = (0, 0, 0);
    loop {
        if settings.has_changed().unwrap_or(true) {
            return Ok(());
        }
        {
            let Some(store) = store.upgrade() else { return Ok(()) };
            let swept = store.sweep(STEP).await?;
            telemetry::swept(&swept);
            removed += swept.removed;
            buried += swept.buried;
            held += swept.held.len();
            for Record { id, label, keepsake, .. } in &swept.held {
                note_held(quotas, id, label, keepsake.as_deref(), "its lease ended");
            }
            if swept.finished {
                break;
            }
        }
        tokio::time::sleep(STEP_PAUSE).await;
    }
    if removed + buried + held > 0 {
        tracing::info!(removed, buried, held, "the reaper removed, buried and held records");
    }
    let is_counted = settings.borrow().is_counted;
    if let Some(store) = store.upgrade().filter(|_| is_counted) {
        telemetry::records(store.count().await?);
    }
    Ok(())
}

/// A random part of `whole`.
fn part_of(whole: Duration) -> Duration {
    let mut random = [0; 2];
    // Without randomness the processes sweep together, which costs time and nothing else.
    let _ = getrandom::fill(&mut random);
    whole * u32::from(u16::from_le_bytes(random)) / u32::from(u16::MAX)
}
