//! Rows 9 and 10, for a service in another language that saves recovery points: it is killed before and
//! behind each effect and each checkpoint, and the retry goes on.
//!
//! The service is the example as it is. All it does elsewhere passes through the test, which kills it
//! there: what it saves, on its way to the gateway, and what it asks of the payments API.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::harness::{
    Answer, Effect, Gateway, Ledger, Request, Then, eventually, is_long, reply, with_node_packages,
    with_python_packages,
};

/// What the service does elsewhere, in its order: the effect of a phase and that it is done. The
/// first effect is a row of its own.
const STEPS: [&str; 5] =
    ["ride_created", "/charges", "charge_created", "/receipts", "receipt_sent"];

/// When the service dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    /// The step was begun and not done.
    Before(&'static str),
    /// The step was done, and the service not told.
    Behind(&'static str),
}

/// What all that the service talks to has in common.
struct Shared {
    service: Mutex<Option<Child>>,
    plan: Mutex<Option<Killed>>,
    /// What came from the service, with the key it came under, or the claim.
    steps: Mutex<Vec<String>>,
    /// What was done under each key.
    effects: Mutex<BTreeMap<String, String>>,
    gateway: Mutex<Option<SocketAddr>>,
}

impl Shared {
    fn kill_if(&self, due: Killed) -> bool {
        let is_due = lock(&self.plan).take_if(|plan| *plan == due).is_some();
        if is_due && let Some(mut service) = lock(&self.service).take() {
            service.kill().expect("ours");
            service.wait().expect("ours");
        }
        is_due
    }

    /// Does a step for the service, which dies before or behind it if that is the plan.
    fn step(&self, step: &str, act: impl FnOnce() -> Answer) -> Option<Answer> {
        let step = STEPS.into_iter().find(|known| *known == step).expect("a step of the service");
        lock(&self.steps).push(step.to_owned());
        if self.kill_if(Killed::Before(step)) {
            return None;
        }
        let answer = act();
        (!self.kill_if(Killed::Behind(step))).then_some(answer)
    }

    /// An effect for each key, however often it is asked for.
    fn pay(&self, effect: &Effect) -> Answer {
        let key = effect.header("idempotency-key").expect("a derived key").to_owned();
        let mut effects = lock(&self.effects);
        let number = effects.len() + 1;
        let id = effects.entry(key).or_insert_with(|| format!("pay_{number}"));
        answer(200, &format!(r#"{{"id":"{id}"}}"#))
    }

    /// What the service saves, or reads again.
    fn pass_on(&self, effect: &Effect) -> Option<Answer> {
        let to = lock(&self.gateway).expect("the gateway serves");
        let request = Request::new(to, &effect.method, &effect.target).body(&effect.body);
        if effect.method == "GET" {
            return Some(request.send());
        }
        let saved: serde_json::Value = serde_json::from_slice(&effect.body).expect("JSON");
        let step = saved["recovery_point"].as_str().expect("a recovery point");
        self.step(step, || request.send())
    }
}

fn answer(status: u16, body: &str) -> Answer {
    let (headers, trailers) = Default::default();
    Answer { status, headers, body: body.into(), trailers }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().expect("no panic holds it")
}

/// The service behind a gateway, and what it talks to.
struct Stage<'a> {
    shared: Arc<Shared>,
    gateway: Gateway,
    payments: Ledger,
    listener: TcpListener,
    folder: tempfile::TempDir,
    command: &'a dyn Fn() -> Command,
}

impl<'a> Stage<'a> {
    fn set(command: &'a dyn Fn() -> Command) -> Self {
        let shared = Arc::new(Shared {
            service: Mutex::default(),
            plan: Mutex::default(),
            steps: Mutex::default(),
            effects: Mutex::default(),
            gateway: Mutex::default(),
        });
        let (payments, saving) = (Ledger::start(), Ledger::start());
        let at_payments = shared.clone();
        payments.behave(move |effect, client| {
            let answer = at_payments.step(&effect.target, || at_payments.pay(effect));
            give(client, answer)
        });
        let on_the_way = shared.clone();
        saving.behave(move |effect, client| give(client, on_the_way.pass_on(effect)));

        // The service takes over a socket that stays: nobody else can take its port while it is dead.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let settings = format!(
            "[checkpoints]\nlisten = \"127.0.0.1:0\"\nurl = \"http://{}\"\n\
             [idempotency]\nlease = \"1s\"\n",
            saving.address()
        );
        let upstream = listener.local_addr().expect("bound");
        let gateway = Gateway::before(upstream).with(&settings).start();
        *lock(&shared.gateway) = Some(gateway.checkpoints());
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        Self { shared, gateway, payments, listener, folder, command }
    }

    fn start_service(&self) {
        let socket = self.listener.try_clone().expect("a second handle");
        let child = (self.command)()
            .env("DATABASE", self.folder.path().join("rides"))
            .env("PAYMENTS", format!("http://{}", self.payments.address()))
            .stdin(Stdio::from(OwnedFd::from(socket)))
            .stdout(Stdio::null())
            .spawn()
            .expect("the service starts");
        *lock(&self.shared.service) = Some(child);
    }

    fn order(&self, key: &str) -> Answer {
        let request = self.gateway.post("/rides").key(key);
        request.json(r#"{"rider":"ann","fare":20}"#).send()
    }

    /// The ride of `key`, during which the service is killed once.
    fn ride(&self, key: &str, killed: Killed) {
        lock(&self.shared.steps).clear();
        *lock(&self.shared.plan) = Some(killed);
        let lost = self.order(key).refused("upstream-failed");
        assert_eq!(*lock(&self.shared.plan), None, "{killed:?}: it was not killed");
        let saved = killed != Killed::Before(STEPS[0]);
        assert_eq!(lost["retryable"], saved, "{killed:?}");
        self.start_service();
        if !saved {
            self.order(key).refused("outcome-unknown");
            let freed = self.gateway.keys(&["free", key]);
            assert!(freed.status.success(), "{freed:?}");
        }
        let first = eventually("the ride goes on", || {
            let answer = self.order(key);
            (answer.problem().as_deref() != Some("in-progress")).then_some(answer)
        });
        assert_eq!(first.status, 201, "{killed:?}: {}", first.text());
        self.order(key).replays(&first);
        assert_eq!(*lock(&self.shared.steps), steps_with(killed), "{killed:?}");
    }

    /// The keys of the rides, as the service has them.
    fn rides(&self) -> Vec<String> {
        let rides = self.gateway.request("GET", "/rides").send();
        serde_json::from_slice(&rides.body).expect("a list of keys")
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if let Some(mut service) = lock(&self.shared.service).take() {
            let _gone = service.kill();
            let _gone = service.wait();
        }
    }
}

fn give(client: &mut std::net::TcpStream, answer: Option<Answer>) -> Then {
    let Some(answer) = answer else { return Then::Close };
    match answer.status {
        // It has no length.
        204 => match std::io::Write::write_all(client, b"HTTP/1.1 204 No Content\r\n\r\n") {
            Ok(()) => Then::KeepOpen,
            Err(_) => Then::Close,
        },
        status => reply(client, status, &["Content-Type: application/json"], &answer.text()),
    }
}

/// What is asked for in all, where the service dies so: behind a checkpoint the next phase begins,
/// before it the same one once more.
fn steps_with(killed: Killed) -> Vec<&'static str> {
    let (Killed::Before(step) | Killed::Behind(step)) = killed;
    let at = STEPS.iter().position(|known| *known == step).expect("a step");
    let is_checkpoint = at % 2 == 0;
    let again = match killed {
        Killed::Behind(_) if is_checkpoint => at + 1,
        Killed::Before(_) if is_checkpoint => at.saturating_sub(1),
        _ => at,
    };
    [&STEPS[..=at], &STEPS[again..]].concat()
}

/// Ten kills, or a hundred where there is time, and one effect of each phase for each ride.
fn each_phase_is_done_once(command: &dyn Fn() -> Command) {
    let stage = Stage::set(command);
    stage.start_service();
    let rounds = if is_long() { 10 } else { 1 };
    let mut rides = 0;
    for _ in 0..rounds {
        for step in STEPS {
            for killed in [Killed::Before(step), Killed::Behind(step)] {
                rides += 1;
                stage.ride(&format!("ride-{rides}"), killed);
            }
        }
    }
    let mut keys = stage.rides();
    assert_eq!(keys.len(), rides, "one row for each ride");
    keys.sort();
    let paid: Vec<String> = lock(&stage.shared.effects).keys().cloned().collect();
    let expected = keys.iter().flat_map(|key| [format!("{key}-charge"), format!("{key}-receipt")]);
    assert_eq!(paid, expected.collect::<Vec<_>>(), "one charge and one receipt for each ride");
}

fn in_folder(program: impl AsRef<Path>, folder: &Path) -> Command {
    let mut command = Command::new(program.as_ref());
    command.current_dir(folder);
    command
}

#[test]
fn a_fastapi_service_that_is_killed_anywhere_goes_on_behind_its_last_checkpoint() {
    let folder = with_python_packages("examples/fastapi");
    each_phase_is_done_once(&|| {
        let mut command = in_folder(folder.join("venv/bin/uvicorn"), &folder);
        command.args(["rides:app", "--fd", "0", "--log-level", "error"]);
        command
    });
}

#[test]
fn an_express_service_that_is_killed_anywhere_goes_on_behind_its_last_checkpoint() {
    let folder = with_node_packages("examples/express");
    each_phase_is_done_once(&|| {
        let mut command = in_folder("node", &folder);
        command.arg("rides.js").env("LISTEN_FD", "0");
        command
    });
}
