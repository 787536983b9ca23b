// The script of work for kafkajs: BOOTSTRAP PREFIX BASE_MS STEPS FOREIGN_TOPIC.
//
// Steps, records and output are those of ../python/script.py. kafkajs reads only as a member of a group; to need none,
// consume() asks the leader with kafkajs's own Fetch request and decoder, as its consumer would.
'use strict'
const assert = require('node:assert')
const { createRequire } = require('node:module')
const { inspect, isDeepStrictEqual } = require('node:util')

const installed = createRequire(`${process.cwd()}/`) // the packages are cached in the folder that this runs in
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, Partitioners, logLevel } = installed('kafkajs')
const lz4 = installed('lz4-napi')
const snappy = installed('kafkajs-snappy')
const { ZstdCodec } = installed('zstd-codec')

const LARGE_BYTES = 900 * 1024
const SETTLE_MS_MAX = 15000
const READ_MS_MAX = 20000
const STAY_MS = 1000 // at the end of a partition, where nothing comes
const HOLES = [0, 19, 22, 61, 79, 98] // in a topic that was compacted
const SPLIT_BYTES = 500000 // kafkajs sends what it is given as one batch

const [bootstrap, prefix, base, stepList, foreignTopic] = process.argv.slice(2)
const baseMs = Number(base)
const steps = stepList.split(',')
const kafka = new Kafka({ brokers: [bootstrap], clientId: 'script', logLevel: logLevel.NOTHING })
const admin = kafka.admin()
const topicOf = name => `${prefix}-${name}`
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

function same(got, wanted, what) {
  const say = value => inspect(value, { maxArrayLength: 40, breakLength: Infinity }).slice(0, 300)
  if (!isDeepStrictEqual(got, wanted)) throw new Error(`${what}: got ${say(got)}, wanted ${say(wanted)}`)
}

// The four codecs

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})
const zstd = new Promise(resolve => ZstdCodec.run(found => resolve(new found.Streaming())))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from((await zstd).compress(encoder.buffer)),
  decompress: async buffer => Buffer.from((await zstd).decompress(buffer)),
})

// Records

function sampleValue(what, index) {
  const tail = Buffer.alloc(index % 64)
  for (let j = 0; j < tail.length; j++) tail[j] = (index * 7 + j * 13) & 255
  return Buffer.concat([Buffer.from(`${what} ${index} `), tail])
}

function samples(what, count) {
  return Array.from({ length: count }, (_, index) => ({
    key: Buffer.from(`key-${index}`),
    value: sampleValue(what, index),
  }))
}

function largeValue(seed) {
  const value = Buffer.alloc(LARGE_BYTES)
  for (let j = 0; j < value.length; j++) value[j] = (j * 31 + (j >> 8) * 17 + seed) & 255
  return value
}

function timed() {
  return samples('timestamps', 10).map((record, index) => ({ ...record, timestamp: String(baseMs + 1000 * index) }))
}

// kafkajs keeps headers by name, the values of one name in a list.
const inLists = headers =>
  Object.fromEntries(Object.entries(headers || {}).map(([name, value]) => [name, [value].flat()]))

// The client

async function produce(topic, partition, records, { codec = 'none', acks = -1, idempotent = false } = {}) {
  const settings = idempotent ? { idempotent, maxInFlightRequests: 1 } : {}
  const producer = kafka.producer({ ...settings, createPartitioner: Partitioners.DefaultPartitioner })
  await producer.connect()
  const offsets = []
  for (const messages of split(records.map(record => ({ ...record, partition })))) {
    const answers = await producer.send({ topic, acks, compression: CODECS[codec], messages })
    if (acks) messages.forEach((_, index) => offsets.push(Number(answers[0].baseOffset) + index))
  }
  await producer.disconnect()
  return acks ? offsets : null
}

function split(messages) {
  const bytes = messages.reduce((sum, message) => sum + (message.value ? message.value.length : 0), 0)
  return bytes > SPLIT_BYTES ? messages.map(message => [message]) : [messages]
}

let cluster = null

async function findLeader(topic, partition) {
  if (!cluster) {
    const symbol = Object.getOwnPropertySymbols(kafka).find(one => String(one).includes('createCluster'))
    cluster = kafka[symbol]({})
    await cluster.connect()
  }
  await cluster.addTargetTopic(topic)
  const { leader } = cluster.findTopicPartitionMetadata(topic).find(one => one.partitionId === partition)
  return cluster.findBroker({ nodeId: String(leader) })
}

async function consume(topic, partition, firstOffset, count) {
  const broker = await findLeader(topic, partition)
  const found = []
  const deadline = Date.now() + READ_MS_MAX
  let fetchOffset = firstOffset
  while (found.length < count) {
    if (Date.now() > deadline) throw new Error(`${topic}-${partition}: ${found.length} of ${count} records`)
    const partitions = [{ partition, fetchOffset: String(fetchOffset), maxBytes: 1048576 }]
    const answer = await broker.fetch({ isolationLevel: 1, maxWaitTime: 100, topics: [{ topic, partitions }] })
    for (const message of answer.responses[0].partitions[0].messages) {
      if (Number(message.offset) < fetchOffset) continue // a batch is answered whole
      found.push(message)
      fetchOffset = Number(message.offset) + 1
    }
  }
  return found
}

