//! [`Link`]: a connection that is shared by all its callers, and made again when it was lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, Value, cmd};
use selfsame_core::StoreErrorKind;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::scripts::Call;
use super::trouble::{Access, Fault};

/// How many calls may wait to be sent; one more waits outside.
const QUEUE_MAX: usize = 1024;

/// A connection, while there is one.
pub(super) struct Link {
    client: Client,
    time_out: Duration,
    /// How many replicas must have what a script wrote.
    wait_replicas: u32,
    current: RwLock<Option<Session>>,
    /// Held by whoever makes the next connection.
    making: Mutex<()>,
    made: AtomicU64,
}

#[derive(Clone)]
struct Session {
    connection: MultiplexedConnection,
    number: u64,
}

/// What is asked: each may be sent twice.
pub(super) enum Ask<'a> {
    Command(&'a Cmd),
    All(&'a Pipeline),
    Script(&'a Call),
}

impl Link {
    pub(super) fn new(client: Client, time_out: Duration, wait_replicas: u32) -> Self {
        Self {
            client,
            time_out,
            wait_replicas,
            current: RwLock::default(),
            making: Mutex::default(),
            made: AtomicU64::new(0),
        }
    }

    /// What Redis answers. A call whose answer was not heard in half of the time is made once more,
    /// over a new connection.
    pub(super) async fn ask(&self, access: Access, ask: Ask<'_>) -> Result<Value, Fault> {
        let begun = Instant::now();
        let first = match self.ask_once(access, &ask, begun + self.time_out / 2).await {
            Err(fault) if fault.is_over => fault,
            answered => return answered,
        };
        let second = self.ask_once(access, &ask, begun + self.time_out).await;
        second.map_err(|fault| match first.kind {
            // What is known of the second says nothing of the first.
            StoreErrorKind::MayHaveLanded => Fault { kind: first.kind, ..fault },
            _ => fault,
        })
    }

    /// The same for who is in a hurry: it is made once more only where the connection was lost, and all of the
    /// time is for both.
    pub(super) async fn ask_within(
        &self,
        time_out: Duration,
        access: Access,
        ask: Ask<'_>,
    ) -> Result<Value, Fault> {
        let until = Instant::now() + time_out;
        match self.ask_once(access, &ask, until).await {
            Err(fault) if fault.is_over && Instant::now() < until => {
                self.ask_once(access, &ask, until).await
            }
            answered => answered,
        }
    }

    async fn ask_once(
        &self,
        access: Access,
        ask: &Ask<'_>,
        until: Instant,
    ) -> Result<Value, Fault> {
        let session = self.session(until).await?;
        let mut connection = session.connection;
        let answer = async {
            match ask {
                Ask::Command(command) => command.query_async(&mut connection).await,
                Ask::All(pipeline) => pipeline.query_async(&mut connection).await,
                Ask::Script(call) => match call.by_name().query_async(&mut connection).await {
                    Err(error) if Fault::of(&error, access).is_unknown_script => {
                        call.in_full().query_async(&mut connection).await
                    }
                    answer => answer,
                },
            }
        };
        let answer = match timeout_at(until, answer).await {
            Ok(answer) => answer.map_err(|error| Fault::of(&error, access)),
            Err(_) => Err(Fault::timed_out(access, self.time_out)),
        };
        let answer = match (answer, ask) {
            (Ok(answer), Ask::Script(call)) if self.wait_replicas > 0 && call.wrote(&answer) => {
                self.replicated(&mut connection, until).await.map(|()| answer)
            }
            (answer, _) => answer,
        };
        if answer.as_ref().is_err_and(|fault| fault.is_over) {
            self.leave(session.number);
        }
        answer
    }

    /// Waits until enough replicas have what was written over this connection.
    async fn replicated(
        &self,
        connection: &mut MultiplexedConnection,
        until: Instant,
    ) -> Result<(), Fault> {
        // Half of what is left, so that Redis can say how many there are.
        let left = until.saturating_duration_since(Instant::now()) / 2;
        let mut wait = cmd("WAIT");
        wait.arg(self.wait_replicas).arg(left.as_millis().max(1).to_string());
        match timeout_at(until, wait.query_async(connection)).await {
            Ok(Ok(replicas)) if replicas >= i64::from(self.wait_replicas) => Ok(()),
            Ok(Ok(replicas)) => Err(Fault::too_few(replicas, self.wait_replicas)),
            Ok(Err(error)) => {
                // Whatever is wrong with waiting, it was written.
                let fault = Fault::of(&error, Access::Write);
                Err(Fault { kind: StoreErrorKind::MayHaveLanded, ..fault })
            }
            Err(_) => Err(Fault::timed_out(Access::Write, self.time_out)),
        }
    }

    async fn session(&self, until: Instant) -> Result<Session, Fault> {
        let late = || Fault::not_written(format!("no connection within {:?}", self.time_out));
        let known = || self.current.read().clone();
        if let Some(session) = known() {
            return Ok(session);
        }
        let _making = timeout_at(until, self.making.lock()).await.map_err(|_| late())?;
        if let Some(session) = known() {
            return Ok(session);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE_MAX);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let connection = timeout_at(until, connecting).await.map_err(|_| late())?;
        let connection = connection
            .map_err(|error| Fault::not_written(format!("no connection to Redis: {error}")))?;
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let session = Session { connection, number };
        *self.current.write() = Some(session.clone());
        Ok(session)
    }

    /// Nobody else begins anything over this connection.
    fn leave(&self, number: u64) {
        let mut current = self.current.write();
        if current.as_ref().is_some_and(|session| session.number == number) {
            *current = None;
        }
    }
}
