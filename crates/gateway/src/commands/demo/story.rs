//! `selfsame demo --play`: one payment without Selfsame, and five with it.
//!
//! The accidents are real: connections are closed, processes are killed. The story checks what it
//! tells, and ends with an error at the first thing that is not as promised.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use http::StatusCode;

use super::bank::{Bank, Charge};
use super::client::{Answer, Client, Payment};
use super::process::{Installation, Process};
use super::stage::{Ink, Stage};

/// Long enough for a second request, or a kill, to fall into the middle of a charge.
const CHARGE_TAKES: Duration = Duration::from_millis(400);
/// As short as a lease may be, so that nobody has to wait for the last scene.
const LEASE: Duration = Duration::from_secs(1);
/// Between the work's end and its answer's being on disk; then until the next try.
const MOMENT: Duration = Duration::from_millis(200);

const UNPROTECTED: Payment<'_> = Payment { key: "order-0", amount: 20 };
const LOST_ANSWER: Payment<'_> = Payment { key: "order-1", amount: 20 };
const TWO_CLICKS: Payment<'_> = Payment { key: "order-2", amount: 20 };
const CHANGED: Payment<'_> = Payment { key: "order-3", amount: 20 };
const RESTART: Payment<'_> = Payment { key: "order-4", amount: 20 };
const UNKNOWN: Payment<'_> = Payment { key: "order-5", amount: 20 };
const PROTECTED: [Payment<'_>; 5] = [LOST_ANSWER, TWO_CLICKS, CHANGED, RESTART, UNKNOWN];

/// Tells the story, with what it needs to remember in `folder`.
pub(super) async fn tell(stage: &Stage, folder: &Path) -> Result<()> {
    let bank = Bank::new(CHARGE_TAKES);
    let api = bank.open().await?;
    let installation = Installation::new(folder, api, LEASE)?;
    let story = Story { stage, bank, client: Client::new(), installation };

    stage.title("Selfsame: the same key gives the same answer, and the work is done once");
    stage.line("");
    stage.line("A payments API charges 20 eur each time it is asked, key or no key.");
    story.without_selfsame(api).await?;
    let gateway = story.installation.start().await?;
    story.the_answer_is_lost(&gateway).await?;
    story.two_clicks_at_once(&gateway).await?;
    story.the_amount_changes(&gateway).await?;
    let gateway = story.killed_after_the_answer(gateway).await?;
    story.killed_in_the_middle(gateway).await?;
    story.sums_up().await
}

struct Story<'a> {
    stage: &'a Stage,
    bank: Bank,
    client: Client,
    installation: Installation,
}