// Reads as a member of a group of its own, from an offset on, until it has so many or nothing has come for a while.
// Where kafkajs gets to in a batch without records only shows in what it commits as it leaves.
let groups = 0

async function readAsMember(topic, firstOffset, count = Infinity) {
  const groupId = `${topicOf('reader')}-${groups++}`
  const consumer = kafka.consumer({ groupId, readUncommitted: false, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const found = []
  let last = Date.now()
  const joined = new Promise(resolve => consumer.on(consumer.events.GROUP_JOIN, resolve))
  const eachBatch = async ({ batch }) => {
    found.push(...batch.messages)
    last = Date.now()
  }
  await consumer.run({ eachBatch, autoCommitInterval: 100 })
  if (firstOffset) consumer.seek({ topic, partition: 0, offset: String(firstOffset) })
  await joined
  const deadline = Date.now() + READ_MS_MAX
  last = Date.now()
  while (found.length < count && Date.now() - last < STAY_MS && Date.now() < deadline) await sleep(10)
  await consumer.disconnect()
  const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] })
  return { found, position: Number(partitions[0].offset) }
}

async function offsets(topic) {
  const [found] = await admin.fetchTopicOffsets(topic)
  return [Number(found.low), Number(found.high)]
}

// kafkajs answers the end offset where no record is that young.
async function offsetAt(topic, timestamp) {
  const [found] = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
  const offset = Number(found.offset)
  return offset === (await offsets(topic))[1] ? null : offset
}

async function describe(topic) {
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  return topics[0].partitions.map(one => one.partitionId).sort()
}

// Records of a topic that was compacted, at those of its 120 offsets that are there.
const cleaned = isThere =>
  Array.from({ length: 120 }, (_, offset) => offset)
    .filter(isThere)
    .map(offset => ({ offset, key: Buffer.from(`key-${offset}`), value: sampleValue('cleaned', offset) }))
const left = cleaned(at => at % 3 === 0 && ((at >= 20 && at < 60) || (at >= 80 && at < 100)))
// Twelve transactions: ten offsets each, the last one a marker, every other one aborted.
const committed = cleaned(at => Math.floor(at / 10) % 2 === 0 && at % 10 !== 9)

function match(topic, got, wanted) {
  same(got.map(one => Number(one.offset)), wanted.map(one => one.offset), `${topic}: offsets read`)
  wanted.forEach((one, index) => {
    same(got[index].key, one.key, `${topic}: key at ${one.offset}`)
    same(got[index].value, one.value, `${topic}: value at ${one.offset}`)
  })
  return wanted.length
}

async function readGaps(topic) {
  return match(topic, (await readAsMember(topic, 0, left.length)).found, left)
}

// The steps

async function write(topic, partition, records, how, first = 0) {
  const acknowledged = await produce(topic, partition, records, how)
  const wanted = records.map((_, index) => first + index)
  if (acknowledged) same(acknowledged, wanted, `${topic}: acknowledged offsets`)
}

async function read(topic, partition, records, first = 0) {
  const got = await consume(topic, partition, first, records.length)
  const numbers = records.map((_, index) => first + index)
  same(got.map(one => Number(one.offset)), numbers, `${topic}: offsets read`)
  records.forEach((wanted, index) => {
    const place = `${topic}-${partition}: offset ${got[index].offset}`
    same(got[index].key, wanted.key, `${place}: key`)
    same(got[index].value, wanted.value, `${place}: value`)
    same(inLists(got[index].headers), inLists(wanted.headers), `${place}: headers`)
    if (wanted.timestamp) same(got[index].timestamp, wanted.timestamp, `${place}: timestamp`)
  })
}

async function writeAndRead(topic, records, how, partition = 0) {
  await write(topic, partition, records, how)
  await read(topic, partition, records)
  return records.length
}

const text = value => Buffer.from(value)

