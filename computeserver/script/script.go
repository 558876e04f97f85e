package script

import (
	"crypto/sha1" //nolint:gosec // it names scripts, as Redis' commands have it
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dmindex/dmindex/pkg/env/invariants"
)

// Program is a script that was compiled. Safe for concurrent use.
type Program struct {
	// Sum is the SHA-1 of the text, in hexadecimal digits: how EVALSHA names the script.
	Sum string
	// ReadOnly is set where the script's first line has the flag no-writes.
	ReadOnly bool

	main *body
}

// Sum is how EVALSHA names a script.
func Sum(text []byte) string {
	sum := sha1.Sum(text) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// Compile compiles a script. An error is one of its text, with the line.
func Compile(text []byte) (*Program, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("a script of %d bytes, at most %d are possible: divide it", len(text), MaxText)
	}
	p := &Program{Sum: Sum(text)}
	lua := string(text)
	if strings.HasPrefix(lua, "#!") {
		first, rest, _ := strings.Cut(lua, "\n")
		if err := p.readFlags(first); err != nil {
			return nil, err
		}
		lua = "\n" + rest
	}
	var err error
	p.main, err = compile(lua)
	return p, err
}

// textError is what is wrong with a script, in the words of Redis.
type textError string

// Error implements error.
func (e textError) Error() string { return string(e) }

func inRedisWords(format string, args ...any) error { return textError(fmt.Sprintf(format, args...)) }

// readFlags reads the first line of a script that begins with #!.
func (p *Program) readFlags(line string) error {
	words := strings.Fields(line)
	if words[0] != "#!lua" {
		return inRedisWords("Unexpected engine in script shebang: %.40s", words[0])
	}
	for _, word := range words[1:] {
		flags, ok := strings.CutPrefix(word, "flags=")
		if !ok {
			return inRedisWords("Unknown lua shebang option: %.40s", word)
		}
		for flag := range strings.SplitSeq(flags, ",") {
			switch flag {
			case "no-writes":
				p.ReadOnly = true
			case "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys", "":
			default:
				return inRedisWords("Unexpected flag in script shebang: %.40s", flag)
			}
		}
	}
	return nil
}

// Call runs a command that the script calls. It returns its reply in RESP2, whose bytes it bounds,
// and how many steps it took.
type Call func(args [][]byte) (reply []byte, steps int)

// Run is one run of a program.
type Run struct {
	Keys, Args [][]byte
	// RESP3 says in which protocol the reply is.
	RESP3 bool
	Call  Call
	// Seed is that of math.random, unless the script calls math.randomseed.
	Seed uint32
	// Steps and Memory bound the run: DefaultSteps, DefaultMemory. Run leaves what is left.
	Steps, Memory int
}

// Do runs the program and appends its reply to dst, which is an error where the script failed. What
// its calls did then counts, as in Redis. With an error, an Overrun, it does not.
func (p *Program) Do(r *Run, dst []byte) (reply []byte, err error) {
	m := &machine{steps: r.Steps, memory: r.Memory, call: r.Call}
	m.random.seed(r.Seed)
	defer func() {
		r.Steps, r.Memory = m.steps, m.memory
		switch e := recover().(type) {
		case nil:
		case Overrun:
			reply, err = dst, e
		default:
			if invariants.Enabled {
				panic(e)
			}
			reply, err = dst, Overrun(fmt.Sprintf("the script found a mistake in this server, and nothing was done; report it with the script: %.200v", e))
		}
	}()
	m.globals, m.strings = globals, libraries["string"]
	m.globals = m.withArguments(r)
	var out []value
	failed := m.protected(func() { out = m.apply(&function{of: p.main}, nil, "") })
	if failed == nil {
		return m.appendReply(dst, valueAt(out, 0), r.RESP3, 0), nil
	}
	text := ""
	if t, ok := failed.value.(*table); ok {
		text, _ = t.get("err").(string)
		if text == "" {
			text = "ERR unknown error"
		}
	} else {
		text = "ERR " + toString(failed.value)
	}
	return appendLine(dst, '-', fmt.Sprintf("%s script: %s, on @user_script:%d.", text, p.Sum, failed.line)), nil
}

// globals are those of every script.
var (
	globals   *table
	libraries map[string]*table
)

func init() {
	addPairs()
	addMath()
	addBits()
	libraries = map[string]*table{
		"string": stringLibrary.table(nil), "table": tableLibrary.table(nil), "bit": bitLibrary.table(nil),
		"math":  mathLibrary.table(map[string]value{"pi": math.Pi, "huge": math.Inf(1)}),
		"cjson": jsonLibrary.table(map[string]value{"null": jsonNull}),
		"redis": redisLibrary.table(map[string]value{"LOG_DEBUG": 0.0, "LOG_VERBOSE": 1.0, "LOG_NOTICE": 2.0, "LOG_WARNING": 3.0}),
	}
	all := map[string]value{"_VERSION": "Lua 5.1"}
	for _, name := range slices.Sorted(maps.Keys(libraries)) {
		all[name] = libraries[name]
	}
	all["server"] = libraries["redis"]
	globals = baseLibrary.table(all)
}

