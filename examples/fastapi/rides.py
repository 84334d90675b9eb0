"""A ride service in three phases, each done once, however often its request is interrupted.

It stands behind Selfsame, which remembers how far each request has come.
"""

import os
import sqlite3
from contextlib import closing

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

DATABASE = os.environ.get("DATABASE", "rides.db")
PAYMENTS = os.environ.get("PAYMENTS", "http://127.0.0.1:4000")

app = FastAPI()
http = httpx.AsyncClient(timeout=10)


class Order(BaseModel):
    rider: str
    fare: int


class Run:
    """How far this request has come."""

    @classmethod
    async def of(cls, request: Request):
        run = cls()
        run.url = request.headers["selfsame-checkpoint-url"]
        run.key = request.headers["selfsame-derived-key"]
        run.at = request.headers.get("selfsame-recovery-point")
        run.data = {}
        if run.at is not None:  # an earlier attempt was interrupted
            saved = await http.get(run.url)
            run.data = saved.raise_for_status().json()["data"]
        return run

    async def save(self, recovery_point: str, **data):
        """The phase is done: it will not run again."""
        self.data |= data
        body = {"recovery_point": recovery_point, "data": self.data}
        # Anything but 204 ends this attempt: it was not saved, or another attempt has taken over.
        (await http.put(self.url, json=body)).raise_for_status()
        self.at = recovery_point


@app.post("/rides", status_code=201)
async def create_ride(order: Order, request: Request):
    run = await Run.of(request)

    if run.at is None:
        ride = insert_ride(run.key, order)
        await run.save("ride_created", ride=ride)

    if run.at == "ride_created":
        charge = await call("/charges", f"{run.key}-charge", {"amount": order.fare})
        await run.save("charge_created", charge=charge["id"])

    if run.at == "charge_created":
        receipt = {"rider": order.rider, "charge": run.data["charge"]}
        await call("/receipts", f"{run.key}-receipt", receipt)
        await run.save("receipt_sent")

    return {"ride": run.data["ride"], "charge": run.data["charge"]}


@app.get("/rides")
def rides():
    with closing(database()) as db:
        return [key for (key,) in db.execute("select key from rides")]


@app.exception_handler(httpx.HTTPError)
async def interrupted(request: Request, error: httpx.HTTPError):
    # 503 frees the key: the next attempt goes on behind the last phase that was saved.
    return JSONResponse({"error": "try again"}, status_code=503)


def insert_ride(key: str, order: Order) -> int:
    """Killed between this and its checkpoint, the phase runs again, and finds its own row."""
    with closing(database()) as db, db:
        row = (key, order.rider, order.fare)
        db.execute("insert into rides (key, rider, fare) values (?, ?, ?) on conflict do nothing", row)
        return db.execute("select id from rides where key = ?", (key,)).fetchone()[0]


async def call(path: str, key: str, body: dict) -> dict:
    """An effect elsewhere, under a key that is the same for each attempt."""
    answer = await http.post(PAYMENTS + path, json=body, headers={"Idempotency-Key": key})
    return answer.raise_for_status().json()


def database() -> sqlite3.Connection:
    db = sqlite3.connect(DATABASE)
    db.execute("create table if not exists rides (id integer primary key, key unique, rider, fare)")
    return db
