package redo_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/pool/redo"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestCrash kills a client whose goroutines append, wait, some of them not long enough, and
// truncate, or takes its connection
// away, after parts of its requests, so that what is under way may take effect or not. Of one seed
// in seven it tries every part of every request, of the others every 2nd to 7th. What is replayed
// are records one after the other as they were appended, from the last truncation at the latest to
// the last one that anybody was told is durable at least; in some of the runs batches are there
// behind a gap, which are not replayed.
func TestCrash(t *testing.T) {
	seeds := uint64(30)
	crashes, behind := 0, 0
	for seed := range seeds {
		step := 1 + int(seed)%7
		for part := step; ; part += step {
			ended, gap := crashed(t, seed, part)
			if ended {
				break
			}
			crashes++
			if gap {
				behind++
			}
		}
	}
	if behind == 0 {
		t.Error("no batch was found behind a gap")
	}
	t.Logf("%d crashes, %d of them with a batch behind a gap", crashes, behind)
}

// writers is what the goroutines of a client did, for the checker.
type writers struct {
	appended map[uint64]uint64 // position: what the record says
	last     uint64            // position of the record appended last
	told     uint64            // the highest position that was said to be durable
	let      uint64            // the highest that was truncated
	open     int               // how many goroutines append, and have not noted it yet
}

// crashed does one run; ended: it was over before part. gap: a batch was there behind the last one
// that counts.
func crashed(t *testing.T, seed uint64, part int) (ended, gap bool) {
	t.Helper()
	kind := []sim.Kind{sim.Crash, sim.Crash, sim.Drop}[seed%3]
	w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 5_000_000, Preempt: 6})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{WholeWrite: 8}, Tear: 1 + int(seed)%4, Reorder: true, Delay: 100, Gap: 100,
		Stall: 3 + int(seed)%20, StallFor: 20 * time.Microsecond, Faults: []sim.Fault{{Kind: kind, Process: "victim", Part: part}},
	}
	c, err := poolsim.New(w, poolsim.Options{Servers: 1 + int(seed)%2, Locks: 64, Lease: 100 * time.Millisecond, Fabric: sim.Options{Plan: plan}})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(func(p *simenv.Process) {
		r := rand.New(rand.NewPCG(seed, 1))
		victim, over := w.NewProcess("victim"), p.NewEvent()
		var ref redo.Ref
		var client uint32
		lost := false
		did := writers{appended: map[uint64]uint64{}}
		victim.Go("main", func() {
			defer over.Set()
			fails := func(err error) bool {
				lost = lost || err != nil
				if err != nil && (kind != sim.Drop || !errors.Is(err, verbs.ErrDisconnected)) {
					w.Fail(err)
				}
				return err != nil
			}
			cl, err := c.Open(victim)
			if fails(err) {
				return
			}
			client = cl.Client()
			l, err := redo.Create(cl, redo.MinBytes+8*r.IntN(64))
			if fails(err) {
				return
			}
			ref = l.Ref()
			g := env.NewWaitGroup(victim)
			for range 1 + r.IntN(8) {
				own := rand.New(rand.NewPCG(seed, r.Uint64()))
				g.Go("appender", func() { fails(appends(victim, l, own, &did, 40)) })
			}
			g.Wait(env.Forever)
		})
		over.Wait(env.Forever)
		ended = !victim.Dead() && !lost
		cl, err := c.Open(p)
		must(t, err)
		if ref.Addr == pool.Nil { // it was not told that its log is there
			return
		}
		for _, id := range cl.Servers() {
			for errors.Is(c.Control(p).Fence(id, []uint32{client}, time.Second), pool.ErrTimeout) {
				p.Yield()
			}
		}
		before := -1
		for range 2 {
			n, err := check(cl, ref, &did)
			if err == nil && before >= 0 && n != before {
				err = fmt.Errorf("%d records, then %d", before, n)
			}
			if err != nil {
				w.Fail(err)
			}
			before = n
		}
		gap = isBehind(t, cl, ref)
	})
	if err != nil {
		t.Fatalf("seed %d, dead after part %d: %v", seed, part, err)
	}
	return ended, gap
}

