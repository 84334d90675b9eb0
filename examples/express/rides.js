// A ride service in three phases, each done once, however often its request is interrupted. It
// stands behind Selfsame, which remembers how far each request has come.

import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import express from 'express'

const { DATABASE = 'rides.jsonl', LISTEN_FD, PAYMENTS = 'http://127.0.0.1:4000' } = process.env

const lines = existsSync(DATABASE) ? readFileSync(DATABASE, 'utf8').trim().split('\n') : []
const rides = new Map(lines.map(line => JSON.parse(line)).map(ride => [ride.key, ride]))

const app = express()
app.use(express.json())

app.post('/rides', async (request, response) => {
  const order = request.body
  const run = await Run.of(request)

  if (run.at === undefined) {
    const ride = insertRide(run.key, order)
    await run.save('ride_created', { ride })
  }

  if (run.at === 'ride_created') {
    const charge = await call('/charges', `${run.key}-charge`, { amount: order.fare })
    await run.save('charge_created', { charge: charge.id })
  }

  if (run.at === 'charge_created') {
    await call('/receipts', `${run.key}-receipt`, { rider: order.rider, charge: run.data.charge })
    await run.save('receipt_sent', {})
  }

  response.status(201).json({ ride: run.data.ride, charge: run.data.charge })
})

app.get('/rides', (request, response) => response.json([...rides.keys()]))

// 503 frees the key: the next attempt goes on behind the last phase that was saved.
app.use((error, request, response, next) => response.status(503).json({ error: 'try again' }))

// How far this request has come.
class Run {
  static async of (request) {
    const run = new Run()
    run.url = request.get('Selfsame-Checkpoint-Url')
    run.key = request.get('Selfsame-Derived-Key')
    run.at = request.get('Selfsame-Recovery-Point')
    // Where there is one, an earlier attempt was interrupted.
    run.data = run.at === undefined ? {} : (await (await ok(fetch(run.url))).json()).data
    return run
  }

  // The phase is done: it will not run again.
  async save (recoveryPoint, data) {
    Object.assign(this.data, data)
    const body = JSON.stringify({ recovery_point: recoveryPoint, data: this.data })
    // Anything but 204 ends this attempt: it was not saved, or another attempt has taken over.
    await ok(fetch(this.url, { method: 'PUT', body }))
    this.at = recoveryPoint
  }
}

// Killed between this and its checkpoint, the phase runs again, and finds its own row.
function insertRide (key, order) {
  if (!rides.has(key)) {
    const ride = { id: rides.size + 1, key, rider: order.rider, fare: order.fare }
    appendFileSync(DATABASE, JSON.stringify(ride) + '\n')
    rides.set(key, ride)
  }
  return rides.get(key).id
}

// An effect elsewhere, under a key that is the same for each attempt.
async function call (path, key, body) {
  const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': key }
  const answer = await ok(fetch(PAYMENTS + path, { method: 'POST', headers, body: JSON.stringify(body) }))
  return answer.json()
}

async function ok (answering) {
  const answer = await answering
  if (!answer.ok) throw new Error(`${answer.url} answered ${answer.status}`)
  return answer
}

// A socket that somebody else has opened, as systemd does, or one of its own.
app.listen(LISTEN_FD ? { fd: Number(LISTEN_FD) } : { host: '127.0.0.1', port: 3000 })
