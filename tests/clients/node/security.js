// Logins of kafkajs. Cases come on the input, a JSON line each, and are done at once; what became of each goes to the
// output. ../test_security.py is the other end, README.md has the words.
'use strict'
const { createRequire } = require('node:module')
const readline = require('node:readline')

const installed = createRequire(`${process.cwd()}/`) // the packages are cached in the folder that this runs in
const { Kafka, logLevel } = installed('kafkajs')

const PAUSE_MS = 50
const AT_ONCE = 12
const say = what => console.log(JSON.stringify(what))
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

async function produce({ settings, token, topic, seconds, case: value }) {
  if (token) settings.sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
  const kafka = new Kafka({
    ...settings,
    clientId: 'security',
    logLevel: logLevel.NOTHING,
    connectionTimeout: 8000,
    authenticationTimeout: 8000,
    reauthenticationThreshold: 1000,
    requestTimeout: 8000,
    retry: { initialRetryTime: 50, maxRetryTime: 200, retries: 4 },
  })
  const producer = kafka.producer()
  try {
    await producer.connect()
    await producer.send({ topic, messages: [{ value, partition: 0 }] })
    const end = Date.now() + seconds * 1000
    while (Date.now() < end) {
      await pause(PAUSE_MS)
      await producer.send({ topic, messages: [{ value, partition: 0 }] })
    }
  } finally {
    await producer.disconnect()
  }
}

async function tell(told) {
  const start = Date.now()
  let [error, text] = ['', '']
  try {
    await produce(told)
  } catch (thrown) {
    let cause = thrown
    while (cause.name === 'KafkaJSNonRetriableError' && cause.cause) cause = cause.cause
    while (cause.name === 'KafkaJSNumberOfRetriesExceeded' && cause.cause) cause = cause.cause
    error = cause.name
    text = String(cause.message).slice(0, 300)
  }
  say({ case: told.case, error, text, ms: Date.now() - start })
}

say({ client: 'kafkajs', version: installed('kafkajs/package.json').version })
const waiting = []
let running = 0
function next() {
  while (running < AT_ONCE && waiting.length) {
    running += 1
    tell(waiting.shift()).finally(() => {
      running -= 1
      next()
    })
  }
}
readline.createInterface({ input: process.stdin }).on('line', line => {
  waiting.push(JSON.parse(line))
  next()
})
