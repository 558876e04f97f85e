package script

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// An eighth of the default bounds, so that many scripts get there in a test.
const (
	fewSteps    = DefaultSteps / 8
	smallMemory = DefaultMemory / 8
)

// echo answers a call with its first argument.
func echo(args [][]byte) ([]byte, int) { return appendBulk(nil, string(args[0])), 0 }

// run runs a script within these bounds; calls of commands are answered with their first
// argument.
func run(t testing.TB, text string) (string, error) {
	t.Helper()
	p, err := Compile([]byte(text))
	if err != nil {
		t.Fatalf("%.80q: %v", text, err)
	}
	r := &Run{Keys: [][]byte{[]byte("k")}, Steps: fewSteps, Memory: smallMemory, Call: echo}
	reply, err := p.Do(r, nil)
	return string(reply), err
}

// TestBounds: scripts that do not end, or take memory, end within their bounds, whatever they
// catch.
func TestBounds(t *testing.T) {
	for _, text := range []string{
		"while true do end",
		"repeat until false",
		"for i = 1, 1/0 do end",
		"for i = 2, 1, 0 do end",
		"while true do pcall(function() while true do end end) end",
		"local function f() return pcall(f) end while true do f() end",
		"local function f() return xpcall(f, f) end while true do f() end",
		"return string.rep('x', 1e9)",
		"local s = string.rep('x', 4096) return string.rep(s, 4096)",
		"local s = 'x' while true do s = s .. s end",
		"local s = 'x' while true do s = s .. s .. s .. s end",
		"local t = {} for i = 1, 1e9 do t[i] = i end",
		"local t = {} for i = 1, 1e9 do t[i * 60000000] = i end",
		"local t = {} for i = 1, 1e9 do t[#t + 1] = {} end",
		"local t = {} for i = 1, 1e9 do t[i] = function() return i end end",
		"local t = {} while true do t = {t, t, t, t} end",
		"local t = {} for i = 1, 1e9 do t['k' .. i] = i end",
		"local t = {} for i = 1, 1e9 do t[i] = tostring(i) end",
		"local s = string.rep('a', 30) return s:find(string.rep('a*', 30) .. 'b')",
		"local s = string.rep('a', 30) return s:find(string.rep('a?', 30) .. string.rep('a', 31))",
		"local s = string.rep('a', 100000) return s:find('.-.-.-.-b')",
		"local s = string.rep('(', 100000) while true do s:find('%b()') end",
		"local s = string.rep('a', 100000) while true do s:gsub('a', 'aaaaaaaaaa') end",
		"local s = string.rep('a', 1000000) local n = 0 while true do if s == 'b' .. s then n = n + 1 end end",
		"local s, t = string.rep('a', 1000000), {} while true do local x = t[s] end",
		"local s = string.rep('%99d', 1000) while true do pcall(string.format, s, unpack({1, 2, 3})) end",
		"local t = {} for i = 1, 5000 do t[i] = 'x' end while true do string.char(unpack({65, 66})) unpack(t) end",
		"local t = {} for i = 1, 6000 do t[i] = i end local function f(...) return f(1, ...) end f(unpack(t)) while true do pcall(f, unpack(t)) end",
		"local t = {} for i = 1, 20000 do t[i] = i % 7 end while true do table.sort(t, function(a, b) return true end) end",
		"local t = {} for i = 1, 20000 do t[i] = i end while true do table.insert(t, 1, 0) table.remove(t, 1) end",
		"local t = {} for i = 1, 20000 do t[i] = 'xxxxxxxxxxxxxxxx' end while true do table.concat(t) end",
		"local t = {} for i = 1, 20000 do t[i] = i end while true do for i = 1, 20000 do t[i] = nil end next(t) end",
		"local t = {} t.t = t while true do pcall(cjson.encode, t) end",
		"local s = string.rep('[', 100000) while true do pcall(cjson.decode, s) end",
		"local s = '[' .. string.rep('1,', 100000) .. '1]' while true do cjson.decode(s) end",
		"local t = {} for i = 1, 5000 do t[i] = 'x' end while true do cjson.encode(t) end",
		"while true do redis.call('GET', 'k') end",
		"while true do redis.sha1hex(string.rep('x', 1000)) end",
		"while true do local e = pcall(error, string.rep('x', 1000)) end",
		"while true do pcall(error, {}) end",
		"local s = string.rep('x', 100000) while true do s:upper() s:reverse() s:sub(2) end",
		"local s = string.rep('x', 100000) while true do s:byte(1, 5000) end",
		"for w in string.rep('a', 1000000):gmatch('') do end while true do end",
		"local a = string.rep('a', 500000) local t = {[a] = 1, [a .. 'b'] = 2} while true do for k in pairs(t) do end end",
		"local a = string.rep('a', 500000) local t = {[a] = 1, [a .. 'b'] = 2} while true do for i = 1, 20 do t['k' .. i] = 1 t['k' .. i] = nil end end",
		"local t = {} t[1], t[2] = table.sort, t while true do pcall(table.sort, t, table.sort) end",
		"local t = {3, 2, 1} while true do table.sort(t, function() t[#t] = nil return true end) t[1], t[2], t[3] = 3, 2, 1 end",
		"local f = string.gsub while true do pcall(f, 'x', 'x', f) end",
		"local s, t = string.rep('x', 100000), {} for i = 1, 1e9 do local _, e = pcall(assert, false, s) t[i] = e end",
		"local t = {} t[1] = t return t",
		"local t = {} for i = 1, 200000 do t[i] = 'x' end return t",
		"return string.rep('x', 1000000)",
		"return {err = string.rep('x', 1000000)}",
		"return {map = {[string.rep('x', 1000000)] = 1}}",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := run(t, text)
		runtime.ReadMemStats(&after)
		var over Overrun
		if !errors.As(err, &over) {
			t.Errorf("%.80q gave %v", text, err)
		}
		// what is counted is less than what Go allocates: frames, and numbers in tables, are not
		if took := after.TotalAlloc - before.TotalAlloc; took > 40*smallMemory {
			t.Errorf("%.80q allocated %d MiB", text, took>>20)
		}
	}
}

