//! [`Idempotency`]: a store with all that keeps its promises while requests come and go.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use selfsame_core::{
    FullStore, Key, RecordId, Secret, State, Store, StoreError, Tenant, TenantTag,
};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::landing::Landing;
use crate::layer::IdempotencyLayer;
use crate::log_throttle::LogThrottle;
use crate::observe::Observers;
use crate::once::Once;
use crate::policy::Policy;
use crate::probe::Probes;
use crate::quota::{Quotas, note_held};
use crate::renewals::Renewals;
use crate::running::Running;
use crate::seal::Seal;
use crate::spool::Spool;
use crate::store_budget::StoreBudget;
use crate::stores::{Journal, Metered, journal_of, sealed};
use crate::suspicion::Suspicions;
use crate::sweeping::{Sweeper, Sweeping};
use crate::wait::Waiters;

/// The name under which a store keeps the installation's secret.
const SECRET: &str = "secret";

/// Idempotency on one store, for any number of routes. Cheap to clone.
#[derive(Clone)]
pub struct Idempotency {
    engine: Arc<Engine>,
}

pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) secret: Secret,
    pub(crate) seal: Seal,
    pub(crate) landing: Arc<Landing>,
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) suspicions: Suspicions,
    pub(crate) probes: Probes,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) observed_quotas: Arc<Quotas>,
    /// Tag of [`Tenant::anonymous`].
    pub(crate) anonymous: TenantTag,
    /// The store, for what a person decides, or who is asked instead.
    pub(crate) people: Arc<dyn FullStore>,
    pub(crate) observers: Observers,
    pub(crate) journal: Option<Journal>,
    pub(crate) store_failures: LogThrottle,
    pub(crate) store_budget: StoreBudget,
    sweeper: Sweeper,
    work: TaskTracker,
}

impl Idempotency {
    /// On `store`, with the secret that the store keeps: made now, if this is its first use.
    pub async fn open(store: Arc<dyn FullStore>) -> Result<Self, StoreError> {
        let secret = Self::stored_secret(&*store).await?;
        Ok(Self::new(store, secret, None))
    }

    /// On `store` with a secret of the caller's own, and a folder for answers and releases that the store
    /// cannot take. Outside a tokio runtime its background tasks get threads of their own.
    pub fn new(store: Arc<dyn FullStore>, secret: Secret, spool: Option<Spool>) -> Self {
        let store = sealed(store);
        let (journal, seal) = (journal_of(&store), store.seal().clone());
        let people: Arc<dyn FullStore> = Arc::new(store.clone());
        let running = Arc::new(Running::new());
        let store: Arc<dyn Store> = Arc::new(Metered::new(store, running.clone()));
        let waiters = Waiters::new(store.bell());
        let quotas: Arc<Quotas> = Arc::default();
        let engine = Engine {
            landing: Landing::new(store.clone(), spool, seal.clone(), waiters.clone()),
            renewals: Renewals::new(store.clone(), running),
            waiters,
            suspicions: Suspicions::default(),
            probes: Probes::default(),
            sweeper: Sweeper::start(&people, quotas.clone()),
            quotas,
            observed_quotas: Arc::default(),
            anonymous: Tenant::anonymous().tag(&secret),
            people,
            observers: Observers::default(),
            journal,
            store_failures: LogThrottle::default(),
            store_budget: StoreBudget::default(),
            work: TaskTracker::new(),
            store,
            secret,
            seal,
        };
        Self { engine: Arc::new(engine) }
    }

    /// Changes how often expired records are removed, for all clones. It goes on until the last of
    /// them, and of their layers, is dropped.
    #[must_use]
    pub fn sweeping(self, sweeping: Sweeping) -> Self {
        self.engine.sweeper.set(sweeping);
        self
    }

    /// The secret that `store` keeps for its installation.
    pub async fn stored_secret(store: &dyn FullStore) -> Result<Secret, StoreError> {
        let kept = store.fact_or(SECRET, Secret::random().as_bytes()).await?;
        Ok(Secret::from_bytes(&kept))
    }

    /// The installation's secret, for what else its nodes must be able to tell from forgeries.
    pub fn secret(&self) -> &Secret {
        &self.engine.secret
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// A layer for routes with this policy.
    pub fn layer(&self, policy: Policy) -> IdempotencyLayer {
        IdempotencyLayer::new(self.engine.clone(), policy)
    }

    /// A call of `function` under `key`, to be made once.
    pub fn once(&self, function: &str, key: Key) -> Once {
        Once::new(self.engine.clone(), function, key)
    }

    /// Records what an earlier process answered and could not record, and frees the keys that it could not
    /// free. To be done before the first request: until then such a key looks interrupted.
    pub async fn land_spooled(&self) {
        self.engine.landing.land_spooled().await;
    }

    /// Limit of the bytes that the store takes: none unless set. Whoever knows them reports them there.
    pub fn store_budget(&self) -> &StoreBudget {
        &self.engine.store_budget
    }

    /// How many requests with keys are under way, whether or not their clients are still there.
    pub fn running(&self) -> usize {
        self.engine.work.len()
    }

    /// How many of them wait for the run of another.
    pub fn waiting(&self) -> usize {
        self.engine.waiters.in_all()
    }

    /// Waits until no run is going on, and until the store has taken what it could not take before. New runs may
    /// still begin: stop those first. A store that stays away is waited for as long as the caller likes; only a
    /// second where the spool has everything for the next process.
    pub async fn drained(&self) {
        self.engine.work.close();
        self.engine.work.wait().await;
        self.engine.work.reopen();
        self.engine.landing.drained().await;
    }

    /// Spools what the store has not taken and the spool has not got yet, for the next process. To be done last,
    /// also where [`Idempotency::drained`] was given up.
    pub async fn spool_rest(&self) {
        self.engine.landing.spool_rest().await;
    }
}

impl Engine {
    /// Warns if this record has just become held.
    pub(crate) async fn warn_if_held(&self, id: &RecordId, cause: &str) {
        if let Ok(Some(record)) = self.store.get(id).await
            && matches!(record.state, State::Held { .. })
        {
            note_held(&self.quotas, id, &record.label, record.keepsake.as_deref(), cause);
        }
    }

    /// Runs `work` on a task of its own: it ends even if whoever asked for it goes away.
    pub(crate) fn detach(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.work.spawn(work);
    }

    /// As [`Engine::detach`], but as far as `work` comes at once it is done here: a task costs more
    /// than a replay does.
    pub(crate) async fn see_through<W>(&self, mut work: Pin<Box<W>>) -> Seen<W::Output>
    where
        W: Future<Output: Send> + Send + 'static,
    {
        let _counted = self.work.token();
        // There is no await between the first step and the task, so nobody can leave in between.
        match poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
            Poll::Ready(done) => Seen::Done(done),
            Poll::Pending => {
                let (tell, told) = oneshot::channel();
                self.detach(async move {
                    // Whoever asked may have gone; what was recorded is there for the retry.
                    let _gone = tell.send(work.await);
                });
                Seen::Going(told)
            }
        }
    }
}

/// How far work has come.
pub(crate) enum Seen<T> {
    /// It ended at once.
    Done(T),
    /// It goes on by itself, and will tell its end.
    Going(oneshot::Receiver<T>),
}
