// Runs http-cache-tests twice against its own origin and once through the gateway, and says what
// was different: node compare.mjs GATEWAY-BINARY WORKING-FOLDER
//
// The gateway caches nothing, so most of the tests "fail", here and there; they must do so alike. What
// is compared is not only the result of a test but every answer to it, and every request as the
// origin got it, with all headers.

import { execFile, execFileSync, spawn } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { isDeepStrictEqual, promisify } from 'node:util'

const PACKAGE = 'http-cache-tests'
const VERSION = '0.4.5'

// Where a gateway must differ, and why. One that no longer does is to be taken off the list.
const MUST_DIFFER = new Map([
  ...[
    'stale-close',
    'stale-close-must-revalidate',
    'stale-close-no-cache',
    'stale-close-proxy-revalidate',
    'stale-close-s-maxage=2',
    'stale-sie-503',
    'stale-sie-close',
    'stale-warning-become',
    'stale-warning-stored'
  ].map(id => [id, 'the origin hangs up without an answer: a gateway says 502 (RFC 9110, 15.6.3)']),
  ...[
    '304-etag-update-response-Content-Length',
    'headers-store-Content-Length'
  ].map(id => [id, 'the origin sends more than it announced: it is not passed on (RFC 9112, 6.3)'])
])

// These belong to one connection (RFC 9110, 7.6.1); so does every header that `Connection` names.
const HOP_BY_HOP = [
  'connection', 'keep-alive', 'proxy-authenticate', 'proxy-authorization', 'proxy-connection', 'te',
  'transfer-encoding', 'upgrade'
]
// What a gateway adds (RFC 7239; RFC 9110, 7.6.3).
const OURS = ['forwarded', 'x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto']
const SIGNATURE = '1.1 selfsame'
// The tests' own labels: some tests share a list of headers, and add theirs to it in any order.
const LABELS = ['req-num', 'test-id', 'test-name']
// More than a few tests that are not even like themselves mean that something else is wrong.
const UNSTABLE_MAX = 5
// A run takes some 20 seconds, most of them pauses of its own.
const RUN_TIMEOUT_MS = 120_000

const [gatewayBinary, workingFolder] = process.argv.slice(2).map(name => path.resolve(name))

function install () {
  mkdirSync(workingFolder, { recursive: true })
  const quietly = ['--no-audit', '--no-fund', '--loglevel=error']
  const flags = ['--no-package-lock', '--no-save', '--ignore-scripts', '--prefer-offline', ...quietly]
  const install = ['install', ...flags, `${PACKAGE}@${VERSION}`]
  execFileSync('npm', install, { cwd: workingFolder, stdio: 'inherit' })
  return path.join(workingFolder, 'node_modules', PACKAGE)
}

// The tests' own handlers, on a free port of this machine alone.
async function startOrigin (folder) {
  const load = async kind => (await import(`${folder}/server/handle-${kind}.mjs`)).default
  const handlers = {
    config: await load('config'), test: await load('test'), state: await load('state')
  }
  const origin = http.createServer((request, response) => {
    const [, kind, ...rest] = new URL(request.url, 'http://origin').pathname.split('/')
    handlers[kind](rest, request, response)
    // A coding that nobody knows ends with the connection, which node leaves to its time-out.
    if (response.hasHeader?.('transfer-encoding')) response.on('finish', () => request.socket.end())
  })
  // A connection that closes just as a request is sent is a fault of its own, and not looked for here.
  origin.keepAliveTimeout = 0
  await new Promise(resolve => origin.listen(0, '127.0.0.1', resolve))
  return origin
}