// TestSteps: what takes long in one instruction counts as many steps.
func TestSteps(t *testing.T) {
	for _, c := range []struct {
		text  string
		least int
	}{
		{"local s = string.rep('1', 64000) for i = 1, 10 do local n = s + 0 end", 10_000},
		{"local s = string.rep('1', 64000) for i = 1, 10 do local n = -s end", 10_000},
		{"local s = string.rep('1', 64000) for i = 1, 10 do math.floor(s) end", 10_000},
		{"local s = string.rep(' ', 64000) for i = 1, 10 do pcall(math.floor, s) end", 10_000},
		{"local s = string.rep(' ', 64000) for i = 1, 10 do tonumber(s) end", 10_000},
		{"local s = string.rep('0', 64000) for i = 1, 10 do for k = 1, s do end end", 10_000},
		{"local p = '[' .. string.rep('a', 64000) .. ']' for i = 1, 10 do string.find('', p) end", 80_000},
		{"local p = '[' .. string.rep('a', 64000) for i = 1, 10 do pcall(string.find, '', p) end", 80_000},
		{"local p = string.rep('a', 64000) .. '$' for i = 1, 10 do string.find('', p) end", 10_000},
		{"local s = string.rep('\\r', 64000) for i = 1, 10 do redis.error_reply(s) end", 10_000},
		{"for i = 1, 10 do math.fmod(1e308, 5e-324) bit.tobit(1e308) end", 3_000},
		{"for i = 1, 10 do string.format('%.99f', 5e-324) end", 1_400},
	} {
		p, err := Compile([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		r := &Run{Steps: DefaultSteps, Memory: DefaultMemory}
		if reply, err := p.Do(r, nil); err != nil || string(reply) != "$-1\r\n" {
			t.Errorf("%.80q gave %q, %v", c.text, reply, err)
		}
		if took := DefaultSteps - r.Steps; took < c.least {
			t.Errorf("%.80q took %d steps, want %d", c.text, took, c.least)
		}
	}
	// Nor are there flags without end to read.
	if reply, err := run(t, "string.format('%' .. string.rep('-', 64000) .. 'd', 1)"); err != nil || !strings.HasPrefix(reply, "-ERR user_script:1: invalid format") {
		t.Errorf("%q, %v", reply, err)
	}
}

// TestWrongCalls: a list with holes keeps what is behind them, and an iterator is asked with
// anything.
func TestWrongCalls(t *testing.T) {
	for text, want := range map[string]string{
		"local t = {1, 2, 3} t[5] = 5 table.insert(t, 1, 0) return table.concat(t, ',')": "$9\r\n0,1,2,3,5\r\n",
		"return (ipairs({}))({}, 'x')": "-ERR user_script:1: bad argument #2 to 'next' (number expected, got string)",
		"return (ipairs({}))(1, 1)":    "-ERR user_script:1: bad argument #1 to 'next' (table expected, got number)",
		"return (ipairs({}))()":        "-ERR user_script:1: bad argument #2 to 'next' (number expected, got no value)",
	} {
		if reply, err := run(t, text); err != nil || !strings.HasPrefix(reply, want) {
			t.Errorf("%s gave %q, %v", text, reply, err)
		}
	}
}

// TestDepth: what is nested deeply is refused, or is an error of the script.
func TestDepth(t *testing.T) {
	for _, text := range []string{
		"return " + strings.Repeat("(", 20000) + "1" + strings.Repeat(")", 20000),
		"return " + strings.Repeat("not ", 15000) + "1",
		"return " + strings.Repeat("-", 1) + strings.Repeat(" - ", 15000) + "1",
		"return " + strings.Repeat("{", 30000) + strings.Repeat("}", 30000),
		strings.Repeat("do ", 15000) + strings.Repeat("end ", 15000),
		strings.Repeat("if 1 then ", 5000) + strings.Repeat("end ", 5000),
		"if 1 then " + strings.Repeat("elseif 1 then ", 4000) + "end",
		"return " + strings.Repeat("1^", 30000) + "1",
		"return " + strings.Repeat("1+", 30000) + "1",
		"return x" + strings.Repeat("[1]", 20000),
		"return x" + strings.Repeat("()", 30000),
		strings.Repeat("local a ", 8000),
		strings.Repeat("return function() ", 3000) + strings.Repeat("end ", 3000),
		"goto x ::x::", "break", "x = = 1", "return ...)", "local function f() return ... end", "return 1 1", "return 08x", "\"", "[[", "--[[",
	} {
		if _, err := Compile([]byte(text)); err == nil {
			if reply, err := run(t, text); err == nil && !strings.HasPrefix(reply, "-ERR ") && text != "return "+strings.Repeat("(", 20000)+"1"+strings.Repeat(")", 20000) {
				t.Errorf("%.60q was compiled, and gave %.80q", text, reply)
			}
		}
	}
	if reply, err := run(t, "local function f() return 1 + f() end return {pcall(f)}"); err != nil || !strings.HasPrefix(reply, "*2\r\n$-1") {
		t.Errorf("recursion gave %q, %v", reply, err)
	}
	if _, err := Compile([]byte(strings.Repeat(" ", MaxText+1))); err == nil {
		t.Error("a text that is too long was compiled")
	}
}

// FuzzScript: no text panics, or takes more than its bounds.
func FuzzScript(f *testing.F) {
	for _, text := range []string{
		"return {1, 'x', {}, nil}", "local t = {} for i = 1, 3 do t[i] = i end return t", "return ('x'):gsub('(x)', '%1%0')", "return cjson.decode('{\"a\":[1]}')",
		"return redis.call('GET', KEYS[1])", "return string.format('%5.2f %q %s', 1, 'x', {})", "local function f(...) return select('#', ...) end return f(1, nil)",
		"return pcall(error, {err = 'x'})", "for k, v in pairs({a = 1, 2}) do end", "return table.concat({1, 2}, ',')", "return {double = 1.5}", "return bit.tohex(-1, -4)",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Compile([]byte(text))
		if err != nil {
			return
		}
		r := &Run{Keys: [][]byte{[]byte("k")}, Steps: 20_000, Memory: 1 << 20, Call: echo}
		reply, err := p.Do(r, nil)
		if err == nil && (len(reply) < 3 || !strings.HasSuffix(string(reply), "\r\n")) {
			t.Fatalf("%q is no reply", reply)
		}
	})
}

// BenchmarkStep measures a step.
func BenchmarkStep(b *testing.B) {
	p, err := Compile([]byte("local n = 0 while true do n = n + 1 end"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(DefaultSteps, "steps/op")
	for b.Loop() {
		_, _ = p.Do(&Run{Steps: DefaultSteps, Memory: DefaultMemory}, nil)
	}
}

// BenchmarkRun measures a short script.
func BenchmarkRun(b *testing.B) {
	p, err := Compile([]byte("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_, _ = p.Do(&Run{Keys: [][]byte{[]byte("k")}, Args: [][]byte{[]byte("v")}, Steps: DefaultSteps, Memory: DefaultMemory, Call: echo}, nil)
	}
}
