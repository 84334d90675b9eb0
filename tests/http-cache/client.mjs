// One run of the tests: node client.mjs PACKAGE-FOLDER BASE-URL
//
// Prints, for each test, its result, every answer to it, and every request as the origin got it.

import { createRequire } from 'node:module'

const [folder, base] = process.argv.slice(2)
const fetch = createRequire(`${folder}/`)('node-fetch')
const { runTests, getResults } = await import(`${folder}/client/runner.mjs`)
const { testUUIDs } = await import(`${folder}/client/test.mjs`)
const tests = (await import(`${folder}/tests/index.mjs`)).default
const surrogate = (await import(`${folder}/tests/surrogate-control.mjs`)).default

const answers = {}

async function watchedFetch (url, init) {
  const answer = await fetch(url, init)
  const text = answer.text()
  answer.text = () => text
  const { status, statusText } = answer
  const body = await text.catch(() => 'not whole')
  const [, kind, uuid] = new URL(url).pathname.split('/')
  if (kind === 'test') {
    answers[uuid] ??= []
    answers[uuid].push({ status, statusText, headers: answer.headers.raw(), body })
  }
  return answer
}

await runTests([...tests, surrogate], watchedFetch, false, base)

const seen = {}
for (const [id, result] of Object.entries(getResults())) {
  const uuid = testUUIDs[id]
  const state = await fetch(`${base}/state/${uuid}`)
  const requests = state.ok ? await state.json() : []
  seen[id] = { uuid, result, answers: answers[uuid] ?? [], requests }
}
console.log(JSON.stringify(seen))
