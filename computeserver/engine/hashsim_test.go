package engine

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/hash"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// The simulation: servers that share an index work on hashes and strings of few keys. Now and then
// the log is lost, and with it what was not durable. What they answered must be what one server
// with a plain list of fields answers, in some order.

const (
	hashServers = 3
	hashKeys    = 2
	hashTurns   = 20
)

// plain is what a key has, in text: "" nothing, "s" and the string, or "h" and fields with their
// values in order, "f=v f=v".
type plain string

func (p plain) fields() (all [][2]string) {
	for _, pair := range strings.Fields(string(p[min(len(p), 1):])) {
		field, value, _ := strings.Cut(pair, "=")
		all = append(all, [2]string{field, value})
	}
	return all
}

func plainOf(fields [][2]string) plain {
	if len(fields) == 0 {
		return ""
	}
	var b strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&b, " %s=%s", f[0], f[1])
	}
	return plain("h" + b.String())
}

// hashAsked is one operation; the fields and values of a list take turns in list.
type hashAsked struct {
	key    int
	kind   rpcv1.Operation_Kind
	absent bool
	field  string
	list   string
	number int64
}

type hashAnswered struct {
	code   rpcv1.Outcome_Code
	value  string
	number int64
}

// does says what the operation leaves, and answers.
func (in hashAsked) does(is plain) (plain, hashAnswered) {
	wrong := hashAnswered{code: rpcv1.Outcome_WRONG_TYPE}
	fields := is.fields()
	at := slices.IndexFunc(fields, func(f [2]string) bool { return f[0] == in.field })
	switch in.kind {
	case rpcv1.Operation_UPSERT:
		return plain("s" + in.list), hashAnswered{}
	case rpcv1.Operation_DELETE:
		if is == "" {
			return is, hashAnswered{code: rpcv1.Outcome_NOT_FOUND}
		}
		return "", hashAnswered{}
	case rpcv1.Operation_LOOKUP:
		switch {
		case is == "":
			return is, hashAnswered{code: rpcv1.Outcome_NOT_FOUND}
		case is[0] == 'h':
			return is, wrong
		}
		return is, hashAnswered{value: string(is[1:])}
	}
	if is != "" && is[0] == 's' {
		return is, wrong
	}
	switch in.kind {
	case rpcv1.Operation_HASH_GET:
		if at < 0 {
			return is, hashAnswered{code: rpcv1.Outcome_NOT_FOUND}
		}
		return is, hashAnswered{value: fields[at][1]}
	case rpcv1.Operation_HASH_READ:
		if is == "" {
			return is, hashAnswered{code: rpcv1.Outcome_NOT_FOUND}
		}
		return is, hashAnswered{value: string(is)}
	case rpcv1.Operation_HASH_INCREMENT:
		n := in.number
		if at < 0 {
			return plainOf(append(fields, [2]string{in.field, fmt.Sprint(n)})), hashAnswered{number: n}
		}
		var was int64
		_, _ = fmt.Sscan(fields[at][1], &was) // all values are numbers
		fields[at][1] = fmt.Sprint(was + n)
		return plainOf(fields), hashAnswered{number: was + n}
	}
	var out hashAnswered
	words := strings.Fields(in.list)
	for len(words) > 0 {
		at := slices.IndexFunc(fields, func(f [2]string) bool { return f[0] == words[0] })
		switch {
		case in.kind == rpcv1.Operation_HASH_DELETE && at >= 0:
			fields = slices.Delete(fields, at, at+1)
			out.number++
		case in.kind == rpcv1.Operation_HASH_DELETE:
		case at < 0:
			fields = append(fields, [2]string{words[0], words[1]})
			out.number++
		case !in.absent:
			fields[at][1] = words[1]
		}
		if words = words[1:]; in.kind == rpcv1.Operation_HASH_SET {
			words = words[1:]
		}
	}
	return plainOf(fields), out
}

