package computeserver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// respModel says byte by byte what one connection is answered, if nobody else changes its keys.
type respModel struct {
	pairs map[string]string
	name  string
	resp3 bool
	multi queue
}

const maxModelKey, maxModelValue = 512, 2048 // those of newCluster

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

func (m *respModel) null() string {
	if m.resp3 {
		return "_\r\n"
	}
	return "$-1\r\n"
}

func (m *respModel) value(key string) string {
	if v, ok := m.pairs[key]; ok {
		return bulk(v)
	}
	return m.null()
}

// wrong is the reply to keys, or keys and values, that the index cannot have; empty if it can.
func wrong(args []string, step int) string {
	for i := 0; i < len(args); i += step {
		if n := len(args[i]); n > maxModelKey {
			return fmt.Sprintf("-ERR key is %d bytes; this index takes at most %d\r\n", n, maxModelKey)
		}
		if step == 2 && len(args[i+1]) > maxModelValue {
			return fmt.Sprintf("-ERR value is %d bytes; this index takes at most %d\r\n", len(args[i+1]), maxModelValue)
		}
	}
	return ""
}

// arities are those of the commands that the model knows, as in Redis.
var arities = map[string]int{
	"get": 2, "set": -3, "setnx": 3, "del": -2, "unlink": -2, "exists": -2, "mget": -2, "mset": -3, "range": -3, "scan": -2, "ping": -1, "echo": 2, "select": 2,
	"client": -2, "reset": 1, "multi": 1, "exec": 1, "discard": 1, "watch": -2, "unwatch": 1, "quit": -1,
}

// reply is what the command is answered.
func (m *respModel) reply(args []string) string {
	if len(args) == 0 {
		return ""
	}
	name := strings.ToLower(args[0])
	arity, known := arities[name]
	switch {
	case !known:
		m.multi.failed, m.multi.wrong = m.multi.begun, m.multi.begun
		bytes := make([][]byte, len(args))
		for i, a := range args {
			bytes[i] = []byte(a)
		}
		return "-" + strings.NewReplacer("\r", " ", "\n", " ").Replace(unknown(bytes)) + "\r\n"
	case arity > 0 && len(args) != arity || len(args) < -arity:
		if name == "exec" {
			m.multi = queue{}
			return "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n"
		}
		m.multi.failed, m.multi.wrong = m.multi.begun, m.multi.begun
		return "-ERR wrong number of arguments for '" + name + "' command\r\n"
	case m.multi.begun && !slices.Contains([]string{"multi", "exec", "discard", "watch", "reset", "quit"}, name):
		m.multi.failed = true
		return notInMulti
	}
	const ok = "+OK\r\n"
	number := func(n int) string { return fmt.Sprintf(":%d\r\n", n) }
	rest := args[1:]
	switch name {
	case "get":
		if no := wrong(rest, 1); no != "" {
			return no
		}
		return m.value(rest[0])
	case "set":
		nx, xx := false, false
		for _, o := range rest[2:] {
			switch o = strings.ToUpper(o); {
			case o == "NX" && !xx:
				nx = true
			case o == "XX" && !nx:
				xx = true
			case o != "KEEPTTL":
				return "-ERR syntax error\r\n"
			}
		}
		if no := wrong(rest[:2], 2); no != "" {
			return no
		}
		if _, there := m.pairs[rest[0]]; nx && there || xx && !there {
			return m.null()
		}
		m.pairs[rest[0]] = rest[1]
		return ok
	case "setnx":
		if no := wrong(rest, 2); no != "" {
			return no
		}
		if _, there := m.pairs[rest[0]]; there {
			return number(0)
		}
		m.pairs[rest[0]] = rest[1]
		return number(1)
	case "del", "unlink", "exists":
		if no := wrong(rest, 1); no != "" {
			return no
		}
		n := 0
		for _, k := range rest {
			if _, there := m.pairs[k]; there {
				n++
			}
			if name != "exists" {
				delete(m.pairs, k)
			}
		}
		return number(n)
	case "mget":
		if no := wrong(rest, 1); no != "" {
			return no
		}
		b := fmt.Sprintf("*%d\r\n", len(rest))
		for _, k := range rest {
			b += m.value(k)
		}
		return b
	case "mset":
		if len(rest)%2 != 0 {
			return "-ERR wrong number of arguments for 'mset' command\r\n"
		}
		if no := wrong(rest, 2); no != "" {
			return no
		}
		for i := 0; i < len(rest); i += 2 {
			m.pairs[rest[i]] = rest[i+1]
		}
		return ok
	case "range":
		return m.scan(rest)
	case "ping":
		switch len(rest) {
		case 0:
			return "+PONG\r\n"
		case 1:
			return bulk(rest[0])
		}
		return "-ERR wrong number of arguments for 'ping' command\r\n"
	case "echo":
		return bulk(rest[0])
	case "select":
		if rest[0] != "0" {
			return "-ERR DB index is out of range; an index is one database, 0\r\n"
		}
	case "client":
		if rest[0] == "GETNAME" {
			if m.name == "" {
				return m.null()
			}
			return bulk(m.name)
		}
		m.name = rest[1]
	case "reset":
		*m = respModel{pairs: m.pairs}
		return "+RESET\r\n"
	default:
		return m.transaction(name)
	}
	return ok
}

