// Libraries of Node.js against HOST PORT: a line a check, and an error status where one fails.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { isDeepStrictEqual } from 'node:util'
import KeyvRedis from '@keyv/redis'
import { createCache } from 'cache-manager'
import { RedisStore } from 'connect-redis'
import Keyv from 'keyv'

const require = createRequire(import.meta.url)
const [host, port] = [process.argv[2], +process.argv[3]]
const url = `redis://${host}:${port}`
const limit = 30_000 // of each check
let failed = 0

async function check(name, want, f) {
  let got, timer
  try {
    got = await Promise.race([f(), new Promise((_, no) => { timer = setTimeout(() => no(new Error(`no end within ${limit} ms`)), limit) })])
  } catch (e) { got = e } finally { clearTimeout(timer) }
  const ok = isDeepStrictEqual(got, want)
  failed += !ok
  console.log(ok ? `ok ${name}` : `FAILED ${name}: ${got instanceof Error ? got.stack : JSON.stringify(got)}, want ${JSON.stringify(want)}`)
}

// refused checks that f fails with an error that says so.
const refused = (name, want, f) => check(name, true, async () => {
  try { await f() } catch (e) { return String(e.message).includes(want) || e }
})

const versions = JSON.parse(readFileSync(new URL('package.json', import.meta.url))).dependencies
const title = name => console.log(name, versions[name])

async function ioredis() {
  title('ioredis')
  const { Redis, Cluster } = require('ioredis')
  const r = new Redis(port, host)
  await check('set, get', ['OK', '1'], async () => [await r.set('io:a', '1'), await r.get('io:a')])
  await check('set EX', ['OK', 10], async () => [await r.set('io:e', '1', 'EX', 10), await r.ttl('io:e')])
  await check('incr', 2, () => r.incr('io:a'))
  await check('mset, mget', ['1', '2', null], async () => { await r.mset('io:x', 1, 'io:y', 2); return r.mget('io:x', 'io:y', 'io:nope') })
  await check('pipeline', [[null, 'OK'], [null, '1']], () => r.pipeline().set('io:b', 1).get('io:b').exec())
  await check('multi', [[null, 'OK'], [null, '1']], () => r.multi().set('io:b', 1).get('io:b').exec())
  await check('hset, hgetall', [1, { a: '1' }], async () => [await r.hset('io:h', 'a', 1), await r.hgetall('io:h')])
  await check('zadd, zrange', [2, ['a', 'b']], async () => [await r.zadd('io:z', 2, 'b', 1, 'a'), await r.zrange('io:z', 0, -1)])
  r.defineCommand('double', { numberOfKeys: 1, lua: 'return redis.call("GET", KEYS[1]) * 2' })
  await check('defineCommand', 4, () => r.double('io:a'))
  await Promise.all(Array.from({ length: 100 }, (_, i) => r.set(`io:scan:${i}`, 'x')))
  await check('scanStream', 100, async () => {
    const found = new Set()
    for await (const keys of r.scanStream({ match: 'io:scan:*' })) keys.forEach(k => found.add(k))
    return found.size
  })
  await check('subscribe, psubscribe', [['io:news', 'hello'], ['io:n*', 'io:new', 'from Lua']], async () => {
    const sub = new Redis(port, host)
    try {
      const next = event => new Promise(yes => sub.once(event, (...args) => yes(args)))
      await sub.subscribe('io:news')
      const first = next('message')
      await r.publish('io:news', 'hello')
      const heard = [await first]
      await sub.unsubscribe()
      await sub.psubscribe('io:n*')
      const second = next('pmessage')
      await r.eval('return redis.call("PUBLISH", "io:new", "from Lua")', 0)
      return [...heard, await second]
    } finally { sub.disconnect() }
  })
  await check('enableAutoPipelining', ['OK', '1', null], async () => {
    const q = new Redis(port, host, { enableAutoPipelining: true })
    try { return await Promise.all([q.set('io:p', 1), q.get('io:p'), q.get('io:nope')]) } finally { q.disconnect() }
  })
  await refused('another database', 'an index is one database', async () => {
    const q = new Redis(port, host, { db: 1 })
    q.on('error', () => {}) // it says there what the command fails with
    try { await q.get('io:a') } finally { q.disconnect() }
  })
  await refused('Cluster', 'None of startup nodes is available', async () => {
    const c = new Cluster([{ host, port }], { clusterRetryStrategy: () => null })
    c.on('error', () => {})
    try { await c.get('io:a') } finally { c.disconnect() }
  })
  await check('del', true, async () => await r.del(await r.keys('io:*')) > 100)
  r.disconnect()
}