// operation is what servers are asked.
func (in hashAsked) operation() *rpcv1.Operation {
	op := &rpcv1.Operation{Kind: in.kind, Key: []byte{'k', byte(in.key)}, Number: in.number, Operand: []byte(in.field)}
	switch in.kind {
	case rpcv1.Operation_UPSERT:
		op.Value = []byte(in.list)
	case rpcv1.Operation_HASH_SET, rpcv1.Operation_HASH_DELETE:
		for _, word := range strings.Fields(in.list) {
			op.Value = hash.AppendItem(op.Value, []byte(word))
		}
	}
	if in.absent {
		op.Condition = rpcv1.Operation_ABSENT
	}
	return op
}

// answer is what an outcome says.
func (in hashAsked) answer(o *rpcv1.Outcome) hashAnswered {
	out := hashAnswered{code: o.Code}
	if o.Code != rpcv1.Outcome_OK {
		return out
	}
	out.value, out.number = string(o.Value), o.Number
	if in.kind == rpcv1.Operation_HASH_READ {
		var fields [][2]string
		for h := o.Value; len(h) > 0; {
			field, value, rest, _ := hash.NextPair(h)
			fields, h = append(fields, [2]string{string(field), string(value)}), rest
		}
		out.value = string(plainOf(fields))
	}
	return out
}

// hashes is what one key may do. A change whose outcome is not known may be done or not, whenever.
var hashes = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, hashKeys)
		for _, o := range history {
			parts[o.Input.(hashAsked).key] = append(parts[o.Input.(hashAsked).key], o)
		}
		return parts
	},
	Init: func() any { return plain("") },
	Step: func(state, input, output any) (bool, any) {
		next, want := input.(hashAsked).does(state.(plain))
		out := output.(hashAnswered)
		return out.code == rpcv1.Outcome_UNKNOWN || out == want, next
	},
}

func someOnHash(random *rand.Rand) hashAsked {
	field := func() string { return string(rune('a' + random.IntN(3))) }
	in := hashAsked{key: random.IntN(hashKeys), field: field(), number: int64(1 + random.IntN(9))}
	switch random.IntN(12) {
	case 0:
		in.kind, in.list = rpcv1.Operation_UPSERT, fmt.Sprint(random.IntN(100))
	case 1:
		in.kind = rpcv1.Operation_DELETE
	case 2:
		in.kind = rpcv1.Operation_LOOKUP
	case 3:
		in.kind, in.list, in.absent = rpcv1.Operation_HASH_SET, fmt.Sprint(field(), " ", random.IntN(100)), true
	case 4, 5:
		in.kind, in.list = rpcv1.Operation_HASH_SET, fmt.Sprint(field(), " ", random.IntN(100), " ", field(), " ", random.IntN(100))
	case 6:
		in.kind, in.list = rpcv1.Operation_HASH_DELETE, field()+" "+field()
	case 7, 8:
		in.kind = rpcv1.Operation_HASH_INCREMENT
	case 9:
		in.kind = rpcv1.Operation_HASH_GET
	default:
		in.kind = rpcv1.Operation_HASH_READ
	}
	return in
}

