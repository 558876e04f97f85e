package computeserver

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/api/config"
)

// scripted are scripts and their arguments behind the number of keys, with %s for the begin of
// their keys.
var scripted = [][]string{
	// what a script returns
	{"return 1", "0"},
	{"return 3.99", "0"}, {"return -3.99", "0"}, {"return 'text'", "0"}, {"return ''", "0"}, {"return nil", "0"}, {"return", "0"}, {"", "0"},
	{"return true", "0"}, {"return false", "0"}, {"return {1,2,{3,'x',true,false}}", "0"}, {"return {1,nil,3}", "0"}, {"return {}", "0"},
	{"return {ok='FINE'}", "0"}, {"return {err='MY error'}", "0"}, {"return redis.status_reply('X')", "0"}, {"return redis.error_reply('X')", "0"},
	{"return redis.error_reply('MY err')", "0"}, {"return redis.error_reply('-MY err')", "0"}, {"return redis.error_reply('My Err\\r\\nX')", "0"},
	{"return {double=3.5}", "0"}, {"return {map={a=1}}", "0"}, {"return {set={a=true}}", "0"}, {"return 1, 2", "0"}, {"return 1e15", "0"}, {"return 2^53", "0"},
	{"return function() end", "0"}, {"return {1, function() end, 3}", "0"}, {"return {a=1}", "0"}, {"return {{err='A b'}, {ok='C'}}", "0"},
	// KEYS and ARGV
	{"return {KEYS[1], KEYS[2], ARGV[1], ARGV[2], #KEYS, #ARGV}", "2", "%s1", "%s2", "a", ""},
	{"return KEYS[1]", "x"}, {"return KEYS[1]", "-1"}, {"return KEYS[1]", "2", "a"}, {"return ARGV[1]", "0", "7"}, {"return #ARGV[1]", "0", "a\x00b"},
	// calls
	{"return redis.call('SET', KEYS[1], ARGV[1])", "1", "%s1", "v"},
	{"return redis.call('get', KEYS[1])", "1", "%s1"}, {"return redis.call('get', KEYS[1])", "1", "%s9"}, {"return type(redis.call('get', KEYS[1]))", "1", "%s9"},
	{"return {redis.call('INCR', KEYS[1])}", "1", "%s1"}, {"return redis.call('set', KEYS[1], 12.5)", "1", "%s1"},
	{"return {redis.call('set', KEYS[1], 3), redis.call('get', KEYS[1]), redis.call('incrby', KEYS[1], 4), redis.call('incrbyfloat', KEYS[1], '0.5')}", "1", "%s1"},
	{"return redis.call('INCR', KEYS[1])", "1", "%s1"}, {"return redis.pcall('INCR', KEYS[1])", "1", "%s1"}, {"return redis.pcall('INCR', KEYS[1]).err", "1", "%s1"},
	{"local ok, e = pcall(redis.call, 'INCR', KEYS[1]); return {tostring(ok), e.err}", "1", "%s1"},
	{"\n\nredis.call('INCR', KEYS[1])", "1", "%s1"},
	{"redis.call('SET', KEYS[1], 'kept'); error('x')", "1", "%s2"}, {"return redis.call('GET', KEYS[1])", "1", "%s2"},
	{"return redis.call('SET', KEYS[1], 'v', 'PX', 100000, 'NX')", "1", "%s3"}, {"return redis.call('SET', KEYS[1], 'v', 'PX', 100000, 'NX')", "1", "%s3"},
	{"return redis.call('PTTL', KEYS[1]) > 90000", "1", "%s3"}, {"return redis.call('DEL', KEYS[1], KEYS[2])", "2", "%s3", "%s4"},
	{"return redis.call('HSET', KEYS[1], 'a', 1, 'b', 2)", "1", "%s4"}, {"return redis.call('HGETALL', KEYS[1])", "1", "%s4"}, {"return redis.call('HMGET', KEYS[1], 'a', 'c')", "1", "%s4"},
	{"return redis.call('GET', KEYS[1])", "1", "%s4"}, {"return redis.call('MGET', KEYS[1], KEYS[2], KEYS[1])", "2", "%s1", "%s4"},
	{"return redis.call('MSET', KEYS[1], 1, KEYS[2], 2)", "2", "%s1", "%s4"}, {"return redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[1])", "2", "%s1", "%s4"},
	{"return redis.call('PING')", "0"}, {"return redis.call('ECHO', 'x')", "0"}, {"return redis.call()", "0"}, {"return redis.call('NOPE')", "0"}, {"return redis.call('GET')", "0"},
	{"return redis.call('GET', {})", "0"}, {"return redis.call('GET', true)", "0"}, {"return redis.pcall('NOPE')", "0"}, {"return #redis.call('TIME')", "0"},
	{"return redis.call('SET', KEYS[1], 'v', 'BAD')", "1", "%s1"}, {"return redis.call('SETEX', KEYS[1], 0, 'v')", "1", "%s1"},
	{"return redis.call('DEL', KEYS[1], KEYS[2])", "2", "%s1", "%s4"}, {"return redis.call('DEL', KEYS[1])", "1", "%s2"},
	// errors
	{"error('boom')", "0"}, {"error({err='MY boom'})", "0"}, {"error()", "0"}, {"error('boom', 0)", "0"}, {"local function f() error('in', 2) end\nf()", "0"},
	{"return nope", "0"}, {"nope = 1", "0"}, {"return nope.x", "0"}, {"local a; return a.b", "0"}, {"local a = {}; return a.b.c", "0"}, {"local a = {}; a.b.c = 1", "0"}, {"return ('x')()", "0"},
	{"local a = {}; a.b()", "0"}, {"local a = 'x'; a:nope()", "0"}, {"return 1 + nil", "0"}, {"local t = {}; return t + 1", "0"}, {"return 'a' .. nil", "0"}, {"local t = {}; return 'a' .. t.x", "0"},
	{"return 1 < 'x'", "0"}, {"return {} < {}", "0"}, {"return #nil", "0"}, {"local x = 5; return #x", "0"}, {"string.rep()", "0"}, {"string.rep('x', {})", "0"}, {"return tostring()", "0"},
	{"KEYS[1] = 'x'; return KEYS[1]", "1", "%s1"}, {"redis.call = 1", "0"}, {"_G.x = 1", "0"}, {"rawset(_G, 'x', 1)", "0"}, {"string.x = 1", "0"}, {"table.insert(string, 1)", "0"},
	{"for i = 1, 'x' do end", "0"}, {"for i = 1, 2, {} do end", "0"}, {"return select(0)", "0"}, {"return unpack({}, 1, 1e8)", "0"}, {"assert(false)", "0"}, {"assert(nil, 'why')", "0"}, {"return assert(7)", "0"},
	{"return redis.sha1hex('')", "0"}, {"return redis.sha1hex(1)", "0"}, {"redis.log(redis.LOG_WARNING, 'x')", "0"}, {"redis.log(1)", "0"}, {"return redis.replicate_commands()", "0"},
	{"local t = {}; t[nil] = 1", "0"}, {"local t = {}; t[0/0] = 1", "0"}, {"table.concat({1, {}, 3})", "0"}, {"return string.format('%d', 'x')", "0"}, {"return string.format('%y', 1)", "0"}, {"return string.format('%d')", "0"},
	{"local function f() return f() + 1 end; return pcall(f) == false", "0"},
	// the language
	{"local t = {}; for i = 1, 10 do t[#t+1] = i * 2 end; return t", "0"}, {"local t = {}; for i = 10, 1, -3 do t[#t+1] = i end; return t", "0"}, {"local t = {}; for i = 1, 2, 0.5 do t[#t+1] = tostring(i) end; return t", "0"},
	{"local n = 0; while true do n = n + 1; if n > 5 then break end end; return n", "0"}, {"local n = 0; repeat local m = n; n = n + 1 until m >= 3; return n", "0"},
	{"local f = {}; for i = 1, 3 do f[i] = function() i = i + 1; return i end end; return {f[1](), f[1](), f[2](), f[3]()}", "0"},
	{"local function f(...) return select('#', ...), ... end; return {f(1, nil, 3)}", "0"}, {"local function f(...) local a, b = ...; return {a, b, ...} end; return f(1, 2, 3)", "0"}, {"return {(function() return 1, 2 end)(), (function() return 1, 2 end)()}", "0"},
	{"return {((function() return 1, 2 end)())}", "0"}, {"local a, b, c = (function() return 1, 2 end)(); return {a, b, tostring(c)}", "0"}, {"local a, b = 1, 2; a, b = b, a; return {a, b}", "0"},
	{"local i, t = 1, {}; i, t[i] = i + 1, 20; return {i, t[1], tostring(t[2])}", "0"}, {"local o = {n = 0}; function o:add(k) self.n = self.n + k; return self end; return o:add(2):add(3).n", "0"},
	{"return {1 == 1, 1 == '1', 'a' < 'b', 'a' < 'B', '' < 'a', not nil, not 0, nil == false}", "0"}, {"return {tostring(1 and 2), tostring(nil and 2), tostring(nil or 3), tostring(false or nil)}", "0"},
	{"return {tostring(10 / 4), tostring(10 % 3), tostring(-10 % 3), tostring(10 % -3), tostring(5.5 % 2), tostring(2 ^ 10), tostring(2 ^ 0.5), tostring(1 / 0), tostring(-1 / 0)}", "0"},
	{"return {tostring(0.1 + 0.2), tostring(1e15), tostring(1e14), tostring(123456789012345), tostring(1e100), tostring(1/3), tostring(100), tostring(-0.5), tostring(1e-5), tostring(123456.789e3)}", "0"},
	{"return {'10' + 5, '0x10' + 0, ' 5 ' * 2, 10 .. 20, 1.5 .. ''}", "0"}, {"return {tonumber('10'), tonumber('z', 36), tonumber('ff', 16), tonumber('8', 8) == nil, tonumber('1e2'), tonumber('') == nil, tonumber('1 2') == nil, tonumber('0x') == nil, tonumber('-7', 10), tonumber(' 12 ')}", "0"},
	{"local s = 0; for k, v in pairs({1, 2, 3, a = 4}) do s = s + v end; return s", "0"}, {"local s = ''; for i, v in ipairs({'a', 'b', nil, 'd'}) do s = s .. i .. v end; return s", "0"}, {"return tostring(next({}))", "0"}, {"local t = {1, 2, 3}; for k in pairs(t) do t[k] = nil end; return #t", "0"},
	{"local t = {5, 2, 8, 1}; table.sort(t); return t", "0"}, {"local t = {5, 2, 8, 1}; table.sort(t, function(a, b) return a > b end); return t", "0"}, {"local t = {'b', 'a', 'C'}; table.sort(t); return t", "0"},
	{"local t = {1, 2, 3}; table.insert(t, 4); table.insert(t, 1, 0); table.insert(t, 3, 'x'); return t", "0"}, {"local t = {1, 2, 3, 4}; return {table.remove(t), table.remove(t, 1), #t, t[1], tostring(table.remove({}))}", "0"},
	{"return table.concat({1, 2, 'x'}, ', ')", "0"}, {"return table.concat({1, 2, 3}, '-', 2, 3)", "0"}, {"return {unpack({1, 2, 3})}", "0"}, {"return {unpack({1, 2, 3}, 2)}", "0"}, {"return {select(2, 'a', 'b', 'c')}", "0"}, {"return {select(-1, 'a', 'b', 'c')}", "0"},
	{"local ok, e = pcall(function() error('x') end); return {tostring(ok), e}", "0"}, {"local ok, e = pcall(function() local a; a.b = 1 end); return e", "0"}, {"return {xpcall(function() error('x', 0) end, function(e) return e .. '!' end)}", "0"}, {"return {pcall(function(...) return ... end, 1, 2)}", "0"},
	{"return {#'abc', ('x'):rep(3), ('abc'):upper(), ('ABC'):lower(), ('abc'):reverse(), ('abc'):sub(2), ('abc'):sub(-2, -1), ('abc'):sub(0), ('abc'):sub(5), ('abc'):byte(), ('abc'):byte(-1), string.char(72, 105), ('abc'):len()}", "0"},
	{"return {('hello world'):find('wor'), ('hello'):find('l'), ('hello'):find('xyz'), ('hello'):find(''), ('hello'):find('', 10), ('a.b'):find('.', 1, true), ('hello'):find('(l)(l)')}", "0"},
	{"return {('key=value'):match('(%w+)=(%w+)'), ('  trim  '):match('^%s*(.-)%s*$'), ('2026-11-29'):match('(%d+)-(%d+)-(%d+)'), ('abc'):match('()b()'), ('[x]'):match('%[(.)%]'), ('f(a(b)c)d'):match('%b()'), ('THE (quick) fox'):find('%((%a+)%)')}", "0"},
	{"return {('hello world'):gsub('o', '0'), ('hello'):gsub('', '-'), ('hello'):gsub('l', {l = 'L'}), ('hello'):gsub('.', function(c) if c == 'e' then return 'E' end end), ('abc'):gsub('%w', '%0%0'), ('abc def'):gsub('(%w+) (%w+)', '%2 %1'), ('abc'):gsub('b', '%%'), ('aaa'):gsub('a', 'b', 2), ('abc'):gsub('^a', 'x')}", "0"},
	{"local t = {}; for w in ('one two  three'):gmatch('%a+') do t[#t+1] = w end; for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do t[#t+1] = k .. v end; return t", "0"}, {"return {('x^y'):match('^x'), ('a]b'):match('[]]'), ('a-b'):match('[a%-]+'), ('THE'):match('%f[%a]%a+'), ('abab'):match('(ab)%1'), ('0x1F'):match('%x+', 3)}", "0"},
	{"return ('x'):match('[a')", "0"}, {"return ('x'):match('(')", "0"}, {"return ('x'):match('%')", "0"}, {"return ('x'):match(')')", "0"}, {"return ('x'):gsub('x', '%2')", "0"}, {"return ('x'):match('%1')", "0"}, {"return ('x'):gsub('x', function() return {} end)", "0"},
	{"return {string.format('%d %5d|%-5d|%05d %+d', 42, 42, 42, 42, 42), string.format('%s %10s|%-10s|%.2s', 'abc', 'abc', 'abc', 'abc'), string.format('%f %.2f %e %g %g %g', 1.5, 1.555, 12345.678, 0.1, 1e20, 100), string.format('%x %X %#x %o %c %%', 255, 255, 255, 8, 65), string.format('%q', 'a\"b\\n\\\\'), string.format('%5.1f|%-8.3f|', 3.14159, 2.5), string.format('%i', 3.9), string.format('%u', 7), string.format('%s', 1.5)}", "0"},
	{"return {math.floor(3.7), math.ceil(3.2), math.abs(-4), math.max(1, 5, 3), math.min(4, 2), math.floor(-3.5), math.fmod(7, 3), tostring(math.pi), tostring(math.huge), tostring(math.sqrt(2)), math.pow(2, 5), tostring(math.modf(3.7))}", "0"},
	{"math.randomseed(42); return {math.random(1000), math.random(1000)}", "0"},
	{"return {bit.band(12, 10), bit.bor(12, 10), bit.bxor(12, 10), bit.bnot(0), bit.lshift(1, 31), bit.rshift(-1, 28), bit.arshift(-8, 1), bit.rol(0x12345678, 8), bit.ror(0x12345678, 8), bit.bswap(0x12345678), bit.tobit(2^32+5), bit.tohex(255), bit.tohex(255, 4), bit.tohex(-1, -8)}", "0"},
	{"return {cjson.encode({1, 2, {a = 'x'}}), cjson.encode({}), cjson.encode({a = 1.5}), cjson.encode('q\"\\\\/\\n\\1'), cjson.encode({[1] = 'a', [3] = 'c'}), cjson.encode(cjson.null), cjson.encode(1e20), cjson.encode({[2.5] = 1}), cjson.encode(0.1), cjson.encode(nil)}", "0"},
	{"local t = cjson.decode(ARGV[1]); return {t.a[1], t.a[2], t.b, tostring(t.c), t.d == cjson.null, t.e, t['f g'], tostring(t.h)}", "0", `{"a":[1,"two"],"b":"x\u00e9\n\ud83d\ude00","c":true,"d":null,"e":-1.5e3,"f g":"y","h":0.1}`},
	{"return cjson.encode(cjson.decode(ARGV[1]))", "0", `[1, {"k": [true, false, null]}, "s"]`},
	{"return cjson.decode('[1') ", "0"}, {"return cjson.decode('{1:2}')", "0"}, {"return cjson.decode('nope')", "0"}, {"return cjson.encode({[1e9] = 1})", "0"}, {"return cjson.encode(function() end)", "0"}, {"return cjson.encode(1/0)", "0"}, {"return cjson.decode('[1] x')", "0"},
	{"#!lua\nreturn 1", "0"}, {"#!lua flags=no-writes\nreturn redis.call('SET', KEYS[1], 1)", "1", "%s1"}, {"#!nope\nreturn 1", "0"}, {"#!lua flags=nope\nreturn 1", "0"}, {"-- note\nreturn --[[ x ]] 1", "0"}, {"return [[long\nstring]]", "0"}, {"return 'esc\\065\\n\\x'", "0"}, {"return 0x1F", "0"}, {"return 1e3", "0"}, {"return .5 * 4", "0"},
	{"local s = 0; for i = 1, 3 do for j = 1, 3 do if j == 2 then break end; s = s + i * j end end; return s", "0"}, {"do local x = 1; do local x = 2 end; return x end", "0"}, {"local x = 1; local function f() x = x + 1; return x end; f(); return {f(), x}", "0"},
	{"return {type(1), type('x'), type(nil), type({}), type(print), type(true)}", "0"}, {"return {type(1), type('x'), type(nil), type({}), type(type), type(true)}", "0"}, {"return type(os)", "0"}, {"return type(io)", "0"}, {"return type(loadfile)", "0"}, {"return type(dofile)", "0"}, {"return type(require)", "0"},
	{"local t = {[1] = 'a', [2] = 'b', n = 2, [3] = nil}; return {#t, t.n}", "0"}, {"local t = {10, 20, 30, nil}; return #t", "0"}, {"local t = {n = 1, 2, 3}; return {t[1], t[2], t.n}", "0"}, {"local t = {}; t[3] = 3; t[2] = 2; t[1] = 1; return t", "0"}, {"local t = {1, 2, 3}; t[2] = nil; return {t[1], tostring(t[2]), t[3]}", "0"}, {"return table.maxn({1, 2, [10] = 3})", "0"}, {"return {table.getn({1, 2})}", "0"},
}

// TestScriptsAgainstRedis: scripts are answered byte by byte as a real redis-server answers, at the
// owner of their keys and at another server, in RESP2 and RESP3, and between MULTI and EXEC.
func TestScriptsAgainstRedis(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m")
	for _, protocol := range []string{"2", "3"} {
		p := newPair(t, c, protocol)
		p.ask([]string{"GET", "a"}, []string{"GET", "x"})
		for _, key := range []string{"a", "x"} {
			var all [][]string
			for _, of := range scripted {
				command := []string{"EVAL"}
				for i, arg := range of {
					if i > 0 {
						arg = strings.ReplaceAll(arg, "%s", key+protocol)
					}
					command = append(command, arg)
				}
				p.ask(command)
				all = append(all, command)
			}
			for i := range 4 {
				p.ask([]string{"DEL", fmt.Sprint(key, protocol, i+1)})
			}
			p.ask([]string{"MULTI"})
			for _, command := range all {
				p.ask(command)
			}
			p.ask([]string{"EXEC"})
			for i := range 4 {
				p.ask([]string{"DEL", fmt.Sprint(key, protocol, i+1)})
			}
		}
	}
}
