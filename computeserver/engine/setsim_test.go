package engine

import (
	"bytes"
	"errors"
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
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/computeserver/sortedset"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// The simulation: servers that share an index work on members of few sorted sets. Now and then the
// log is lost, and with it what was not durable; a server does some of the operations that it is
// about to do for a command, and none of the later ones; and there is no memory for entries. What
// the servers answered must be what one server with a plain map answers, in some order. At rest
// each member has its entry.
//
// In some runs one server owns all pairs of a member, in some none does, and in the others that
// changes from step to step.

const (
	setServers = 3
	setKeys    = 2
	setTurns   = 14
)

// setAsked is one command: add, incr, rem, score, pop, range or del.
type setAsked struct {
	key    int
	kind   string
	member string
	score  float64
}

type setAnswered struct {
	n       int
	score   float64
	there   bool
	unknown bool
}

// plainSet is what a key has: "a=1 b=2 ", in order.
type plainSet string

func (p plainSet) with(member string, score *float64) plainSet {
	var out []string
	for _, f := range strings.Fields(string(p)) {
		if !strings.HasPrefix(f, member+"=") {
			out = append(out, f)
		}
	}
	if score != nil {
		out = append(out, fmt.Sprintf("%s=%v", member, *score))
	}
	slices.Sort(out)
	return plainSet(strings.Join(out, " "))
}

func (p plainSet) score(member string) (score float64, there bool) {
	for _, f := range strings.Fields(string(p)) {
		if rest, ok := strings.CutPrefix(f, member+"="); ok {
			_, err := fmt.Sscan(rest, &score)
			return score, err == nil
		}
	}
	return 0, false
}

func (in setAsked) does(is plainSet) (plainSet, setAnswered) {
	score, there := is.score(in.member)
	switch in.kind {
	case "add":
		out := setAnswered{}
		if !there {
			out.n = 1
		}
		return is.with(in.member, &in.score), out
	case "incr":
		score += in.score
		return is.with(in.member, &score), setAnswered{score: score}
	case "rem":
		out := setAnswered{}
		if there {
			out.n = 1
		}
		return is.with(in.member, nil), out
	case "score":
		return is, setAnswered{score: score, there: there}
	case "pop": // a member that was there, with its score
		return is.with(in.member, nil), setAnswered{score: score, there: there}
	}
	return "", setAnswered{} // del
}

// run asks s.
func (in setAsked) run(c *Engine, s *sortedset.Sets, key []byte) (out setAnswered, pairs []sortedset.Pair, err error) {
	member := []byte(in.member)
	switch in.kind {
	case "add":
		var did sortedset.Added
		did, err = s.Add(key, sortedset.Rule{}, []sortedset.Pair{{Member: member, Score: in.score}})
		out.n = did.New
	case "incr":
		var did sortedset.Added
		did, err = s.Add(key, sortedset.Rule{Add: true}, []sortedset.Pair{{Member: member, Score: in.score}})
		out.score = did.Score
	case "rem":
		out.n, err = s.Remove(key, [][]byte{member})
	case "score":
		err = s.Scores(key, [][]byte{member}, func(score float64, there bool) { out.score, out.there = score, there })
	case "pop":
		pairs, err = s.Pop(key, in.score > 1, 1)
	case "range":
		err = s.ByScore(key, sortedset.All, in.score > 1, 0, keepPairs(&pairs))
	case "del":
		o := c.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_DELETE, Key: key}}, false, c.Limit, 0)[0]
		if !o.Code.Meaning().Answer {
			err = &sortedset.Failure{Outcome: o}
		}
	}
	return out, pairs, err
}

var setModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, setKeys)
		for _, o := range history {
			parts[o.Input.(setAsked).key] = append(parts[o.Input.(setAsked).key], o)
		}
		return parts
	},
	Init: func() any { return plainSet("") },
	Step: func(state, input, output any) (bool, any) {
		next, want := input.(setAsked).does(state.(plainSet))
		out := output.(setAnswered)
		return out.unknown || out == want, next
	},
}

// dying is an index whose server dies after some calls: of the last one it does a part.
type dying struct {
	sortedset.Index
	left   int
	random *rand.Rand
}

