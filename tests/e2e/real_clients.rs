//! Clients as they are, with retries of their own: Stripe's SDKs, which make their own keys, and
//! Python's requests. Answers are lost on their way to them, and the API has its bad moments.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Mutex;

use serde_json::json;

use crate::harness::{
    Effect, Gate, Gateway, Ledger, Then, reply, run_to_end, with_node_packages,
    with_python_packages,
};

const ORDERS: usize = 20;

const JSON: &str = "Content-Type: application/json";

/// Of this order the first request is cut off while its work runs, which ends once a retry was told
/// so.
const CUT_OFF: usize = 18;

/// How many of the first answers to an order are lost, and how many of the first attempts at it
/// fail: every pair comes up.
fn misfortunes(order: usize) -> (usize, usize) {
    (order % 3, order / 3 % 3)
}

/// Whose charge it is, as the form in its body says.
fn order(effect: &Effect) -> usize {
    let form = String::from_utf8_lossy(&effect.body);
    let order = form.split('&').find_map(|field| field.strip_prefix("description=order-"));
    order.and_then(|order| order.parse().ok()).expect("an order")
}

fn of(order_wanted: usize, effects: &[Effect]) -> Vec<&Effect> {
    effects.iter().filter(|effect| order(effect) == order_wanted).collect()
}

/// How often each order came by.
#[derive(Default)]
struct Count(Mutex<[usize; ORDERS]>);

impl Count {
    /// Counts, and tells how often it came before.
    fn earlier(&self, order: usize) -> usize {
        let times = &mut self.0.lock().expect("no panic holds it")[order];
        *times += 1;
        *times - 1
    }
}

/// An API that fails the first attempts at some orders, in turn by each status, and makes a charge at
/// any other.
fn api(statuses: [u16; 2], gate: Option<Gate>) -> Ledger {
    let (ledger, count) = (Ledger::start(), Count::default());
    ledger.behave(move |effect, client| {
        let order = order(effect);
        let earlier = count.earlier(order);
        if earlier < misfortunes(order).1 {
            let error = json!({ "error": { "type": "api_error", "message": "try again" } });
            return reply(client, statuses[earlier], &[JSON], &error.to_string());
        }
        if let (CUT_OFF, Some(gate)) = (order, &gate) {
            gate.pass();
        }
        let charge = json!({
            "id": format!("ch_{}", effect.number),
            "object": "charge",
            "amount": 2000,
            "description": format!("order-{order}"),
            "status": "succeeded",
        });
        reply(client, 200, &[JSON], &charge.to_string())
    });
    ledger
}

/// A network that loses the first answers to some orders. Nothing of them arrives: none of these
/// clients tries again by itself once it has the beginning of an answer.
fn network(gateway: &Gateway, gate: Option<Gate>) -> Ledger {
    let network = Ledger::start();
    let (at, count) = (gateway.address, Count::default());
    network.behave(move |effect, client| {
        let order = order(effect);
        let earlier = count.earlier(order);
        let Some(gate) = gate.as_ref().filter(|_| order == CUT_OFF) else {
            let arrives = earlier >= misfortunes(order).0;
            let answer = effect.onwards(at).send();
            return answer.deliver(if arrives { 4 } else { 0 }, client);
        };
        if earlier == 0 {
            drop(effect.onwards(at).begin());
            return Then::Close;
        }
        let answer = effect.onwards(at).send();
        if answer.status == 409 {
            gate.open();
        }
        answer.deliver(4, client)
    });
    network
}

/// The client prints the charge of each order, and there is no other.
fn each_order_is_charged_once(
    mut client: Command,
    settings: &str,
    statuses: [u16; 2],
    gate: Option<Gate>,
) {
    let ledger = api(statuses, gate.clone());
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let network = network(&gateway, gate.clone());
    let at = network.address();
    client.args([at.ip().to_string(), at.port().to_string(), ORDERS.to_string()]);
    let ended = run_to_end(client);
    assert_eq!(ended.code, Some(0), "{ended:?}");

    let (sent, effects) = (network.all(), ledger.all());
    let charges: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(charges.len(), ORDERS, "{ended:?}");
    let mut keys = BTreeSet::new();
    for (order, charge) in charges.into_iter().enumerate() {
        let (lost, failures) = misfortunes(order);
        let (sent, effects) = (of(order, &sent), of(order, &effects));
        assert_eq!(effects.len(), failures + 1, "order {order}: {effects:?}");
        assert_eq!(charge, format!("ch_{}", effects[failures].number), "order {order}");
        match gate {
            Some(_) if order == CUT_OFF => assert!(sent.len() >= 3, "cut off, told, replayed"),
            _ => assert_eq!(sent.len(), lost.max(failures) + 1, "order {order}: {sent:?}"),
        }
        let key = |effect: &&Effect| effect.header("idempotency-key").map(str::to_owned);
        keys.extend(sent.iter().map(key));
        keys.extend(effects.iter().map(key));
    }
    assert_eq!(keys.len(), ORDERS, "a key for each order: {keys:?}");
}

const STRIPE: &str = "[idempotency]\nprofile = \"stripe\"\nserver_errors = \"retry\"\n";

#[test]
fn stripes_python_sdk_charges_each_order_once_over_a_bad_network() {
    let folder = with_python_packages("tests/e2e/real_clients/stripe_python");
    let mut client = Command::new(folder.join("venv/bin/python"));
    client.arg(folder.join("charges.py"));
    each_order_is_charged_once(client, STRIPE, [500, 503], Some(Gate::shut()));
}

#[test]
fn stripes_node_sdk_charges_each_order_once_over_a_bad_network() {
    let folder = with_node_packages("tests/e2e/real_clients/stripe_node");
    let mut client = Command::new("node");
    client.arg(folder.join("charges.mjs"));
    each_order_is_charged_once(client, STRIPE, [500, 503], Some(Gate::shut()));
}

#[test]
fn pythons_requests_charge_each_order_once_over_a_bad_network() {
    let folder = with_python_packages("tests/e2e/real_clients/requests");
    let mut client = Command::new(folder.join("venv/bin/python"));
    client.arg(folder.join("charges.py"));
    // It does not ask again after a 409: no order is cut off while its work runs.
    each_order_is_charged_once(client, "", [503, 503], None);
}