// simulateHashes returns the history of one run, how many operations were not answered, and its
// hash. With blind, a server changes fields in two steps: it reads, then stores.
func simulateHashes(seed uint64, blind bool) (history []porcupine.Operation, lost int, events uint64, err error) {
	world := simenv.New(simenv.Options{Seed: seed, Preempt: 2 + int(seed%4)})
	random := rand.New(rand.NewPCG(seed, 2))
	err = world.Run(func(p *simenv.Process) {
		store := memindex.New(p, 8, 256+expiry.Bytes)
		up := func(n int) time.Duration { return time.Duration(random.IntN(n)) * time.Microsecond }
		store.BeforeOperation(func([]byte) { p.Sleep(up(300)) })
		store.Log(func(uint64) error { p.Sleep(up(1000)); return nil })
		running := hashServers
		for n := range hashServers {
			c := New(Options{
				Env: p, Index: &config.Index{Identity: computeservertest.Index, KeyType: config.KeyBytes, MaxKeyBytes: 8, MaxValueBytes: 256, Routing: config.RoutingAny, Expiry: config.ExpiryEnabled},
				SharesAll: true, Open: func() (ownership.Opened, error) { return store.Open(), nil }, Clock: func() int64 { return 1 },
				Limit: 10 * time.Second, MaxSessions: 4, MaxWaiting: 4, Log: slog.New(slog.DiscardHandler),
			})
			p.Go("sessions", c.Sessions.Run)
			p.Go("program", func() {
				for range hashTurns {
					p.Sleep(up(2000))
					var ins []hashAsked
					for range 1 + random.IntN(3) {
						in := someOnHash(random)
						// a batch has an order on each key: one of each is asked
						if !slices.ContainsFunc(ins, func(was hashAsked) bool { return was.key == in.key }) {
							ins = append(ins, in)
						}
					}
					var ops []*rpcv1.Operation
					for _, in := range ins {
						ops = append(ops, in.operation())
					}
					call := int64(world.Events())
					if blind && ins[0].kind == rpcv1.Operation_HASH_INCREMENT {
						blindly(c, ops[0])
					}
					outcomes := c.Do(ops, false, c.Limit, 0)
					end := int64(world.Events())
					for i, o := range outcomes {
						switch {
						case o.Code == rpcv1.Outcome_UNKNOWN:
							end = 1 << 62 // it is done late, or never
							fallthrough
						case !o.Code.Meaning().Pair:
							lost++
						}
						if o.Code.Meaning().Pair || o.Code == rpcv1.Outcome_UNKNOWN {
							history = append(history, porcupine.Operation{ClientId: n, Input: ins[i], Call: call, Output: ins[i].answer(o), Return: end})
						}
					}
				}
				running--
			})
			defer c.Sessions.Halt(time.Minute)
		}
		for running > 0 {
			p.Sleep(up(20_000))
			if random.IntN(3) == 0 {
				store.Lose(func([]byte, []byte, bool) {})
			}
		}
	})
	return history, lost, world.Hash(), err
}

// blindly does what an increment must not: it stores, in a step of its own, what it read.
func blindly(c *Engine, op *rpcv1.Operation) {
	was := c.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_HASH_READ, Key: op.Key}}, false, c.Limit, 0)[0]
	if was.Code == rpcv1.Outcome_OK {
		c.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_HASH_STORE, Key: op.Key, Value: was.Value, Expiry: rpcv1.Operation_NEVER}}, false, c.Limit, 0)
	}
}

func checkHashes(seed uint64, blind bool) (lost int, err error) {
	history, lost, events, err := simulateHashes(seed, blind)
	if err != nil {
		return lost, err
	}
	if _, _, again, _ := simulateHashes(seed, blind); again != events {
		return lost, fmt.Errorf("seed %d does not replay", seed)
	}
	if porcupine.CheckOperationsTimeout(hashes, history, judgeLimit) != porcupine.Ok {
		return lost, fmt.Errorf("seed %d: what was answered is not linearizable", seed)
	}
	return lost, nil
}

// TestHashSeeds: what servers answer about hashes is linearizable, also where logs are lost. A seed
// that fails does so again. A server that changes a hash in two steps is found.
func TestHashSeeds(t *testing.T) {
	lost := 0
	for seed := range uint64(40) {
		n, err := checkHashes(seed, false)
		if lost += n; err != nil {
			t.Error(err)
		}
	}
	if lost == 0 {
		t.Error("no log was lost with what was not durable")
	}
	found := false
	for seed := uint64(0); seed < 60 && !found; seed++ {
		_, err := checkHashes(seed, true)
		found = err != nil
	}
	if !found {
		t.Error("two steps in place of one were not found")
	}
}