func (d *dying) Do(ops []*rpcv1.Operation) []*rpcv1.Outcome {
	if d.left--; d.left > 0 {
		return d.Index.Do(ops)
	}
	if d.left == 0 {
		var some []*rpcv1.Operation
		for _, op := range ops {
			if d.random.IntN(2) == 0 {
				some = append(some, op)
			}
		}
		if len(some) > 0 {
			d.Index.Do(some)
		}
	}
	return fill(make([]*rpcv1.Outcome, len(ops)), &rpcv1.Outcome{Code: rpcv1.Outcome_UNKNOWN, Message: "the server died"})
}

// apart is an index where the pairs of a member lie with several servers, some of the time.
type apart struct {
	sortedset.Index
	outOf  int // changes of a member
	random *rand.Rand
}

func (a apart) Do(ops []*rpcv1.Operation) []*rpcv1.Outcome {
	refuses := func(op *rpcv1.Operation) bool {
		return op.Kind == rpcv1.Operation_SET_MEMBER && a.random.IntN(a.outOf) == 0
	}
	return faulty{a.Index, refuses, rpcv1.Outcome_UNSUPPORTED}.Do(ops)
}

// setFault is a planted fault: an index that does something else than the protocol asks for.
type setFault func(op *rpcv1.Operation) bool

// faulty leaves some operations out, and says of them what it is told to.
type faulty struct {
	sortedset.Index
	leaves setFault
	says   rpcv1.Outcome_Code
}

// isEntry is which operations a pool without memory for entries does not do.
func isEntry(op *rpcv1.Operation) bool { return op.Kind == rpcv1.Operation_UPSERT }

func (f faulty) Do(ops []*rpcv1.Operation) []*rpcv1.Outcome {
	out := make([]*rpcv1.Outcome, len(ops))
	var some []*rpcv1.Operation
	var at []int
	for i, op := range ops {
		if out[i] = (&rpcv1.Outcome{Code: f.says}); !f.leaves(op) {
			some, at = append(some, op), append(at, i)
		}
	}
	if len(some) > 0 {
		for n, o := range f.Index.Do(some) {
			out[at[n]] = o
		}
	}
	return out
}

// newSetServer is a server of sets in a store.
func newSetServer(p *simenv.Process, store *memindex.Store) *Engine {
	return New(Options{
		Env: p, Index: &config.Index{Identity: computeservertest.Index, KeyType: config.KeyBytes, MaxKeyBytes: 64, MaxValueBytes: 64, Routing: config.RoutingAny, Expiry: config.ExpiryEnabled},
		SharesAll: true, Open: func() (ownership.Opened, error) { return store.Open(), nil }, Clock: func() int64 { return 1 },
		Limit: 10 * time.Second, MaxSessions: 4, MaxWaiting: 4, Log: slog.New(slog.DiscardHandler), SortedSets: true,
	})
}