impl Story<'_> {
    async fn without_selfsame(&self, api: SocketAddr) -> Result<()> {
        self.stage.scene("Without Selfsame").await;
        self.pay_and_hang_up(api, UNPROTECTED).await?;
        self.stage.act("client", "cannot know whether it paid, and sends the same again");
        let answer = self.client.pay(api, UNPROTECTED).await?;
        self.show("api", &answer);
        let charges = self.open_the_ledger(UNPROTECTED);
        ensure!(charges.len() == 2, "without Selfsame there were {} charges, not 2", charges.len());
        self.stage.result(Ink::Red, "the customer paid twice");
        Ok(())
    }

    async fn the_answer_is_lost(&self, gateway: &Process) -> Result<()> {
        self.stage.scene("1. The answer is lost").await;
        self.pay_and_hang_up(gateway.address, LOST_ANSWER).await?;
        self.stage.act("client", "cannot know whether it paid, and sends the same again");
        let answer = self.pay_when_recorded(gateway, LOST_ANSWER).await?;
        self.show("selfsame", &answer);
        let charge = self.the_only_charge(LOST_ANSWER)?;
        expect_replay(&answer)?;
        ensure!(answer.body == charge.answer_body(), "the replay is not what the API answered");
        self.stage.result(Ink::Green, "one charge, and the answer that was lost");
        Ok(())
    }

    async fn two_clicks_at_once(&self, gateway: &Process) -> Result<()> {
        self.stage.scene("2. Two clicks at once").await;
        self.stage.act("client", &format!("{TWO_CLICKS}, and in the same moment again"));
        let (one, other) = tokio::try_join!(
            self.client.pay(gateway.address, TWO_CLICKS),
            self.client.pay(gateway.address, TWO_CLICKS),
        )?;
        let (refused, paid) = match one.status == StatusCode::CONFLICT {
            true => (one, other),
            false => (other, one),
        };
        self.show("selfsame", &refused);
        self.show("selfsame", &paid);
        expect(&refused, StatusCode::CONFLICT, "in-progress")?;
        ensure!(paid.status == StatusCode::CREATED, "neither of two clicks was answered 201");
        let Some(wait) = refused.retry_after() else {
            anyhow::bail!("the client was not told when to come back");
        };
        tokio::time::sleep(wait).await;
        self.stage.act("client", "sends the refused one again, when it was told to");
        let again = self.client.pay(gateway.address, TWO_CLICKS).await?;
        self.show("selfsame", &again);
        self.the_only_charge(TWO_CLICKS)?;
        expect_replay(&again)?;
        ensure!(again.is_same_as(&paid), "the two clicks got different answers");
        self.stage.result(Ink::Green, "one charge, and the same bytes for both clicks");
        Ok(())
    }

    async fn the_amount_changes(&self, gateway: &Process) -> Result<()> {
        self.stage.scene("3. Another amount under the same key").await;
        self.stage.act("client", &CHANGED.to_string());
        let answer = self.client.pay(gateway.address, CHANGED).await?;
        self.show("selfsame", &answer);
        ensure!(answer.status == StatusCode::CREATED, "a payment was answered {}", answer.status);
        let changed = Payment { amount: 99, ..CHANGED };
        self.stage.act("client", &changed.to_string());
        let answer = self.client.pay(gateway.address, changed).await?;
        self.show("selfsame", &answer);
        self.the_only_charge(CHANGED)?;
        expect(&answer, StatusCode::UNPROCESSABLE_ENTITY, "key-reused")?;
        self.stage.result(Ink::Green, "one charge: a key stands for one request");
        Ok(())
    }

    async fn killed_after_the_answer(&self, gateway: Process) -> Result<Process> {
        self.stage.scene("4. kill -9, and a restart").await;
        self.stage.act("client", &RESTART.to_string());
        let first = self.client.pay(gateway.address, RESTART).await?;
        self.show("selfsame", &first);
        let gateway = self.kill_and_restart(gateway).await?;
        self.stage.act("client", "sends the same again");
        let again = self.client.pay(gateway.address, RESTART).await?;
        self.show("selfsame", &again);
        self.the_only_charge(RESTART)?;
        expect_replay(&again)?;
        ensure!(again.is_same_as(&first), "the answer changed with the restart");
        self.stage.result(Ink::Green, "one charge, and the same bytes after the restart");
        Ok(gateway)
    }

    async fn killed_in_the_middle(&self, gateway: Process) -> Result<()> {
        self.stage.scene("5. kill -9 in the middle of the work").await;
        let begun = self.bank.begun();
        self.stage.act("client", &UNKNOWN.to_string());
        let call = self.client.call(gateway.address, UNKNOWN)?;
        self.bank.until(|ledger| ledger.begun > begun).await?;
        let gateway = self.kill_and_restart(gateway).await?;
        ensure!(call.ends_in_silence()?, "a gateway that was killed in the middle answered");
        // Until then the first run counts as running, and a retry as too early.
        tokio::time::sleep(LEASE + MOMENT).await;
        self.stage.act("client", "heard nothing, and sends the same again after the lease");
        let refused = self.client.pay(gateway.address, UNKNOWN).await?;
        self.show("selfsame", &refused);
        expect(&refused, StatusCode::CONFLICT, "outcome-unknown")?;
        self.stage.aside("it may have been charged or not: nothing runs until a person decides");
        let charge = self.the_operator_decides(&gateway, UNKNOWN)?;
        self.stage.act("client", "sends the same again");
        let answer = self.client.pay(gateway.address, UNKNOWN).await?;
        self.show("selfsame", &answer);
        expect_replay(&answer)?;
        ensure!(answer.body == charge.answer_body(), "the answer is not the one that was given");
        self.the_only_charge(UNKNOWN)?;
        self.stage.result(Ink::Green, "one charge, and nothing was guessed");
        Ok(())
    }

    async fn sums_up(&self) -> Result<()> {
        self.stage.scene("key       requests   charges").await;
        let row = |key: &str, ink: Ink| {
            let requests = self.client.requests_with(key);
            let charges = self.bank.charges_for(key).len();
            let row = format!("{key:<8} {requests:>9} {charges:>9}");
            self.stage.line(&self.stage.paint(ink, &row));
            charges
        };
        let unprotected = row(UNPROTECTED.key, Ink::Red);
        for Payment { key, .. } in PROTECTED {
            let charges = row(key, Ink::Green);
            ensure!(charges == 1, "{key} was charged {charges} times");
        }
        self.stage.line("");
        self.stage.line(&format!("without Selfsame: {unprotected} charges for one order"));
        self.stage.title("with Selfsame: every key was charged once");
        Ok(())
    }

    /// Pays, closes the connection once the payment is under way, and waits until it is made.
    async fn pay_and_hang_up(&self, at: SocketAddr, payment: Payment<'_>) -> Result<()> {
        let begun = self.bank.begun();
        self.stage.act("client", &payment.to_string());
        let call = self.client.call(at, payment)?;
        self.bank.until(|ledger| ledger.begun > begun).await?;
        call.hang_up();
        self.stage.act("client", "loses the connection before the answer comes");
        self.bank.until(|ledger| !ledger.charges_for(payment.key).is_empty()).await
    }

    /// Pays again until the first answer is on disk.
    async fn pay_when_recorded(&self, at: &Process, payment: Payment<'_>) -> Result<Answer> {
        loop {
            tokio::time::sleep(MOMENT).await;
            let answer = self.client.pay(at.address, payment).await?;
            if answer.problem().as_deref() != Some("in-progress") {
                return Ok(answer);
            }
        }
    }

    async fn kill_and_restart(&self, gateway: Process) -> Result<Process> {
        gateway.kill();
        self.stage.act("selfsame", "is killed with SIGKILL, and started again");
        self.installation.start().await
    }

    /// It is in the ledger, so it was charged: retries get the answer that was never given.
    fn the_operator_decides(&self, gateway: &Process, payment: Payment<'_>) -> Result<Charge> {
        self.stage.act("operator", "looks into the ledger, and tells what is there");
        let charge = self.the_only_charge(payment)?;
        let command = format!("selfsame keys complete {} --status 201 --body …", payment.key);
        self.stage.act("operator", &command);
        let done = self.installation.complete(gateway, payment.key, &charge.answer_body())?;
        self.stage.act("selfsame", &done);
        Ok(charge)
    }

    fn show(&self, who: &str, answer: &Answer) {
        self.stage.act(who, &answer.to_string());
        if answer.problem().is_none() {
            self.stage.aside(&answer.text());
        }
    }

    fn open_the_ledger(&self, payment: Payment<'_>) -> Vec<Charge> {
        let charges = self.bank.charges_for(payment.key);
        for charge in &charges {
            self.stage.act("ledger", &charge.to_string());
        }
        charges
    }

    fn the_only_charge(&self, payment: Payment<'_>) -> Result<Charge> {
        let charges = self.open_the_ledger(payment);
        let [charge] = &*charges else {
            anyhow::bail!("{} was charged {} times", payment.key, charges.len());
        };
        Ok(charge.clone())
    }
}

fn expect(answer: &Answer, status: StatusCode, problem: &str) -> Result<()> {
    let as_expected = answer.status == status && answer.problem().as_deref() == Some(problem);
    ensure!(as_expected, "expected {status}, {problem}, and got {answer}");
    Ok(())
}

fn expect_replay(answer: &Answer) -> Result<()> {
    let as_expected = answer.status == StatusCode::CREATED && answer.is_replayed();
    ensure!(as_expected, "expected the recorded 201, and got {answer}");
    Ok(())
}
