//! [`Link`]: a session that is made when it is needed, and again when it was lost.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::session::{Session, Target};
use super::trouble::Fault;

/// How long nobody tries to connect after it failed, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Link {
    target: Target,
    state: Mutex<State>,
    /// One connects, and the others wait for it: a database that comes back is not met by
    /// thousands.
    connecting: Semaphore,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    failure: Option<Failure>,
}

#[derive(Clone)]
struct Failure {
    fault: Fault,
    pause: Duration,
    until: Instant,
}

impl Link {
    pub(super) fn new(target: Target) -> Self {
        Self { target, state: Mutex::default(), connecting: Semaphore::new(1) }
    }

    /// The same, with a session that is there already.
    pub(super) fn over(target: Target, session: Session) -> Self {
        let link = Self::new(target);
        link.state.lock().session = Some(Arc::new(session));
        link
    }

    /// A good session, or why there is none.
    pub(super) async fn session(&self) -> Result<Arc<Session>, Fault> {
        if let Some(known) = self.known() {
            return known;
        }
        let _turn = self.connecting.acquire().await.expect("it is never closed");
        if let Some(known) = self.known() {
            return known;
        }
        let connected = self.target.connect().await.map(Arc::new);
        let mut state = self.state.lock();
        match &connected {
            Ok(session) => {
                *state = State { session: Some(session.clone()), failure: None };
            }
            Err(fault) => {
                let pause = state.failure.as_ref().map_or(FIRST_PAUSE, |last| last.pause * 2);
                let pause = pause.min(LONGEST_PAUSE);
                let until = Instant::now() + pause;
                state.session = None;
                state.failure = Some(Failure { fault: fault.clone(), pause, until });
            }
        }
        connected
    }

    /// Whether there is no session because connecting has just failed.
    pub(super) fn has_just_failed(&self) -> bool {
        matches!(self.known(), Some(Err(_)))
    }

    /// The session, or the last failure while it is fresh.
    fn known(&self) -> Option<Result<Arc<Session>, Fault>> {
        let state = self.state.lock();
        if let Some(session) = state.session.as_ref().filter(|session| session.is_good()) {
            return Some(Ok(session.clone()));
        }
        let failure = state.failure.as_ref().filter(|failure| Instant::now() < failure.until);
        failure.map(|failure| Err(failure.fault.clone()))
    }
}
