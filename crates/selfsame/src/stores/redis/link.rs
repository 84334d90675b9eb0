//! [`Link`]: a connection that is shared by all its callers, and made again when it was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex as Lock, RwLock};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ConnectionInfo, Pipeline, RedisResult, Value, cmd};
use selfsame_core::StoreErrorKind;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::address::Place;
use super::gather::{Behind, Gather};
use super::load::Load;
use super::safety::Safety;
use super::scripts::Call;
use super::source::Source;
use super::trouble::{Access, Fault, RedisOpenError};

/// For how long it is known that a server keeps records, or that it does not.
const SAFE_FOR: Duration = Duration::from_secs(30);
const UNSAFE_FOR: Duration = Duration::from_secs(1);

/// How many calls may wait to be sent; one more waits outside.
const QUEUE_MAX: usize = 1024;
/// Factor by which an answer may be slower than the slowest of the last ones before its connection is given up.
const SLOWER_THAN_SLOWEST: u32 = 4;

/// A connection, while there is one.
pub(super) struct Link {
    source: Source,
    time_out: Duration,
    /// How many replicas must have what a script wrote.
    wait_replicas: u32,
    /// What is asked of the server, if anything.
    safety: Option<Arc<Safety>>,
    /// Of this and others to the same server.
    load: Arc<Load>,
    current: RwLock<Option<Session>>,
    /// Held by whoever makes the next connection.
    making: Mutex<()>,
    made: AtomicU64,
    /// Microseconds that the slowest of the last answers took, of those that are measured.
    slowest_us: AtomicU64,
}

#[derive(Clone)]
struct Session {
    gather: Arc<Gather>,
    number: u64,
    /// Of whom it was heard where to connect to.
    era: u64,
    info: Arc<ConnectionInfo>,
    checked: Arc<Lock<Checked>>,
}

/// When the server was asked whether it keeps records, and what is wrong if it does not.
struct Checked {
    at: Instant,
    refusal: Option<String>,
}

