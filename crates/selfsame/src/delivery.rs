//! The way back from a detached run to whoever still waits for it.

use std::any::Any;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::response::Parts;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::body::{BoxError, Pumped, ResponseBody};
use crate::buffer_limit::{BufferAllowance, hold};
use crate::dialect::Dialect;
use crate::engine::Engine;
use crate::outcome::Served;
use crate::prefer::{self, PREFERENCE_APPLIED};
use crate::reject::{self, Refusal};

/// How many frames of a large answer may wait for a slow client.
const FRAMES_MAX: usize = 16;

/// What a detached run hands back.
#[expect(clippy::large_enum_variant, reason = "a response is the rule")]
pub(crate) enum Reply<R, E> {
    Response(Response<ResponseBody<R>>),
    /// The inner service's own error.
    Error(E),
    /// The inner service panicked; whoever called it shall see that.
    Panic(Box<dyn Any + Send>),
}

/// A reply, with what is left to do once it is on its way.
pub(crate) struct Delivery<R, E> {
    reply: Reply<R, E>,
    pump: Option<Pump<R>>,
}

impl<R, E> Delivery<R, E> {
    pub(crate) fn of(response: Response<ResponseBody<R>>) -> Self {
        Self { reply: Reply::Response(response), pump: None }
    }

    pub(crate) fn error(error: E) -> Self {
        Self { reply: Reply::Error(error), pump: None }
    }

    pub(crate) fn panic(payload: Box<dyn Any + Send>) -> Self {
        Self { reply: Reply::Panic(payload), pump: None }
    }

    /// An answer too large to keep, as it comes.
    pub(crate) fn pumped(parts: Parts, body: Pumping<R>, deadline: Instant) -> Self {
        let (client, frames) = mpsc::channel(FRAMES_MAX);
        let response = Response::from_parts(parts, ResponseBody::pumped(frames));
        let pump = Pump { client, body, deadline };
        Self { reply: Reply::Response(response), pump: Some(pump) }
    }

    /// The same, to a request that `waited` for another's run, as its client `preferred` or not.
    pub(crate) fn after(mut self, waited: Option<Duration>, preferred: Option<Duration>) -> Self {
        if let (Reply::Response(response), Some(waited)) = (&mut self.reply, waited) {
            if response.extensions().get() == Some(&Served::Replayed) {
                response.extensions_mut().insert(Served::Waited);
            }
            if preferred.is_some() {
                response.headers_mut().insert(PREFERENCE_APPLIED, prefer::applied(waited));
            }
        }
        self
    }

    /// The reply. A large answer is seen to its end on a task of its own.
    pub(crate) fn begin(self, engine: &Engine) -> Reply<R, E>
    where
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        if let Some(pump) = self.pump {
            engine.detach(pump.run());
        }
        self.reply
    }
}

impl<R, E> Reply<R, E> {
    /// As the service would have given it.
    pub(crate) fn unwrapped(self) -> Result<Response<ResponseBody<R>>, E> {
        match self {
            Self::Response(response) => Ok(response),
            Self::Error(error) => Err(error),
            Self::Panic(payload) => std::panic::resume_unwind(payload),
        }
    }
}

/// The reply of a run that goes on, if it comes in time. If not, the run goes on still.
pub(crate) async fn await_reply<R, E>(
    time: Duration,
    dialect: &Dialect,
    reply: oneshot::Receiver<Reply<R, E>>,
) -> Result<Response<ResponseBody<R>>, E> {
    match timeout(time, reply).await {
        Ok(Ok(reply)) => reply.unwrapped(),
        // The detached run itself came to grief; its lease ends it.
        Ok(Err(_)) => Ok(reject::answer(&Refusal::Held, dialect)),
        Err(_) => Ok(reject::answer(&Refusal::TimedOut, dialect)),
    }
}

/// Passes a large answer on, and drains it if the client goes: the work behind it is to end.
struct Pump<R> {
    client: mpsc::Sender<Pumped>,
    body: Pumping<R>,
    deadline: Instant,
}

/// The body of a large answer: what was read of it, and what is still to come.
pub(crate) struct Pumping<R> {
    pub(crate) begun: Vec<Bytes>,
    pub(crate) rest: Pin<Box<R>>,
    /// Counts what waits for the client.
    pub(crate) allowance: Option<BufferAllowance>,
}

impl<R> Pump<R>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    async fn run(self) {
        let Self { client, body: Pumping { begun, mut rest, allowance }, deadline } = self;
        let counted = |data| hold(allowance.as_ref(), data);
        let _late = timeout_at(deadline, async {
            for data in begun {
                let _gone = client.send(Pumped::Frame(Frame::data(data))).await;
            }
            loop {
                let step = match rest.frame().await {
                    Some(Ok(frame)) => Pumped::Frame(frame.map_data(counted)),
                    Some(Err(error)) => Pumped::Broken(error.into()),
                    None => Pumped::End,
                };
                let ends = !matches!(step, Pumped::Frame(_));
                let _gone = client.send(step).await;
                if ends {
                    break;
                }
            }
        })
        .await;
    }
}
