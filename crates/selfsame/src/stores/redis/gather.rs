//! [`Gather`]: commands of many callers that go over a connection together.
//!
//! A connection sends at once what it is given, and that is a call of the system, which takes longer than all else, here and
//! where it is read. Callers come in crowds, when the answers to many of them were read together. So what the first of
//! them has to say waits until all have run that can, and goes with what they have to say. Nobody waits for an answer
//! to others. What is read behind a write is read once for a crowd, and of scripts that can be shared one is run.

use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::scripts::Call;
use crate::background;

/// How many callers go together at most: their answers are heard together, too.
const TOGETHER_MAX: usize = 16;

/// What is to be read behind a write.
pub(super) type Behind = Arc<[Cmd]>;

/// A connection, and what is about to be sent over it.
pub(super) struct Gather {
    connection: MultiplexedConnection,
    waiting: Mutex<Vec<(Wish, Answers)>>,
}

/// What a caller asks.
enum Wish {
    Commands(Vec<Cmd>, Option<Behind>),
    Script(Arc<Call>),
}

/// Where the answers go.
type Answers = oneshot::Sender<RedisResult<Vec<Value>>>;

impl Gather {
    pub(super) fn over(connection: MultiplexedConnection) -> Arc<Self> {
        Arc::new(Self { connection, waiting: Mutex::default() })
    }

    /// For what is said by itself.
    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    /// The answers to these commands, and to those behind them; errors of Redis' are among them. They are sent in their
    /// order, and nothing of anybody else's is in between.
    pub(super) async fn ask(
        self: &Arc<Self>,
        commands: Vec<Cmd>,
        behind: Option<Behind>,
    ) -> RedisResult<Vec<Value>> {
        self.wish(Wish::Commands(commands, behind)).await
    }

    /// What a script says to this call, which may be shared.
    pub(super) async fn call(self: &Arc<Self>, call: &Arc<Call>) -> RedisResult<Vec<Value>> {
        self.wish(Wish::Script(call.clone())).await
    }

    async fn wish(self: &Arc<Self>, wish: Wish) -> RedisResult<Vec<Value>> {
        let (answers, heard) = oneshot::channel();
        let is_one_too_many = {
            let mut waiting = self.waiting.lock();
            waiting.push((wish, answers));
            waiting.len() % TOGETHER_MAX == 1
        };
        if is_one_too_many {
            background::spawn(send(self.clone()));
        }
        let ended = || RedisError::from(std::io::Error::other("nobody has sent it"));
        heard.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Those who go together next.
    fn next(&self) -> Crowd {
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(TOGETHER_MAX);
        let mut crowd = Crowd::default();
        // Who has given up by now need not be asked what became of it.
        let heard = waiting.drain(..count).filter(|(_, answers)| !answers.is_closed());
        heard.for_each(|(wish, answers)| crowd.join(wish, answers));
        crowd
    }
}

/// Sends what waits, once for each crowd.
async fn send(gather: Arc<Gather>) {
    yield_now().await;
    let mut crowd = gather.next();
    let pipeline = crowd.pipeline();
    if !pipeline.is_empty() {
        let mut connection = gather.connection();
        crowd.hand_out(connection.req_packed_commands(&pipeline, 0, pipeline.len()).await);
    }
}

/// Callers that go together: their commands, then the scripts they share, then what is to be read behind all that.
#[derive(Default)]
struct Crowd {
    commands: Vec<Cmd>,
    askers: Vec<Asker>,
    parties: Vec<Party>,
    behind: Vec<Behind>,
}

/// A caller that has commands of its own.
struct Asker {
    count: usize,
    /// Which of those behind it waits for.
    behind: Option<usize>,
    answers: Answers,
}

/// Callers that share a script.
struct Party {
    calls: Vec<Arc<Call>>,
    answers: Vec<Answers>,
}

impl Crowd {
    fn join(&mut self, wish: Wish, answers: Answers) {
        match wish {
            Wish::Commands(commands, wanted) => {
                let behind = wanted.map(|wanted| self.place_behind(wanted));
                self.askers.push(Asker { count: commands.len(), behind, answers });
                self.commands.extend(commands);
            }
            Wish::Script(call) => {
                let party = self.parties.iter_mut().find(|party| party.calls[0].goes_with(&call));
                match party {
                    Some(party) => {
                        party.calls.push(call);
                        party.answers.push(answers);
                    }
                    None => self.parties.push(Party { calls: vec![call], answers: vec![answers] }),
                }
            }
        }
    }

    fn place_behind(&mut self, wanted: Behind) -> usize {
        let known = self.behind.iter().position(|behind| Arc::ptr_eq(behind, &wanted));
        known.unwrap_or_else(|| {
            self.behind.push(wanted);
            self.behind.len() - 1
        })
    }

    /// All that is to be sent.
    fn pipeline(&mut self) -> Pipeline {
        let commands = mem::take(&mut self.commands).into_iter();
        let commands =
            commands.chain(self.parties.iter().map(|party| Call::together(&party.calls)));
        let behind = self.behind.iter().flat_map(|behind| behind.iter().cloned());
        let mut pipeline = Pipeline::new();
        for command in commands.chain(behind) {
            pipeline.add_command(command);
        }
        pipeline
    }

    /// Gives each what it has asked for.
    fn hand_out(self, heard: RedisResult<Vec<Value>>) {
        // Who asked may have given up.
        let tell = |answers: Answers, said| drop(answers.send(said));
        let mut all = match heard {
            Ok(all) => all.into_iter(),
            Err(error) => {
                let of_scripts = self.parties.into_iter().flat_map(|party| party.answers);
                let of_all = self.askers.into_iter().map(|asker| asker.answers).chain(of_scripts);
                of_all.for_each(|answers| tell(answers, Err(error.clone())));
                return;
            }
        };
        let mut next = |count: usize| all.by_ref().take(count).collect::<Vec<_>>();
        let own: Vec<_> = self.askers.iter().map(|asker| next(asker.count)).collect();
        let said: Vec<_> = self.parties.iter().map(|_| next(1)).collect();
        let read: Vec<_> = self.behind.iter().map(|behind| next(behind.len())).collect();
        for (asker, mut own) in self.askers.into_iter().zip(own) {
            if let Some(at) = asker.behind {
                own.extend_from_slice(&read[at]);
            }
            tell(asker.answers, Ok(own));
        }
        for (party, said) in self.parties.into_iter().zip(said) {
            let each = match said.into_iter().next() {
                Some(Value::Array(each)) if each.len() == party.answers.len() => each,
                // It is of no use to anybody.
                other => vec![other.unwrap_or(Value::Nil); party.answers.len()],
            };
            for (answers, said) in party.answers.into_iter().zip(each) {
                tell(answers, Ok(vec![said]));
            }
        }
    }
}
