//! The upstream: a payments API whose ledger is the judge, and which can fail in every way.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use super::message::{self, Headers};
use super::{Gate, eventually};

/// One request that reached the upstream, which counts as work done.
#[derive(Debug, Clone)]
pub(crate) struct Effect {
    pub(crate) number: usize,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Headers,
    pub(crate) body: Vec<u8>,
}

/// What becomes of the connection after an effect.
pub(crate) enum Then {
    KeepOpen,
    Close,
}

type Behaviour = dyn Fn(&Effect, &mut TcpStream) -> Then + Send + Sync;

/// The upstream. It lives in the test, so it outlives every gateway.
pub(crate) struct Ledger {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    effects: Mutex<Vec<Effect>>,
    behaviour: Mutex<Arc<Behaviour>>,
}

impl Ledger {
    /// An upstream that answers each request with 201 and a charge of its own.
    pub(crate) fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// The same, where it is expected.
    pub(crate) fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let behaviour: Arc<Behaviour> = Arc::new(|effect, client| {
            reply(client, 201, &[], &format!(r#"{{"charge":"ch_{}"}}"#, effect.number))
        });
        let shared =
            Arc::new(Shared { effects: Mutex::default(), behaviour: Mutex::new(behaviour) });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let shared = serving.clone();
                std::thread::spawn(move || shared.serve(connection));
            }
        });
        Self { address, shared }
    }

    /// An upstream that answers each request with 201 and what `body` says, once the gate is open.
    pub(crate) fn gated(body: impl Fn(&Effect) -> String + Send + Sync + 'static) -> (Self, Gate) {
        let (ledger, gate) = (Self::start(), Gate::shut());
        let at_gate = gate.clone();
        ledger.behave(move |effect, client| {
            at_gate.pass();
            reply(client, 201, &[], &body(effect))
        });
        (ledger, gate)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, the upstream does this once it has written a request into its ledger.
    pub(crate) fn behave(
        &self,
        behaviour: impl Fn(&Effect, &mut TcpStream) -> Then + Send + Sync + 'static,
    ) {
        *self.shared.behaviour.lock().expect("no panic holds it") = Arc::new(behaviour);
    }

    /// How often work was done under `key`.
    pub(crate) fn effects(&self, key: &str) -> usize {
        self.of(key).len()
    }

    /// What was done under `key`.
    pub(crate) fn of(&self, key: &str) -> Vec<Effect> {
        let effects = self.shared.effects();
        effects
            .iter()
            .filter(|effect| effect.header("idempotency-key") == Some(key))
            .cloned()
            .collect()
    }

    /// Everything that reached the upstream.
    pub(crate) fn all(&self) -> Vec<Effect> {
        self.shared.effects().clone()
    }

    /// Waits until work was done `times` under `key`.
    pub(crate) fn wait_for(&self, key: &str, times: usize) {
        eventually("the upstream's work", || (self.effects(key) >= times).then_some(()));
    }
}

impl Effect {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        message::find(&self.headers, name)
    }
}

impl Shared {
    fn serve(&self, connection: TcpStream) {
        let mut writer = connection.try_clone().expect("a second handle");
        let mut reader = BufReader::new(connection);
        while let Ok(Some(request)) = message::read(&mut reader, false) {
            let mut words = request.start.split(' ').map(str::to_owned);
            let effect = {
                let mut effects = self.effects();
                let effect = Effect {
                    number: effects.len() + 1,
                    method: words.next().unwrap_or_default(),
                    target: words.next().unwrap_or_default(),
                    headers: request.headers,
                    body: request.body,
                };
                effects.push(effect.clone());
                effect
            };
            let behaviour = self.behaviour.lock().expect("no panic holds it").clone();
            if let Then::Close = behaviour(&effect, &mut writer) {
                return;
            }
        }
    }

    fn effects(&self) -> MutexGuard<'_, Vec<Effect>> {
        self.effects.lock().expect("no panic holds it")
    }
}

/// Answers in full. A client that has gone is no concern of the upstream's.
pub(crate) fn reply(client: &mut TcpStream, status: u16, headers: &[&str], body: &str) -> Then {
    let mut head = format!("HTTP/1.1 {status} Status\r\nContent-Length: {}\r\n", body.len());
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    match client.write_all(format!("{head}\r\n{body}").as_bytes()) {
        Ok(()) => Then::KeepOpen,
        Err(_) => Then::Close,
    }
}