// isBehind reports whether there is a batch behind the end of the log of r.
func isBehind(t *testing.T, cl *pool.Pool, r redo.Ref) bool {
	s, err := cl.NewSession(redo.NodeBytes(int(r.Bytes)))
	must(t, err)
	b, err := s.Buffer(redo.NodeBytes(int(r.Bytes)))
	must(t, err)
	s.Read(r.Addr, b)
	must(t, s.Post())
	must(t, s.Close())
	return redo.Behind(r, b)
}

// appends does what a session of an index does: it appends, waits for some of it, and truncates
// when the ring is full and now and then.
func appends(e env.Env, l *redo.Log, r *rand.Rand, did *writers, n int) error {
	a := l.Appender()
	b := make([]byte, 600)
	truncate := func() {
		upTo := l.Durable() - min(l.Durable(), r.Uint64N(300))
		did.let = max(did.let, upTo)
		l.Truncate(upTo)
	}
	for range n {
		word := r.Uint64()
		record := b[:8+r.IntN(1+r.IntN(len(b)-8))]
		binary.LittleEndian.PutUint64(record, word)
		did.open++
		position, err := a.Append(record)
		for errors.Is(err, redo.ErrFull) {
			if err := a.Wait(did.last, time.Minute); err != nil {
				return err
			}
			truncate()
			e.Yield()
			position, err = a.Append(record)
		}
		if err != nil {
			return err
		}
		did.appended[position], did.last = word, max(did.last, position)
		did.open--
		if r.IntN(3) == 0 { // as beside other requests
			a.Start(position)
			e.Yield()
			if r.IntN(2) == 0 {
				a.Finish(nil)
			} // else what comes next finishes it
		}
		if r.IntN(3) > 0 {
			limit := time.Minute
			if r.IntN(3) == 0 {
				limit = time.Duration(r.IntN(8000))
			}
			err := a.Wait(position, limit)
			switch {
			case err == nil:
				did.told = max(did.told, position)
			case !errors.Is(err, pool.ErrTimeout) || limit == time.Minute:
				return err
			}
		}
		if r.IntN(5) == 0 {
			truncate()
		}
	}
	a.Finish(nil)
	return nil
}

// check replays the log of r.
func check(cl *pool.Pool, r redo.Ref, did *writers) (records int, err error) {
	var first, last uint64
	unnoted := 0 // the crash may have come before a goroutine noted its last record
	err = redo.Replay(cl, r, func(position uint64, record []byte) error {
		word, ok := did.appended[position]
		switch {
		case len(record) < 8:
			return fmt.Errorf("a record of %d bytes at %d", len(record), position)
		case !ok && unnoted == did.open:
			return fmt.Errorf("a record at %d that nobody appended", position)
		case ok && word != binary.LittleEndian.Uint64(record):
			return fmt.Errorf("the record at %d is another one", position)
		case position <= last:
			return fmt.Errorf("the record at %d comes after that at %d", position, last)
		}
		if !ok {
			unnoted++
		}
		if first == 0 {
			first = position
		}
		last = position
		records++
		return nil
	})
	if err != nil {
		return records, err
	}
	if last < did.told && did.let < did.told {
		return records, fmt.Errorf("the last record is at %d; up to %d they are durable", last, did.told)
	}
	between := 0
	for position := range did.appended {
		if first < position && position < last {
			between++
		}
		if position > did.let && position < first && position <= did.told {
			return records, fmt.Errorf("the first record is at %d; that at %d is durable and was not truncated", first, position)
		}
	}
	if records > between+unnoted+2 {
		return records, fmt.Errorf("%d records, of which %d are known", records, between)
	}
	if between+2 > max(records, 2) {
		return records, fmt.Errorf("%d records of %d from %d to %d", records, between+2, first, last)
	}
	return records, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
