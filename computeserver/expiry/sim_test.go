package expiry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
)

// The simulation: servers with clocks that are off, drift, and jump back and forth, share an index.
// What they answered must be linearizable, where a pair may only be absent for a server's operation
// if the server's clock was at its deadline during the operation, or if it was removed before.

// mistake is what a run does wrong.
type mistake int

const (
	noMistake mistake = iota
	hides             // what has expired is not answered, and not removed either
	blind             // it is removed in a step of its own
)

const (
	simKeys    = 3
	simServers = 4
	simOps     = 40
	simLasts   = 3000 // of a pair's life, at most; a unit of these tests is a microsecond
	simOff     = 2000 // of a clock
)

type asked struct {
	what     string
	key      int
	value    uint64
	deadline int64
}

type answered struct {
	found    bool
	value    uint64
	deadline int64
	hash     bool
	// Times that the server's clock read during the operation: the least, the greatest and the
	// last.
	least, most, last int64
}

type state struct {
	there    bool
	value    uint64
	deadline int64
	hash     bool
}

// pairs is what an index of pairs that expire may do.
var pairs = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, simKeys)
		for _, o := range history {
			k := o.Input.(asked).key
			parts[k] = append(parts[k], o)
		}
		return parts
	},
	Init: func() any { return state{} },
	Step: func(s, input, output any) (bool, any) {
		is, in, out := s.(state), input.(asked), output.(answered)
		if in.what == "upsert" {
			return true, state{there: true, value: in.value}
		}
		if out.found {
			if in.reads() && out.hash != is.hash || in.what == "expire" && out.hash != is.hash {
				return false, nil
			}
			if in.what == "batch" && is.hash { // which says no more than that
				out.value = is.value
			}
			if !is.there || is.deadline != 0 && out.least >= is.deadline || in.reads() && out.value != is.value || in.what == "ttl" && out.deadline != is.deadline {
				return false, nil
			}
		} else {
			if is.there && (is.deadline == 0 || out.most < is.deadline) {
				return false, nil
			}
			is = state{}
		}
		switch in.what {
		case "store":
			is = state{true, in.value, in.deadline, storesHash(in.value)}
		case "insert":
			if !out.found {
				is = state{there: true, value: in.value}
			}
		case "update":
			if out.found {
				is = state{there: true, value: in.value}
			}
		case "delete":
			is = state{}
		case "expire":
			if out.found {
				is.deadline = in.deadline
			}
		}
		if (in.what == "store" || in.what == "expire" && out.found) && Passed(in.deadline, out.last) {
			is = state{}
		}
		return true, is
	},
}

func (a asked) reads() bool { return slices.Contains([]string{"get", "ttl", "batch", "scan"}, a.what) }

// storesHash reports whether a value is stored as a hash, by a store.
func storesHash(value uint64) bool { return value%3 == 0 }

func simKey(n int) []byte { return []byte{'k', byte(n)} }

// simulate returns the history of one run, how many pairs were found to have expired, and its hash.
func simulate(seed uint64, wrong mistake) (history []porcupine.Operation, absent int, hash uint64, err error) {
	world := simenv.New(simenv.Options{Seed: seed, Preempt: 2 + int(seed%4)})
	random := rand.New(rand.NewPCG(seed, 1))
	err = world.Run(func(main *simenv.Process) {
		store := memindex.New(main, 8, 8+Bytes)
		store.BeforeOperation(func([]byte) { main.Sleep(time.Duration(random.IntN(300)) * time.Microsecond) })
		value, running := uint64(0), simServers
		for n := range simServers {
			p := world.NewProcess(fmt.Sprint("server ", n))
			p.SetDrift(int64(random.IntN(2000) - 1000))
			inner, e := store.Open().Session()
			if e != nil {
				world.Fail(e)
				return
			}
			off, out := int64(0), answered{}
			clock := func() int64 {
				if random.IntN(4) == 0 {
					off = random.Int64N(2*simOff) - simOff
				}
				now := 1_000_000 + int64(p.Now()/time.Microsecond) + off
				if out.last = now; out.least == 0 {
					out.least, out.most = now, now
				}
				out.least, out.most = min(out.least, now), max(out.most, now)
				return now
			}
			s := New(inner, clock)
			lookup := s.LookupMark
			if wrong != noMistake {
				lookup = func(key, dst []byte) ([]byte, Mark, error) {
					stored, err := inner.Lookup(key, dst)
					if err != nil {
						return dst, Mark{}, err
					}
					v, is, err := Split(stored)
					if !Passed(is.Deadline, clock()) || err != nil {
						return v, is, err
					}
					if wrong == blind {
						_ = inner.Delete(key)
					}
					return dst, Mark{}, index.ErrNotFound
				}
			}
			p.Go("serve", func() {
				for range simOps {
					p.Sleep(time.Duration(random.IntN(600)) * time.Microsecond)
					in := asked{what: []string{"get", "get", "ttl", "batch", "scan", "upsert", "store", "store", "insert", "update", "delete", "expire"}[random.IntN(12)], key: random.IntN(simKeys)}
					value++
					in.value = value
					if in.deadline = clock() + 1 + random.Int64N(simLasts); random.IntN(6) == 0 {
						in.deadline = 0
					}
					out = answered{}
					call := int64(world.Events())
					all := run(s, lookup, in, &out)
					for key, got := range all {
						was := in
						was.key, got.least, got.most, got.last = key, out.least, out.most, out.last
						if !got.found && was.what != "upsert" {
							absent++
						}
						history = append(history, porcupine.Operation{ClientId: n, Input: was, Call: call, Output: got, Return: int64(world.Events())})
					}
				}
				running--
			})
		}
		for running > 0 {
			main.Sleep(10 * time.Millisecond)
		}
	})
	return history, absent, world.Hash(), err
}

