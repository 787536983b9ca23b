// The members of groups for kafkajs: BOOTSTRAP. Commands come on the input, events go to the output;
// ../python/group_script.py is the other end, README.md has the words.
//
// kafkajs calls nobody before partitions are taken away; that it joins again (REBALANCING) means that it gave up all.
'use strict'
const { createRequire } = require('node:module')
const readline = require('node:readline')

const installed = createRequire(`${process.cwd()}/`) // the packages are cached in the folder that this runs in
const { Kafka, PartitionAssigners, logLevel } = installed('kafkajs')

const ASSIGNERS = { roundrobin: PartitionAssigners.roundRobin }

const kafka = new Kafka({ brokers: [process.argv[2]], clientId: 'member', logLevel: logLevel.NOTHING })
const say = what => console.log(JSON.stringify(what))

class Member {
  constructor(name, settings) {
    this.name = name
    this.settings = settings
    this.held = []
    this.ready = this.join()
  }

  say(event, what) {
    say({ member: this.name, event, ...what })
  }

  async join() {
    const { group, topic, session, assignor } = this.settings
    this.consumer = kafka.consumer({
      groupId: group,
      partitionAssigners: [ASSIGNERS[assignor]],
      sessionTimeout: Number(session),
      heartbeatInterval: 300,
      maxWaitTimeInMs: 100,
    })
    const { GROUP_JOIN, REBALANCING, CRASH } = this.consumer.events
    this.consumer.on(REBALANCING, () => this.revoke())
    this.consumer.on(GROUP_JOIN, ({ payload }) => {
      this.revoke()
      this.held = payload.memberAssignment[topic] || []
      this.say('assigned', { partitions: this.held })
    })
    this.consumer.on(CRASH, ({ payload }) => this.say('error', { text: payload.error.stack }))
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [topic], fromBeginning: true })
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        this.say('record', { partition, offset: Number(message.offset), value: String(message.value) })
      },
    })
  }

  revoke() {
    this.say('revoked', { partitions: this.held })
    this.held = []
  }

  places(text) {
    return text.split(',').map(place => {
      const [partition, offset] = place.split(':')
      return { topic: this.settings.topic, partition: Number(partition), offset }
    })
  }

  async obey(word, told) {
    await this.ready
    if (word === 'committed') return this.say('committed', { offsets: await this.committed() })
    if (word === 'commit') await this.consumer.commitOffsets(this.places(told.at))
    else if (word === 'seek') this.places(told.to).forEach(place => this.consumer.seek(place))
    else if (word === 'leave') await this.consumer.disconnect()
    else throw new Error(`no such command: ${word}`)
    this.say('done')
  }

  async committed() {
    const admin = kafka.admin()
    await admin.connect()
    const [found] = await admin.fetchOffsets({ groupId: this.settings.group, topics: [this.settings.topic] })
    await admin.disconnect()
    const pairs = found.partitions.map(one => [one.partition, Number(one.offset)])
    return Object.fromEntries(pairs.filter(([, offset]) => offset >= 0))
  }
}

say({ client: 'kafkajs', version: installed('kafkajs/package.json').version })
const members = {}
const lines = readline.createInterface({ input: process.stdin })
lines.on('line', line => {
  const [word, name, ...words] = line.split(' ')
  const told = Object.fromEntries(words.map(one => one.split(/=(.*)/s).slice(0, 2)))
  const failed = error => say({ member: name, event: 'error', text: error.stack })
  if (word === 'join') {
    members[name] = new Member(name, told)
    members[name].ready.catch(failed)
  } else {
    members[name].obey(word, told).catch(failed)
  }
})
lines.on('close', () => process.exit(0))