/// What is asked: each may be sent twice, and is about one slot of a cluster.
pub(super) enum Ask<'a> {
    Command(&'a Cmd),
    All(&'a Pipeline),
    /// A write and, behind it, reads: whatever becomes of those, it was done. Not in a cluster, where each of them may be
    /// sent elsewhere.
    Write(&'a Cmd, &'a Behind),
    Script(&'a Arc<Call>),
}

impl Ask<'_> {
    /// Whether it may be about several keys.
    pub(super) fn is_about_many(&self) -> bool {
        // Beside one key there is the time.
        matches!(self, Self::All(pipeline) if pipeline.len() > 2)
    }
}

impl Link {
    /// To a server that is taken as it is.
    pub(super) fn new(source: impl Into<Source>, time_out: Duration) -> Self {
        Self {
            source: source.into(),
            time_out,
            wait_replicas: 0,
            safety: None,
            load: Arc::default(),
            current: RwLock::default(),
            making: Mutex::default(),
            made: AtomicU64::new(0),
            slowest_us: AtomicU64::new(0),
        }
    }

    /// To a master that keeps records.
    pub(super) fn safe(self, safety: Arc<Safety>) -> Self {
        Self { safety: Some(safety), ..self }
    }

    /// And so many replicas with it.
    pub(super) fn wait_replicas(self, wait_replicas: u32) -> Self {
        Self { wait_replicas, ..self }
    }

    /// Its calls are counted together with others.
    pub(super) fn counted(self, load: Arc<Load>) -> Self {
        Self { load, ..self }
    }

    pub(super) fn time_out(&self) -> Duration {
        self.time_out
    }

    /// What Redis answers. A call whose answer was not heard in half of the time is made once more,
    /// over a new connection.
    pub(super) async fn ask(&self, access: Access, ask: Ask<'_>) -> Result<Value, Fault> {
        let (begun, time_out) = (Instant::now(), access.share_of(self.time_out));
        let first = match self.ask_once(access, &ask, begun + time_out / 2).await {
            Err(fault) if fault.is_over => fault,
            answered => return answered,
        };
        let second = self.ask_once(access, &ask, begun + time_out).await;
        // What is known of the second says nothing of the first.
        second.map_err(|fault| fault.after(first.kind))
    }

    /// The same for who is in a hurry: it is made once more only where the connection was lost, and all of the
    /// time is for both.
    pub(super) async fn ask_within(
        &self,
        time_out: Duration,
        access: Access,
        ask: Ask<'_>,
    ) -> Result<Value, Fault> {
        self.ask_until(Instant::now() + time_out, access, ask).await
    }

    /// Like [`Link::ask`], for a call that is repeated soon: a connection that does not answer within `limit` is given up,
    /// unless its answers are as slow as that. The next call makes another one, for which there is the usual time.
    pub(super) async fn ask_impatiently(
        &self,
        limit: Duration,
        access: Access,
        ask: Ask<'_>,
    ) -> Result<Value, Fault> {
        let begun = Instant::now();
        let limit = self.limit(limit, self.time_out);
        let answer = match limit < self.time_out {
            true => self.ask_until(begun + limit, access, ask).await,
            false => self.ask(access, ask).await,
        };
        if answer.is_ok() {
            self.took(begun.elapsed());
        }
        answer
    }

    /// Time after which the connection that there is is given up; `usual` where there is none yet.
    pub(super) fn limit(&self, limit: Duration, usual: Duration) -> Duration {
        let slowest = Duration::from_micros(self.slowest_us.load(Ordering::Relaxed));
        match self.known() {
            Some(_) => limit.max(slowest * SLOWER_THAN_SLOWEST).min(usual),
            None => usual,
        }
    }

    /// Notes the time that an answer took. A slow one counts for the next dozens.
    pub(super) fn took(&self, time: Duration) {
        let took = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let slowest = self.slowest_us.load(Ordering::Relaxed);
        self.slowest_us.store(took.max(slowest - slowest / 16), Ordering::Relaxed);
    }

    async fn ask_until(
        &self,
        until: Instant,
        access: Access,
        ask: Ask<'_>,
    ) -> Result<Value, Fault> {
        let first = match self.ask_once(access, &ask, until).await {
            Err(fault) if fault.is_over && Instant::now() < until => fault,
            answered => return answered,
        };
        let second = self.ask_once(access, &ask, until).await;
        second.map_err(|fault| fault.after(first.kind))
    }

    /// What Redis answers by then.
    pub(super) async fn ask_once(
        &self,
        access: Access,
        ask: &Ask<'_>,
        until: Instant,
    ) -> Result<Value, Fault> {
        let _under_way = self.load.begin();
        let session = self.session_for(access, until).await?;
        let answer = timeout_at(until, send(&session.gather, access, ask)).await;
        self.heard(&session, answer, access, ask, until).await
    }

    /// The same where what is asked for is on its way to this server.
    pub(super) async fn ask_ahead(
        &self,
        access: Access,
        ask: &Ask<'_>,
        until: Instant,
    ) -> Result<Value, Fault> {
        let _under_way = self.load.begin();
        let session = self.session_for(access, until).await?;
        let answer = timeout_at(until, send_ahead(&session.gather, access, ask)).await;
        self.heard(&session, answer, access, ask, until).await
    }

    async fn heard(
        &self,
        session: &Session,
        answer: Result<RedisResult<Value>, tokio::time::error::Elapsed>,
        access: Access,
        ask: &Ask<'_>,
        until: Instant,
    ) -> Result<Value, Fault> {
        let answer = match answer {
            Ok(answer) => answer.map_err(|error| Fault::of(&error, access)),
            Err(_) => Err(Fault::timed_out(access)),
        };
        let answer = match (answer, ask) {
            (Ok(answer), Ask::Script(call)) if self.wait_replicas > 0 && call.wrote(&answer) => {
                let mut connection = session.gather.connection();
                self.replicated(&mut connection, until).await.map(|()| answer)
            }
            (answer, _) => answer,
        };
        if answer.as_ref().is_err_and(|fault| fault.is_over) {
            self.source.refuse(&session.info);
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
            Err(_) => Err(Fault::timed_out(Access::Write)),
        }
    }

    /// The connection, and the certainty that the server keeps records where that is needed.
    async fn session_for(&self, access: Access, until: Instant) -> Result<Session, Fault> {
        let known = self.known();
        let session = match known {
            Some(session) => session,
            // It is rare, and its future large.
            None => Box::pin(self.connect(until)).await?,
        };
        if access == Access::Claim
            && let Some(safety) = &self.safety
        {
            self.keeps_records(&session, safety, until).await?;
        }
        Ok(session)
    }

    fn known(&self) -> Option<Session> {
        let current = self.current.read();
        current.as_ref().filter(|session| session.era == self.source.era()).cloned()
    }

    async fn connect(&self, until: Instant) -> Result<Session, Fault> {
        let late = || Fault::not_written(format!("no connection within {:?}", self.time_out));
        let _making = timeout_at(until, self.making.lock()).await.map_err(|_| late())?;
        if let Some(session) = self.known() {
            return Ok(session);
        }
        let session = timeout_at(until, self.make()).await.map_err(|_| late())??;
        *self.current.write() = Some(session.clone());
        Ok(session)
    }

    async fn make(&self) -> Result<Session, Fault> {
        let (client, era) = self.source.client().await?;
        let info = client.get_connection_info().clone();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE_MAX);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection
            .map_err(|error| Fault::not_written(format!("no connection to Redis: {error}")))
            .inspect_err(|_| self.source.refuse(&info))?;
        let mut refusal = None;
        if let Some(safety) = &self.safety {
            let checked = safety.check(&mut connection, &info).await;
            refusal = refusal_of(checked).inspect_err(|_| self.source.refuse(&info))?;
        }
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let checked = Arc::new(Lock::new(Checked { at: Instant::now(), refusal }));
        let gather = Gather::over(connection);
        Ok(Session { gather, number, era, info: Arc::new(info), checked })
    }

    /// Refuses a claim where it would not be kept. That is asked again from time to time.
    async fn keeps_records(
        &self,
        session: &Session,
        safety: &Safety,
        until: Instant,
    ) -> Result<(), Fault> {
        let is_old = {
            let mut checked = session.checked.lock();
            let lasts = if checked.refusal.is_some() { UNSAFE_FOR } else { SAFE_FOR };
            let is_old = checked.at.elapsed() >= lasts;
            if is_old {
                // Others need not ask, too.
                checked.at = Instant::now();
            }
            is_old
        };
        if is_old {
            let mut connection = session.gather.connection();
            let check = Box::pin(safety.check(&mut connection, &session.info));
            let Ok(checked) = timeout_at(until, check).await else {
                self.leave(session.number);
                return Err(Fault::not_written("Redis did not say whether it keeps records"));
            };
            let refusal = refusal_of(checked).inspect_err(|_| self.leave(session.number))?;
            session.checked.lock().refusal = refusal;
        }
        match &session.checked.lock().refusal {
            Some(refusal) => Err(Fault::refused(refusal)),
            None => Ok(()),
        }
    }

    /// Refuses a server that is not as it must be.
    pub(super) async fn verify(&self, safety: &Safety) -> Result<(), RedisOpenError> {
        let until = Instant::now() + self.time_out;
        let failed = |cause| RedisOpenError::Connection { place: self.source.place(), cause };
        let session = self.session_for(Access::Read, until).await;
        let Session { gather, info, .. } = session.map_err(|fault| failed(fault.message))?;
        let mut connection = gather.connection();
        let checked = timeout_at(until, safety.check(&mut connection, &info)).await;
        let late = || failed("it does not say how it keeps records".to_owned());
        checked.unwrap_or_else(|_| Err(late())).inspect_err(|_| {
            self.source.refuse(&info);
            self.leave_this();
        })
    }

    /// Number of connections that were made.
    pub(super) fn connections(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Makes a connection if there is none.
    pub(super) async fn connect_now(&self) -> Result<(), Fault> {
        let until = Instant::now() + self.time_out / 2;
        self.session_for(Access::Read, until).await.map(drop)
    }

    /// Where the connection leads that there is.
    pub(super) fn reached(&self) -> Option<Place> {
        Place::of(&self.known()?.info)
    }

    /// Begins nothing more over the connection there is.
    pub(super) fn leave_this(&self) {
        *self.current.write() = None;
    }

    /// Nobody else begins anything over this connection.
    fn leave(&self, number: u64) {
        let mut current = self.current.write();
        if current.as_ref().is_some_and(|session| session.number == number) {
            *current = None;
        }
    }
}

/// What is wrong with a server for new keys; it is a fault if nothing at all can be asked of it.
fn refusal_of(checked: Result<(), RedisOpenError>) -> Result<Option<String>, Fault> {
    match checked {
        Ok(()) => Ok(None),
        Err(error @ (RedisOpenError::Unsafe { .. } | RedisOpenError::Unverified { .. })) => {
            Ok(Some(error.to_string()))
        }
        Err(error) => Err(Fault::not_written(error.to_string())),
    }
}

async fn send(gather: &Arc<Gather>, access: Access, ask: &Ask<'_>) -> RedisResult<Value> {
    let one = async |command: Cmd| one(gather.ask(vec![command], None).await?);
    match ask {
        Ask::Command(command) => one(Cmd::clone(command)).await,
        Ask::All(pipeline) => all(gather.ask(pipeline.cmd_iter().cloned().collect(), None).await?),
        Ask::Write(write, behind) => {
            let commands = vec![Cmd::clone(write)];
            write_first(gather.ask(commands, Some(Arc::clone(behind))).await?)
        }
        Ask::Script(call) => {
            let said = match call.is_shared() {
                true => self::one(gather.call(call).await?),
                false => one(call.by_name().clone()).await,
            };
            let in_full = is_unknown(&said, access);
            let said = if in_full { one(call.in_full()).await } else { said };
            said.map(|said| call.own(said))
        }
    }
}

/// The same to a server that has not got the slot yet: it takes a command behind `ASKING` only.
async fn send_ahead(gather: &Arc<Gather>, access: Access, ask: &Ask<'_>) -> RedisResult<Value> {
    let one = async |command: Cmd| one(after_asking(gather, [&command]).await?);
    match ask {
        Ask::Command(command) => one(Cmd::clone(command)).await,
        Ask::All(pipeline) => all(after_asking(gather, pipeline.cmd_iter()).await?),
        Ask::Write(..) => unreachable!("slots move in clusters only"),
        Ask::Script(call) => {
            let said = one(call.by_name().clone()).await;
            let in_full = is_unknown(&said, access);
            let said = if in_full { one(call.in_full()).await } else { said };
            said.map(|said| call.own(said))
        }
    }
}

/// Whether a server does not know the script by its name.
fn is_unknown(said: &RedisResult<Value>, access: Access) -> bool {
    said.as_ref().is_err_and(|error| Fault::of(error, access).is_unknown_script)
}

async fn after_asking<'a>(
    gather: &Arc<Gather>,
    commands: impl IntoIterator<Item = &'a Cmd>,
) -> RedisResult<Vec<Value>> {
    let both = |command: &Cmd| [cmd("ASKING"), command.clone()];
    let answers = gather.ask(commands.into_iter().flat_map(both).collect(), None).await?;
    Ok(answers.into_iter().skip(1).step_by(2).collect())
}

/// The only answer.
fn one(answers: Vec<Value>) -> RedisResult<Value> {
    answers.into_iter().next().unwrap_or(Value::Nil).extract_error()
}

/// All answers, or the first error.
fn all(answers: Vec<Value>) -> RedisResult<Value> {
    Value::Array(answers).extract_error()
}

/// All answers, or the error of the first. Other errors are among the answers.
fn write_first(mut answers: Vec<Value>) -> RedisResult<Value> {
    if let Some(first) = answers.first_mut() {
        *first = std::mem::replace(first, Value::Nil).extract_error()?;
    }
    Ok(Value::Array(answers))
}