// run runs an operation. It returns what was found of each key that it looked at.
func run(s *Session, lookup func(key, dst []byte) ([]byte, Mark, error), in asked, out *answered) map[int]answered {
	all, stored := map[int]answered{}, binary.BigEndian.AppendUint64(nil, in.value)
	note := func(key int, value []byte, is Mark, err error) {
		got := answered{found: err == nil || err == ErrType, deadline: is.Deadline, hash: is.Type == Hash || err == ErrType}
		if len(value) == 8 {
			got.value = binary.BigEndian.Uint64(value)
		}
		all[key] = got
	}
	put := func(found bool) { all[in.key] = answered{found: found} }
	key := simKey(in.key)
	switch in.what {
	case "get", "ttl":
		v, is, err := lookup(key, nil)
		note(in.key, v, is, err)
	case "batch":
		keys := [][]byte{simKey(0), simKey(1), simKey(2)}
		_ = s.LookupBatch(keys, func(i int, v []byte, err error) { note(i, v, Mark{}, err) })
	case "scan":
		var passed []int
		for k := range simKeys {
			note(k, nil, Mark{}, index.ErrNotFound)
		}
		_ = s.Scan(nil, simKeys, false, func(key, v []byte, is Mark, gone bool) bool {
			if note(int(key[1]), v, is, nil); gone {
				passed = append(passed, int(key[1]))
			}
			return true
		})
		for _, k := range passed {
			v, is, err := s.Expire(simKey(k), nil)
			note(k, v, is, err)
		}
	case "upsert":
		put(s.Upsert(key, stored) == nil)
	case "insert":
		put(s.Insert(key, stored) != nil)
	case "update":
		put(s.Update(key, stored) == nil)
	case "delete":
		put(s.Delete(key) == nil)
	default:
		found, typed := false, String
		err := s.ModifyUntil(key, func(old []byte, is bool, has Mark) ([]byte, Mark, index.Action) {
			found, typed = is, has.Type
			switch has.Deadline = in.deadline; {
			case in.what == "store":
				if has.Type = String; storesHash(in.value) {
					has.Type = Hash
				}
				return stored, has, index.Put
			case is:
				return old, has, index.Put
			}
			return nil, Mark{}, index.Keep
		})
		all[in.key] = answered{found: found && err == nil, hash: typed == Hash}
	}
	return all
}

func check(seed uint64, wrong mistake) (absent int, err error) {
	history, absent, hash, err := simulate(seed, wrong)
	if err != nil {
		return absent, err
	}
	if _, _, again, _ := simulate(seed, wrong); again != hash {
		return absent, fmt.Errorf("seed %d does not replay", seed)
	}
	if porcupine.CheckOperationsTimeout(pairs, history, time.Minute) != porcupine.Ok {
		return absent, fmt.Errorf("seed %d: what was answered is not linearizable", seed)
	}
	return absent, nil
}

// TestSeeds: what servers answer whose clocks are off is linearizable. A seed that fails does so
// again.
func TestSeeds(t *testing.T) {
	absent := 0
	for seed := range uint64(60) {
		n, err := check(seed, noMistake)
		if absent += n; err != nil {
			t.Fatal(err)
		}
	}
	if absent < 1000 {
		t.Errorf("%d operations found nothing; pairs are to expire in this test", absent)
	}
}

// TestSeedsCatchMistakes: both mistakes are found.
func TestSeedsCatchMistakes(t *testing.T) {
	for _, wrong := range []mistake{hides, blind} {
		var err error
		for seed := uint64(0); seed < 60 && err == nil; seed++ {
			_, err = check(seed, wrong)
		}
		if err == nil {
			t.Errorf("mistake %d was not found", wrong)
		} else {
			t.Log(err)
		}
	}
}

// TestSplit: what is stored is read as it was, and what no version of this form stored is refused.
func TestSplit(t *testing.T) {
	for _, value := range []string{"", "v", "\x00", "\x01", "12345678\x01"} {
		for _, want := range []Mark{{}, {1, String}, {1 << 62, String}, {0, Hash}, {1, Hash}, {0, SortedSet}, {1, SortedSet}} {
			stored := AppendStored([]byte("x"), []byte(value), want)[1:]
			got, is, err := Split(stored)
			if string(got) != value || is != want || err != nil || len(stored) > len(value)+Bytes {
				t.Errorf("%q with %+v is stored as %x and read as %q with %+v, %v", value, want, stored, got, is, err)
			}
		}
	}
	for _, stored := range []string{"", "\x06", "value\xff", "1234567\x01", "1234567\x03"} {
		if v, is, err := Split([]byte(stored)); !errors.Is(err, ErrForm) {
			t.Errorf("%x is read as %q with %+v, %v", stored, v, is, err)
		}
	}
}
