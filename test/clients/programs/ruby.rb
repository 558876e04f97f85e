# redis-rb against HOST PORT: a line a check, and an error status where one fails.
require "redis"

host, port = ARGV[0], ARGV[1].to_i
$failed = 0

def check(name, want)
  got = begin
    yield
  rescue => e
    e
  end
  ok = got == want
  $failed += 1 unless ok
  puts ok ? "ok #{name}" : "FAILED #{name}: #{got.inspect}, want #{want.inspect}"
end

puts "redis-rb #{Redis::VERSION}"
r = Redis.new(host: host, port: port)
check("set, get", ["OK", "1"]) { [r.set("rb:a", "1"), r.get("rb:a")] }
check("set ex", ["OK", 10]) { [r.set("rb:e", "1", ex: 10), r.ttl("rb:e")] }
check("set nx", [true, false]) { [r.set("rb:nx", "1", nx: true), r.set("rb:nx", "1", nx: true)] }
check("incr", 2) { r.incr("rb:a") }
check("pipelined", ["OK", "1"]) { r.pipelined { |p| p.set("rb:b", "1"); p.get("rb:b") } }
check("multi", ["OK", "1"]) { r.multi { |p| p.set("rb:b", "1"); p.get("rb:b") } }
check("watch", ["OK"]) { r.watch("rb:b") { n = r.get("rb:b").to_i; r.multi { |p| p.set("rb:b", n + 1) } } }
check("mapped_mget", { "rb:a" => "2", "rb:nope" => nil }) { r.mapped_mget("rb:a", "rb:nope") }
check("hset, hgetall", { "a" => "1" }) { r.hset("rb:h", "a", 1); r.hgetall("rb:h") }
check("zadd, zrange", ["a", "b"]) { r.zadd("rb:z", [[2, "b"], [1, "a"]]); r.zrange("rb:z", 0, -1) }
check("eval", 4) { r.eval("return redis.call('GET', KEYS[1]) * ARGV[1]", ["rb:a"], [2]) }
100.times { |i| r.set("rb:scan:#{i}", "x") }
check("scan_each", 100) { r.scan_each(match: "rb:scan:*").to_a.uniq.size }
check("subscribe", [["rb:news", "hello"], ["rb:news", "from Lua"]]) do
  heard, sub = [], Redis.new(host: host, port: port)
  sub.subscribe("rb:news") do |on|
    on.subscribe { r.publish("rb:news", "hello"); r.eval("return redis.call('PUBLISH', 'rb:news', 'from Lua')") }
    on.message { |channel, m| heard << [channel, m]; sub.unsubscribe if heard.size == 2 }
  end
  heard
end
check("close, get", "2") { r.close; r.get("rb:a") }
check("another database", true) do
  Redis.new(host: host, port: port, db: 1).get("a")
rescue Redis::CommandError => e
  e.message.include?("an index is one database")
end
check("del", true) { r.del(*r.keys("rb:*")) > 100 }
exit($failed == 0)