const STEPS = {
  async create() {
    const configEntries = [{ name: 'retention.ms', value: '86400000' }]
    await admin.createTopics({ topics: [{ topic: topicOf('made'), numPartitions: 3, configEntries }] })
    return 0
  },
  async describe() {
    // A broker may tell of a new topic a moment after it has created it.
    const deadline = Date.now() + SETTLE_MS_MAX
    let found = await describe(topicOf('made'))
    while (found.length !== 3 && Date.now() < deadline) {
      await sleep(50)
      found = await describe(topicOf('made'))
    }
    same(found, [0, 1, 2], 'partitions')
    return 0
  },
  async configs() {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topicOf('made') }]
    const answer = await admin.describeConfigs({ resources, includeSynonyms: false })
    const found = answer.resources[0].configEntries.find(one => one.configName === 'retention.ms')
    same(found.configValue, '86400000', 'retention.ms')
    return 0
  },
  async partitions() {
    let count = 0
    for (const partition of [0, 1, 2]) {
      count += await writeAndRead(topicOf('made'), samples(`partition ${partition}`, 5), {}, partition)
    }
    return count
  },
  async acks() {
    const topic = topicOf('acks')
    const records = samples('acks', 30)
    // Nobody acknowledges the first ten: read them before the next are sent over another connection.
    await write(topic, 0, records.slice(0, 10), { acks: 0 })
    await read(topic, 0, records.slice(0, 10))
    await write(topic, 0, records.slice(10, 20), { acks: 1 }, 10)
    await write(topic, 0, records.slice(20), { acks: -1 }, 20)
    await read(topic, 0, records)
    return records.length
  },
  async nulls() {
    return writeAndRead(topicOf('nulls'), [
      { key: null, value: text('v') },
      { key: text('k'), value: null },
      { key: text(''), value: text('') },
    ])
  },
  async headers() {
    const all = Buffer.from(Array.from({ length: 256 }, (_, index) => index))
    return writeAndRead(topicOf('headers'), [
      { key: text('k0'), value: text('none') },
      { key: text('k1'), value: text('text'), headers: { h1: [text('first'), text('second')] } },
      { key: text('k2'), value: text('order'), headers: { z: [text('1'), all], a: text('2') } },
      { key: text('k3'), value: text('empty'), headers: { empty: text(''), 'n\u00e4me': text('x') } },
    ])
  },
  async large() {
    const small = samples('large', 2)
    const large = seed => ({ key: text('large'), value: largeValue(seed) })
    return writeAndRead(topicOf('large'), [small[0], large(0), small[1], large(1)])
  },
  async offsets() {
    same(await offsets(topicOf('none')), [0, 100], 'earliest and end offset')
    return 0
  },
  async timestamps() {
    return writeAndRead(topicOf('time'), timed())
  },
  async 'by time'() {
    const topic = topicOf('time')
    for (const [laterMs, wanted] of [[0, 0], [2500, 3], [3000, 3], [9000, 9], [9001, null]]) {
      same(await offsetAt(topic, baseMs + laterMs), wanted, `offset at ${laterMs} ms`)
    }
    await read(topic, 0, timed().slice(3), 3)
    return 7
  },
  async idempotent() {
    const topic = topicOf('idempotent')
    const count = await writeAndRead(topic, samples('idempotent', 100), { idempotent: true })
    same(await offsets(topic), [0, 100], 'earliest and end offset')
    return count
  },
  async foreign() {
    const records = samples('foreign', 80).map((record, index) => ({
      ...record,
      headers: { index: text(String(index)) },
      timestamp: String(baseMs + index),
    }))
    await read(foreignTopic, 0, records)
    return records.length
  },
  async gaps() {
    return readGaps(foreignTopic)
  },
  async 'gaps zstd'() {
    return readGaps(`${foreignTopic}-zstd`)
  },
  async holes() {
    for (const hole of HOLES) {
      const { found } = await readAsMember(foreignTopic, hole, 1)
      match(`${foreignTopic} from ${hole}`, found.slice(0, 1), [left.find(one => one.offset >= hole)])
    }
    return HOLES.length
  },
  async committed() {
    const topic = `${foreignTopic}-txn`
    return match(topic, (await readAsMember(topic, 0)).found, committed)
  },
  // An aborted transaction at the end is behind the consumer too; in front of an empty batch kafkajs stays.
  async end() {
    const { found } = await readAsMember(foreignTopic, 0)
    same((await readAsMember(`${foreignTopic}-txn`, 0)).position, 120, 'position behind an aborted transaction')
    return match(foreignTopic, found, left)
  },
  async delete() {
    const topic = topicOf('made')
    const deadline = Date.now() + SETTLE_MS_MAX
    await admin.deleteTopics({ topics: [topic] })
    while ((await admin.listTopics()).includes(topic)) {
      assert.ok(Date.now() < deadline, `${topic}: still listed ${SETTLE_MS_MAX} ms after its deletion`)
      await sleep(50)
    }
    return 0
  },
}
for (const codec of Object.keys(CODECS)) {
  STEPS[`codec ${codec}`] = () => writeAndRead(topicOf(codec), samples(codec, 100), { codec })
}

async function main() {
  const say = what => console.log(JSON.stringify(what))
  say({ client: 'kafkajs', version: installed('kafkajs/package.json').version })
  await admin.connect()
  for (const step of steps) {
    const start = performance.now()
    try {
      if (!STEPS[step]) throw new Error('no such step')
      const records = await STEPS[step]()
      say({ step, records, ms: Math.round(performance.now() - start) })
    } catch (error) {
      console.error(`step ${step}: ${error.stack.slice(0, 3000)}`)
      process.exit(1)
    }
  }
  await admin.disconnect()
  process.exit(0)
}

main()