async function startGateway (upstream) {
  const here = ['--listen', '127.0.0.1:0', '--admin', '127.0.0.1:0', '--store', 'memory:']
  const gateway = spawn(gatewayBinary, ['serve', '--upstream', upstream, ...here], {
    stdio: ['ignore', 'ignore', 'pipe']
  })
  process.on('exit', () => gateway.kill())
  return new Promise((resolve, reject) => {
    let log = ''
    gateway.on('error', reject)
    gateway.on('exit', () => reject(new Error(`the gateway ended:\n${log}`)))
    gateway.stderr.on('data', data => {
      log += data
      const serving = log.match(/"message":"serving","listen":"([^"]+)"/)
      if (serving) resolve(`http://${serving[1]}`)
    })
  })
}

async function run (folder, base) {
  const client = fileURLToPath(new URL('client.mjs', import.meta.url))
  const limits = { maxBuffer: 1 << 26, timeout: RUN_TIMEOUT_MS }
  const { stdout } = await promisify(execFile)('node', [client, folder, base], limits)
  const seen = JSON.parse(stdout)
  return new Map(Object.entries(seen).map(([id, test]) => [id, comparable(test, base)]))
}

// What is seen of a test, without what is never the same twice.
function comparable ({ uuid, result, answers, requests }, base) {
  const seen = {
    result,
    answers: answers.map(answer => ({ ...answer, headers: endToEnd(answer.headers) })),
    requests: requests.map(request => {
      const headers = endToEnd(request.request_headers)
      ;[...LABELS, ...OURS].forEach(name => delete headers[name])
      return { method: request.request_method, headers }
    })
  }
  const text = JSON.stringify(seen)
    .replaceAll(uuid, 'UUID')
    .replaceAll(new URL(base).host, 'HOST')
    .replace(/\w+, \d\d[ -]\w+[ -]\d+ \d\d:\d\d:\d\d GMT/g, 'DATE')
    .replace(/"server-now":\["\d+"\]/g, '"server-now":["NOW"]')
  return JSON.parse(text)
}

function endToEnd (headers) {
  const named = [headers.connection ?? []].flat().flatMap(list => list.toLowerCase().split(/\s*,\s*/))
  const kept = Object.entries(headers).filter(([name]) => ![...HOP_BY_HOP, ...named].includes(name))
  const unsigned = ([name, values]) => {
    if (name !== 'via') return [[name, values]]
    const hops = [values].flat().flatMap(line => line.split(/\s*,\s*/)).filter(hop => hop !== SIGNATURE)
    return hops.length === 0 ? [] : [[name, hops]]
  }
  return Object.fromEntries(kept.flatMap(unsigned))
}

function report (direct, again, through) {
  let bad = 0
  let unstable = 0
  for (const [id, expected] of direct) {
    const found = through.get(id)
    const differs = !isDeepStrictEqual(expected, found)
    if (!isDeepStrictEqual(expected, again.get(id))) {
      unstable += 1
      console.log(`unstable, not compared: ${id}`)
    } else if (differs && MUST_DIFFER.has(id)) {
      console.log(`differs, as it must: ${id}: ${MUST_DIFFER.get(id)}`)
    } else if (differs) {
      bad += 1
      console.log(`DIFFERS: ${id}`)
      for (const part of ['result', 'answers', 'requests'].filter(
        part => !isDeepStrictEqual(expected[part], found?.[part]))) {
        console.log(`  ${part}, direct:  ${JSON.stringify(expected[part])}`)
        console.log(`  ${part}, through: ${JSON.stringify(found?.[part])}`)
      }
    } else if (MUST_DIFFER.has(id)) {
      bad += 1
      console.log(`NO LONGER DIFFERS: ${id}: take it off the list`)
    }
  }
  console.log(`${direct.size} tests, ${bad} with a wrong result, ${unstable} unstable`)
  return direct.size > 0 && bad === 0 && unstable <= UNSTABLE_MAX
}

const folder = install()
const origin = await startOrigin(folder)
const address = `http://127.0.0.1:${origin.address().port}`
const gateway = await startGateway(address)
const runs = [run(folder, address), run(folder, address), run(folder, gateway)]
process.exit(report(...await Promise.all(runs)) ? 0 : 1)
