// Transactions of kafkajs: BOOTSTRAP. Commands come on the input, what became of them goes to the output;
// ../test_transactions.py is the other end, README.md has the words.
'use strict'
const { createRequire } = require('node:module')
const readline = require('node:readline')

const installed = createRequire(`${process.cwd()}/`) // the packages are cached in the folder that this runs in
const { Kafka, logLevel } = installed('kafkajs')

const kafka = new Kafka({
  brokers: process.argv[2].split(','),
  clientId: 'transactions',
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 200, retries: 50 },
})
const say = what => console.log(JSON.stringify(what))

function newProducer(id, timeout) {
  return kafka.producer({
    transactionalId: id,
    transactionTimeout: Number(timeout),
    maxInFlightRequests: 1,
    idempotent: true,
    metadataMaxAge: 200,
  })
}

// A producer, and the transaction that it is in.
class Producer {
  async open({ id, timeout }) {
    this.producer = newProducer(id, timeout)
    await this.producer.connect() // which asks for a producer id
  }

  async obey(word, told) {
    const messages = () => told.values.split(',').map(value => ({ value, partition: 0 }))
    if (word === 'begin') this.transaction = await this.producer.transaction()
    else if (word === 'send') await this.transaction.send({ topic: told.topic, messages: messages() })
    else if (word === 'offset') await this.transaction.sendOffsets(offsetsOf(told.group, told.topic, { 0: told.at }))
    else if (word === 'commit') await this.transaction.commit()
    else if (word === 'abort') await this.transaction.abort()
    else if (word === 'close') await this.producer.disconnect()
    else throw new Error(`no such command: ${word}`)
  }
}

function offsetsOf(consumerGroupId, topic, offsets) {
  const partitions = Object.entries(offsets).map(([partition, offset]) => ({ partition: Number(partition), offset }))
  return { consumerGroupId, topics: [{ topic, partitions }] }
}

// Copies a topic, each batch in a transaction that also commits how far it has read, until the program ends. Every third
// transaction is aborted, and its records read again; after an error it begins anew.
class Copier {
  constructor(told) {
    this.told = told
    this.transactions = 0
  }

  async run() {
    for (;;) {
      this.producer = newProducer(this.told.id, 20000)
      this.consumer = kafka.consumer({
        groupId: this.told.group,
        sessionTimeout: 6000, // when it begins anew its last self is still a member
        heartbeatInterval: 300,
        maxWaitTimeInMs: 100,
        metadataMaxAge: 200,
        retry: { initialRetryTime: 50, maxRetryTime: 200, retries: 10 },
      })
      const crashed = new Promise((_, reject) => {
        this.consumer.on(this.consumer.events.CRASH, ({ payload }) => reject(payload.error))
      })
      try {
        await this.producer.connect()
        await this.consumer.connect()
        await this.consumer.subscribe({ topics: [this.told.from], fromBeginning: true })
        await this.consumer.run({ autoCommit: false, eachBatch: given => this.copy(given) })
        await crashed
      } catch (error) {
        say({ event: 'again', text: error.stack })
      }
      await Promise.allSettled([this.consumer.disconnect(), this.producer.disconnect()])
    }
  }

  async copy({ batch: { topic, partition, messages } }) {
    this.transactions += 1
    const commits = this.transactions % 3 !== 2
    const copied = messages.slice(0, 20)
    const next = String(BigInt(copied.at(-1).offset) + 1n)
    const transaction = await this.producer.transaction()
    try {
      await transaction.send({ topic: this.told.to, messages: copied.map(({ value }) => ({ value, partition })) })
      await transaction.sendOffsets(offsetsOf(this.told.group, topic, { [partition]: next }))
      if (commits) await transaction.commit()
      else await transaction.abort()
    } catch (error) {
      if (transaction.isActive()) await transaction.abort()
      throw error
    }
    this.consumer.seek({ topic, partition, offset: commits ? next : copied[0].offset })
    say({ event: commits ? 'committed' : 'aborted', records: copied.length })
  }
}

say({ client: 'kafkajs', version: installed('kafkajs/package.json').version })
const producers = {}
let before = Promise.resolve() // commands are obeyed one after the other
const lines = readline.createInterface({ input: process.stdin })
lines.on('line', line => {
  const [word, name, ...words] = line.split(' ')
  const told = Object.fromEntries(words.map(one => one.split(/=(.*)/s).slice(0, 2)))
  if (word === 'copy') {
    new Copier(told).run()
    return
  }
  if (word === 'open') producers[name] = new Producer()
  const obey = () => (word === 'open' ? producers[name].open(told) : producers[name].obey(word, told))
  before = before.then(obey).then(
    () => say({ event: 'done' }),
    error => say({ event: 'error', text: error.stack }),
  )
})
lines.on('close', () => process.exit(0))