// withArguments are the globals, and KEYS and ARGV.
func (m *machine) withArguments(r *Run) *table {
	t := &table{at: make(map[value]int, len(globals.pairs)+3), fixed: true}
	t.pairs = append(t.pairs, globals.pairs...)
	for i, p := range t.pairs {
		t.at[p.key] = i
	}
	add := func(name string, v value) {
		t.at[name] = len(t.pairs)
		t.pairs = append(t.pairs, pair{name, v})
	}
	texts := func(from [][]byte) *table {
		var list []value
		for _, b := range from {
			m.text(len(b))
			list = append(list, string(b))
		}
		return m.newList(list)
	}
	add("KEYS", texts(r.Keys))
	add("ARGV", texts(r.Args))
	add("_G", t)
	return t
}

// redisLibrary is redis.
var redisLibrary = library{
	"call":  func(m *machine, args []value) []value { return []value{m.command(args, true)} },
	"pcall": func(m *machine, args []value) []value { return []value{m.command(args, false)} },
	"error_reply": func(m *machine, args []value) []value {
		s, ok := valueAt(args, 0).(string)
		if !ok || len(args) != 1 {
			return []value{m.errorTable("ERR wrong number or type of arguments")}
		}
		m.key(s)
		code, rest, words := strings.Cut(strings.TrimRight(strings.TrimPrefix(s, "-"), "\r\n"), " ")
		if !words {
			code, rest = "ERR", code
		}
		return []value{m.errorTable(code + " " + rest)}
	},
	"status_reply": func(m *machine, args []value) []value {
		s, ok := valueAt(args, 0).(string)
		if !ok || len(args) != 1 {
			return []value{m.errorTable("ERR wrong number or type of arguments")}
		}
		t := m.newTable()
		m.set(t, "ok", s)
		return []value{t}
	},
	"sha1hex": func(m *machine, args []value) []value {
		s, ok := toText(valueAt(args, 0))
		if len(args) != 1 {
			m.throwError("ERR wrong number of arguments")
		}
		if !ok {
			s = ""
		}
		m.text(40)
		m.step(len(s) / 8)
		return []value{Sum([]byte(s))}
	},
	"log": func(m *machine, args []value) []value { // the texts of users are not this server's log
		if len(args) < 2 {
			m.throwError("ERR redis.log() requires two arguments or more.")
		}
		if n, ok := args[0].(float64); !ok {
			m.throwError("ERR First argument must be a number (log level).")
		} else if n < 0 || n > 3 {
			m.throwError("ERR Invalid log level.")
		}
		return nil
	},
	"replicate_commands": func(*machine, []value) []value { return []value{true} },
	"set_repl":           func(*machine, []value) []value { return nil },
	"breakpoint":         func(*machine, []value) []value { return []value{false} },
	"setresp": func(m *machine, args []value) []value {
		if n, ok := valueAt(args, 0).(float64); !ok || n != 2 {
			m.throwError("ERR scripts see replies in RESP2 here; do not call redis.setresp(3)")
		}
		return nil
	},
}

func (m *machine) errorTable(text string) *table {
	m.text(len(text))
	t := m.newTable()
	m.set(t, "err", text)
	return t
}

func (m *machine) throwError(text string) { m.throwValue(m.errorTable(text)) }

// command is redis.call, and redis.pcall, which returns what call throws.
func (m *machine) command(args []value, throws bool) value {
	fail := func(text string) value {
		t := m.errorTable(text)
		if throws {
			m.throwValue(t)
		}
		return t
	}
	if len(args) == 0 {
		return fail("ERR Please specify at least one argument for this redis lib call")
	}
	words := make([][]byte, len(args))
	for i, v := range args {
		switch v := v.(type) {
		case string:
			m.text(len(v))
			words[i] = []byte(v)
		case float64:
			words[i] = appendArgument(nil, v)
		default:
			return fail("ERR Lua redis lib command arguments must be strings or integers")
		}
	}
	m.step(callSteps + len(words)*wordSteps)
	reply, steps := m.call(words)
	m.step(steps)
	v, _ := m.fromReply(reply)
	if t, ok := v.(*table); ok && throws && reply[0] == '-' {
		m.throwValue(t)
	}
	return v
}

// About how many steps take as long as a command, and one more argument, which may be a key.
const (
	callSteps = 50
	wordSteps = 20
)

// appendArgument writes a number as an argument of a command.
func appendArgument(dst []byte, n float64) []byte {
	if n == float64(toInteger(n)) {
		return strconv.AppendInt(dst, toInteger(n), 10)
	}
	return append(dst, formatGeneral(n, 17)...)
}
