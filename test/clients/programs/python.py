"""redis-py against HOST PORT: a line a check, and an error status where one fails."""
import asyncio, sys
import redis, redis.asyncio

host, port = sys.argv[1], int(sys.argv[2])
failed = 0


def check(name, f, want):
    global failed
    try:
        got = f()
    except Exception as e:
        got = e
    ok = got == want
    failed += not ok
    print(f"{'ok' if ok else 'FAILED'} {name}" + ("" if ok else f": {got!r}, want {want!r}"))


def refused(name, f, want):
    """Checks that f fails with an error that says so."""
    try:
        e = f"no error: {f()!r}"
    except redis.RedisError as error:
        e = str(error)
    check(f"{name}: {e}", lambda: want in e, True)


def lock(r):
    with r.lock("py:lock", timeout=5):
        other = r.lock("py:lock", timeout=5).acquire(blocking=False)
    return other, r.exists("py:lock")


def add(pipe):
    n = int(pipe.get("py:n"))
    pipe.multi()
    pipe.set("py:n", n + 1)


def message(p):
    """The next message of a subscription, without its type."""
    for m in p.listen():
        if m["type"] in ("message", "pmessage"):
            return m["pattern"], m["channel"], m["data"]


def heard(r):
    with r.pubsub(ignore_subscribe_messages=True) as p:
        p.subscribe("py:news")
        p.get_message(timeout=10)  # the confirmation
        r.publish("py:news", "hello")
        yield message(p)
        p.unsubscribe()
        p.psubscribe("py:n*")
        for _ in range(2):
            p.get_message(timeout=10)
        r.eval("return redis.call('PUBLISH', 'py:new', 'from Lua')", 0)
        yield message(p)


async def later():
    r = redis.asyncio.Redis(host=host, port=port)
    await r.set("py:aio", "1")
    async with r.pipeline() as p:
        got = await p.incr("py:aio").get("py:aio").execute()
    await r.close()
    return got


print("redis-py", redis.__version__)
r = redis.Redis(host=host, port=port)
check("ping", r.ping, True)
check("set", lambda: r.set("py:a", "1"), True)
check("get", lambda: r.get("py:a"), b"1")
check("get of a missing key", lambda: r.get("py:nope"), None)
check("set ex", lambda: (r.set("py:e", "1", ex=60), r.ttl("py:e")), (True, 60))
check("set nx", lambda: (r.set("py:nx", "1", nx=True), r.set("py:nx", "2", nx=True)), (True, None))
check("mset, mget", lambda: (r.mset({"py:x": 1, "py:y": 2}), r.mget("py:x", "py:y", "py:nope")), (True, [b"1", b"2", None]))
check("incr", lambda: r.incr("py:n"), 1)
check("append", lambda: r.append("py:a", "2"), 2)
check("expire, persist", lambda: (r.expire("py:a", 60), r.persist("py:a")), (True, True))
check("type", lambda: r.type("py:a"), b"string")
check("pipeline", lambda: r.pipeline().set("py:p", "1").get("py:p").execute(), [True, b"1"])
check("pipeline without a transaction", lambda: r.pipeline(transaction=False).set("py:p", "1").get("py:p").execute(), [True, b"1"])
check("transaction", lambda: r.transaction(add, "py:n"), [True])
check("lock", lambda: lock(r), (False, 0))
check("hset, hgetall", lambda: (r.hset("py:h", mapping={"a": "1"}), r.hgetall("py:h")), (1, {b"a": b"1"}))
check("zadd, zrange", lambda: (r.zadd("py:z", {"b": 2, "a": 1}), r.zrange("py:z", 0, -1, withscores=True)), (2, [(b"a", 1.0), (b"b", 2.0)]))
check("zscan_iter", lambda: list(r.zscan_iter("py:z")), [(b"a", 1.0), (b"b", 2.0)])
check("register_script", lambda: r.register_script("return redis.call('GET', KEYS[1]) * ARGV[1]")(keys=["py:x"], args=[7]), 7)
for i in range(100):
    r.set(f"py:scan:{i}", "x")
check("scan_iter", lambda: len(set(r.scan_iter("py:scan:*"))), 100)
check("scan_iter of a type", lambda: len(set(r.scan_iter("py:*", _type="hash"))), 1)
check("keys", lambda: len(r.keys("py:scan:*")), 100)
check("info", lambda: "redis_version" in r.info(), True)
check("client_list", lambda: len(r.client_list()) > 0, True)
check("health check", lambda: redis.Redis(host=host, port=port, health_check_interval=1).ping(), True)
check("rename", lambda: r.rename("py:a", "py:a"), True)
check("pubsub", lambda: list(heard(r)), [(None, b"py:news", b"hello"), (b"py:n*", b"py:new", b"from Lua")])
check("pubsub_numsub", lambda: r.pubsub_numsub("py:news"), [(b"py:news", 0)])
check("asyncio", lambda: asyncio.run(later()), [2, b"2"])
refused("lpush", lambda: r.lpush("py:l", "1"), "no lists")
refused("another database", lambda: redis.Redis(host=host, port=port, db=1).get("a"), "an index is one database")
check("delete", lambda: r.delete(*r.keys("py:*")) > 100, True)
sys.exit(failed > 0)