async function nodeRedis() {
  title('redis')
  const { createClient, createClientPool } = require('redis')
  for (const RESP of [undefined, 2]) {
    const c = createClient({ url, ...RESP && { RESP } })
    c.on('error', e => console.log('event error:', e.message))
    await c.connect()
    const name = RESP ? 'RESP2 ' : ''
    await check(name + 'set, get', ['OK', '1'], async () => [await c.set('nr:a', '1'), await c.get('nr:a')])
    await check(name + 'set EX', ['OK', 10], async () => [await c.set('nr:e', '1', { EX: 10 }), await c.ttl('nr:e')])
    await check(name + 'setEx', 'OK', () => c.setEx('nr:e', 10, '1'))
    await check(name + 'subscribe, pSubscribe', ['hello', 'hello', 'from Lua'], async () => {
      const sub = c.duplicate()
      await sub.connect()
      try {
        const heard = []
        await new Promise(async (yes, no) => {
          const hear = m => { if (heard.push(m) === 3) yes() }
          try {
            await sub.subscribe('nr:news', hear)
            await sub.pSubscribe('nr:n*', hear)
            await c.publish('nr:news', 'hello')
            await c.eval('return redis.call("PUBLISH", "nr:new", "from Lua")')
          } catch (e) { no(e) }
        })
        await sub.unsubscribe()
        await sub.pUnsubscribe()
        return heard
      } finally { sub.destroy() }
    })
    await check(name + 'pipeline', ['OK', '1'], () => Promise.all([c.set('nr:b', '1'), c.get('nr:b')]))
    await check(name + 'multi', ['OK', '1'], () => c.multi().set('nr:b', '1').get('nr:b').exec())
    await check(name + 'hSet, hGetAll', { a: '1' }, async () => { await c.hSet('nr:h', 'a', '1'); return { ...await c.hGetAll('nr:h') } })
    await check(name + 'zAdd, zRangeWithScores', [{ value: 'a', score: 1 }], async () => { await c.zAdd('nr:z', { value: 'a', score: 1 }); return (await c.zRangeWithScores('nr:z', 0, -1)).map(x => ({ ...x })) })
    await check(name + 'eval', 2, () => c.eval('return redis.call("GET", KEYS[1]) * 2', { keys: ['nr:a'] }))
    await Promise.all(Array.from({ length: 100 }, (_, i) => c.set(`nr:scan:${i}`, 'x')))
    await check(name + 'scanIterator', 100, async () => {
      const found = new Set()
      for await (const keys of c.scanIterator({ MATCH: 'nr:scan:*' })) keys.forEach(k => found.add(k))
      return found.size
    })
    await check(name + 'del', true, async () => await c.del(await c.keys('nr:*')) > 100)
    c.destroy()
  }
  await check('createClientPool', null, async () => {
    const p = createClientPool({ url })
    await p.connect()
    try { return await p.get('nr:nope') } finally { p.destroy() }
  })
}

async function caches() {
  title('keyv')
  const k = new Keyv(new KeyvRedis(url), { throwOnErrors: true })
  await check('keyv set, get', { x: 1 }, async () => { await k.set('a', { x: 1 }); return k.get('a') })
  await check('keyv set with expiry', 1, async () => { await k.set('b', 1, 10_000); return k.get('b') })
  await check('keyv setMany, getMany', [1, 2], async () => { await k.setMany([{ key: 'c', value: 1 }, { key: 'd', value: 2 }]); return k.getMany(['c', 'd']) })
  await check('keyv has, delete', [true, true, false], async () => [await k.has('a'), await k.delete('a'), await k.has('a')])
  await check('keyv clear', undefined, async () => { await k.clear(); return k.get('b') })
  await k.disconnect()
  title('cache-manager')
  const c = createCache({ stores: [new Keyv({ store: new KeyvRedis(url) })], ttl: 10_000 })
  await check('cache-manager set, get', 1, async () => { await c.set('cm:a', 1); return c.get('cm:a') })
  await check('cache-manager wrap', [7, 7], async () => [await c.wrap('cm:w', () => 7), await c.wrap('cm:w', () => 8)])
  await check('cache-manager del', undefined, async () => { await c.del('cm:a'); return c.get('cm:a') })
  await c.clear()
  await c.disconnect()
}

async function sessions() {
  title('connect-redis')
  const { createClient } = require('redis'), express = require('express'), session = require('express-session')
  const client = createClient({ url })
  await client.connect()
  const store = new RedisStore({ client, prefix: 'sess:' })
  const app = express()
  app.use(session({ store, resave: false, saveUninitialized: true, secret: 'x' }))
  app.get('/', (req, res) => { req.session.n = (req.session.n ?? 0) + 1; res.end('n=' + req.session.n) })
  const server = app.listen(0, '127.0.0.1')
  await new Promise(ok => server.once('listening', ok))
  const site = 'http://127.0.0.1:' + server.address().port
  let cookie
  await check('express-session, first request', 'n=1', async () => {
    const r = await fetch(site)
    cookie = r.headers.get('set-cookie')?.split(';')[0]
    return r.text()
  })
  await check('express-session, second request', 'n=2', async () => (await fetch(site, { headers: { cookie } })).text())
  await check('store.all', 1, async () => (await store.all()).length)
  await check('store.clear', 0, async () => { await store.clear(); return store.length() })
  server.closeAllConnections()
  server.close()
  client.destroy()
}

async function limits() {
  title('rate-limiter-flexible')
  const { Redis } = require('ioredis'), { RateLimiterRedis } = require('rate-limiter-flexible')
  const r = new Redis(port, host)
  const l = new RateLimiterRedis({ storeClient: r, points: 2, duration: 60 })
  await check('consume', [1, 0], async () => [(await l.consume('u1')).remainingPoints, (await l.consume('u1')).remainingPoints])
  await check('consume too many', 0, () => l.consume('u1').catch(e => e.remainingPoints))
  await check('delete', true, () => l.delete('u1'))
  title('redlock')
  const Redlock = require('redlock')
  const locks = new Redlock([r], { retryCount: 0 })
  await check('lock, extend, unlock', ['LockError', true], async () => {
    const lock = await locks.lock('rl', 10_000)
    const other = await locks.lock('rl', 10_000).catch(e => e.name)
    await (await lock.extend(10_000)).unlock()
    return [other, await r.exists('rl') === 0]
  })
  r.disconnect()
}

for (const f of [ioredis, nodeRedis, caches, sessions, limits]) await f()
process.exit(failed > 0 ? 1 : 0)