// simulateSets returns the history of one run, and what was wrong at rest.
func simulateSets(seed uint64, fault setFault) (history []porcupine.Operation, deaths int, events uint64, err error) {
	world := simenv.New(simenv.Options{Seed: seed, Preempt: 2 + int(seed%4)})
	random := rand.New(rand.NewPCG(seed, 3))
	var rest error
	err = world.Run(func(p *simenv.Process) {
		store := memindex.New(p, 64, 64+expiry.Bytes)
		up := func(n int) time.Duration { return time.Duration(random.IntN(n)) * time.Microsecond }
		store.BeforeOperation(func([]byte) { p.Sleep(up(300)) })
		store.Log(func(uint64) error { p.Sleep(up(1000)); return nil })
		if seed%4 != 3 { // else none has groups
			store.AllowGroups()
		}
		running := setServers
		var last *Engine
		for n := range setServers {
			c := newSetServer(p, store)
			last = c
			p.Go("sessions", c.Sessions.Run)
			p.Go("program", func() {
				for range setTurns {
					p.Sleep(up(2000))
					in := setAsked{key: random.IntN(setKeys), kind: []string{"add", "add", "add", "incr", "incr", "rem", "rem", "rem", "score", "score", "score", "del", "pop", "range", "range"}[random.IntN(15)], member: string(rune('a' + random.IntN(2))), score: float64(1 + random.IntN(3))}
					s, _ := c.Sets(nil, true, c.Limit, 0)
					if seed%4 > 0 {
						s.Index = apart{s.Index, 2, random}
					}
					if fault != nil {
						s.Index = faulty{s.Index, fault, rpcv1.Outcome_OK}
					}
					if random.IntN(8) == 0 {
						s.Index = faulty{s.Index, isEntry, rpcv1.Outcome_POOL_FULL}
					}
					if random.IntN(6) == 0 {
						s.Index = &dying{s.Index, 1 + random.IntN(6), random}
						deaths++
					}
					call := int64(world.Events())
					note := func(in setAsked, out setAnswered, end int64) {
						history = append(history, porcupine.Operation{ClientId: n, Input: in, Call: call, Output: out, Return: end})
					}
					const late = 1 << 62 // it is done late, or never
					out, pairs, err := in.run(c, s, []byte{'k', byte(in.key)})
					end := int64(world.Events())
					var f *sortedset.Failure
					unknown := errors.As(err, &f) && f.Outcome.Code == rpcv1.Outcome_UNKNOWN
					switch {
					case in.kind == "range" || in.kind == "pop": // each member for itself
						one := setAsked{key: in.key, kind: map[string]string{"range": "score", "pop": "pop"}[in.kind]}
						for _, p := range pairs {
							one.member = string(p.Member)
							note(one, setAnswered{score: p.Score, there: true}, end)
						}
						if one.kind = "rem"; in.kind == "pop" && unknown && len(pairs) == 0 {
							for _, one.member = range []string{"a", "b"} {
								note(one, setAnswered{unknown: true}, late)
							}
						}
					case err == nil:
						note(in, out, end)
					case unknown && in.kind != "score":
						note(in, setAnswered{unknown: true}, late)
					}
				}
				running--
			})
			p.Go("collect", func() {
				for running > 0 {
					p.Sleep(up(10_000))
					s, _ := c.Sets(nil, true, c.Limit, 0)
					for from := []byte{}; from != nil; {
						from, _, _ = s.Collect(from, nil)
					}
				}
			})
			defer c.Sessions.Halt(time.Minute)
		}
		for running > 0 {
			p.Sleep(up(20_000))
			if random.IntN(3) == 0 {
				store.Lose(func([]byte, []byte, bool) {})
			}
		}
		p.Sleep(time.Second) // what is under way ends
		for range 5 {        // it may meet a log that was lost before
			if rest = atRest(last); rest == nil {
				break
			}
			p.Sleep(10 * time.Second)
		}
	})
	return history, deaths, world.Hash(), errors.Join(err, rest)
}

func checkSets(seed uint64, fault setFault) (deaths int, err error) {
	history, deaths, events, err := simulateSets(seed, fault)
	if err != nil {
		return deaths, fmt.Errorf("seed %d: %w", seed, err)
	}
	if seed%8 == 0 {
		if _, _, again, _ := simulateSets(seed, fault); again != events {
			return deaths, fmt.Errorf("seed %d does not replay", seed)
		}
	}
	if porcupine.CheckOperationsTimeout(setModel, history, judgeLimit) != porcupine.Ok {
		return deaths, fmt.Errorf("seed %d: what was answered is not linearizable", seed)
	}
	return deaths, nil
}

// TestSetSeeds: what servers answer about members is linearizable, and at rest each member has its
// entry, also where servers die between two steps and where logs are lost. A seed that fails does
// so again. Steps that are left out are found.
func TestSetSeeds(t *testing.T) {
	deaths := 0
	for seed := range uint64(500) {
		n, err := checkSets(seed, nil)
		if deaths += n; err != nil {
			t.Error(err)
		}
	}
	if deaths == 0 {
		t.Error("no server died")
	}
	for name, leaves := range map[string]setFault{
		"no entry is written": isEntry,
		"no mark is taken away before an item is settled, or removed": func(op *rpcv1.Operation) bool { return op.Kind == rpcv1.Operation_UPDATE },
		"an entry gets the mark before its item is settled": func(op *rpcv1.Operation) bool {
			if isEntry(op) {
				op.Value = sortedset.Mark
			}
			return false
		},
		"an item is stored over any other": func(op *rpcv1.Operation) bool { op.Condition = rpcv1.Operation_ALWAYS; return false },
	} {
		found := false
		for seed := uint64(0); seed < 200 && !found; seed++ {
			_, err := checkSets(seed, leaves)
			found = err != nil
		}
		if !found {
			t.Errorf("%s, and that was not found", name)
		}
	}
}

// keepPairs returns a visit that appends copies of pairs.
func keepPairs(to *[]sortedset.Pair) func(p sortedset.Pair) bool {
	return func(p sortedset.Pair) bool {
		*to = append(*to, sortedset.Pair{Member: bytes.Clone(p.Member), Score: p.Score})
		return true
	}
}