func (m *respModel) transaction(name string) string {
	was := m.multi
	switch {
	case name == "multi" && was.begun:
		return "-ERR MULTI calls can not be nested\r\n"
	case name == "watch" && was.begun:
		return "-ERR WATCH inside MULTI is not allowed\r\n"
	case !was.begun && (name == "exec" || name == "discard"):
		return "-ERR " + strings.ToUpper(name) + " without MULTI\r\n"
	case name == "multi":
		m.multi.begun = true
	case name == "discard":
		m.multi = queue{}
	case name == "exec":
		m.multi = queue{}
		switch {
		case was.failed:
			return execAbort
		}
		return "*0\r\n"
	}
	return "+OK\r\n"
}

// scan is RANGE start end LIMIT n [REV].
func (m *respModel) scan(rest []string) string {
	var keys []string
	for k := range m.pairs {
		if k >= rest[0] && k < rest[1] {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	if len(rest) > 4 {
		slices.Reverse(keys)
	}
	limit, _ := strconv.Atoi(rest[3])
	keys = keys[:min(limit, len(keys))]
	b := fmt.Sprintf("*%d\r\n", 2*len(keys))
	for _, k := range keys {
		b += bulk(k) + bulk(m.pairs[k])
	}
	return b
}

// talker makes the commands of one connection.
type talker struct {
	rnd    *rand.Rand
	id     int
	common bool // only what Redis has, too, and answers the same
	multi  queue
}

func (k *talker) key() string {
	switch k.rnd.IntN(60) {
	case 0:
		if k.id == 0 {
			return ""
		}
	case 1:
		if !k.common {
			return k.prefix() + strings.Repeat("k", maxModelKey-4+k.rnd.IntN(3))
		}
	}
	return k.prefix() + fmt.Sprint(k.rnd.IntN(3))
}

// prefix begins keys of this connection only, 26 of them all over the key space.
func (k *talker) prefix() string { return fmt.Sprintf("%c%d-", 'a'+k.rnd.IntN(26), k.id) }

func (k *talker) text() string {
	switch k.rnd.IntN(12) {
	case 0:
		return ""
	case 1:
		return strings.Repeat("v", maxModelValue-k.rnd.IntN(2))
	case 2:
		if !k.common {
			return strings.Repeat("v", maxModelValue+1)
		}
	case 3:
		return "\r\n$5\r\n\x00\xff\"'"
	}
	return fmt.Sprint(k.rnd.Uint32())
}

// command is any command, as a client may send it.
func (k *talker) command() []string {
	args := k.any()
	if name := strings.ToLower(args[0]); k.common && k.multi.begun && name == "exec" && !k.multi.wrong {
		args = []string{"DISCARD"} // Redis would run what was queued
	}
	if k.rnd.IntN(8) == 0 {
		args[0] = strings.ToLower(args[0])
	}
	return args
}

func (k *talker) any() []string {
	r := k.rnd
	switch n := r.IntN(40); {
	case n < 7:
		return []string{"GET", k.key()}
	case n < 14:
		args := []string{"SET", k.key(), k.text()}
		for range max(0, r.IntN(6)-3) {
			args = append(args, []string{"NX", "xx", "KEEPTTL", "NO"}[r.IntN(4)])
		}
		return args
	case n < 16:
		return []string{"SETNX", k.key(), k.text()}
	case n < 24:
		args := []string{[]string{"DEL", "UNLINK", "EXISTS", "MGET"}[r.IntN(4)]}
		for range 1 + r.IntN(5) {
			args = append(args, k.key())
		}
		return args
	case n < 26:
		args := []string{"MSET"}
		for range 1 + r.IntN(4) {
			args = append(args, k.key(), k.text())
		}
		return args[:len(args)-max(0, r.IntN(6)-4)]
	case n < 29 && !k.common:
		p := k.prefix()
		return []string{"RANGE", p, p + "~", "LIMIT", fmt.Sprint(r.IntN(5))}
	case n < 30 && !k.common:
		p := k.prefix()
		return []string{"RANGE", p, p + "~", "LIMIT", fmt.Sprint(1 + r.IntN(5)), "REV"}
	case n < 34:
		return [][]string{{"PING"}, {"PING", k.text()}, {"ECHO", k.text()}, {"SELECT", "0"}, {"CLIENT", "SETNAME", fmt.Sprint("n", r.IntN(9))}, {"CLIENT", "GETNAME"}}[r.IntN(6)]
	case n < 38:
		return [][]string{{"EXEC"}, {"DISCARD"}, {"UNWATCH"}, {"EXEC", "x"}, {"RESET"}}[r.IntN(5)]
	}
	return [][]string{{"NOPE", k.key()}, {""}, {"GET"}, {"SET", k.key()}, {"PING", "a", "b"}, {"MULTI", "x"}, {"no\r\npe", "\r\n"}, {strings.Repeat("c", 20)}}[r.IntN(8)]
}

// inline is a command in plain text, or the usual form where it cannot be.
func inline(rnd *rand.Rand, args []string) string {
	words := make([]string, len(args))
	size := 0
	for i, a := range args {
		bare := a != ""
		for _, b := range []byte(a) {
			bare = bare && (b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z' || b == '-')
		}
		switch words[i] = a; {
		case bare && rnd.IntN(3) > 0:
		default:
			words[i] = `"`
			for _, b := range []byte(a) {
				words[i] += fmt.Sprintf(`\x%02x`, b)
			}
			words[i] += `"`
		}
		size += len(words[i])
	}
	if size > inlineMost/2 {
		return computeservertest.Command(args...)
	}
	return strings.Join(words, []string{" ", "  ", "\t"}[rnd.IntN(3)]) + []string{"\r\n", "\n", " \r\n"}[rnd.IntN(3)]
}

// inlineMost is how long a line of a command without a head may be.
const inlineMost = 8 << 10

// queue is what a connection's MULTI has come to.
type queue struct {
	begun, failed bool
	wrong         bool // a command was refused that Redis would not queue either
}

// unknown is what Redis says of a command that it does not know.
func unknown(args [][]byte) string {
	const most = 128
	shown := ""
	for _, a := range args[1:] {
		if len(shown) < most {
			shown += fmt.Sprintf("'%s' ", a[:min(len(a), most-len(shown))])
		}
	}
	return fmt.Sprintf("ERR unknown command '%s', with args beginning with: %s", args[0][:min(len(args[0]), most)], shown)
}
