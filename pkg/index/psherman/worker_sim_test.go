package psherman_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/register"
)

// worker is one session of a client.
type worker struct {
	f  *fleet
	id int
	r  *rand.Rand
	s  index.Session
}

func key(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n<<32)) }

// fenced reports whether err may be what a client finds that was fenced, or is given up.
func fenced(err error) bool {
	return errors.Is(err, index.ErrFenced) || errors.Is(err, index.ErrUnknown) || errors.Is(err, index.ErrUnreachable) || errors.Is(err, index.ErrClosed)
}

// serve does operations on the keys of c, but for those of the range that moves.
func (s *worker) serve(c *client, moving int) (err error) {
	if s.s, err = c.x.Session(); err != nil {
		return err
	}
	ranges := s.f.ranges // also when they are another's
	for range simOps {
		n := s.r.Uint64N(simKeys)
		if s.r.IntN(3) > 0 {
			n = n % simHot * simKeys / simHot
		}
		of := int(n * simRanges / simKeys)
		switch {
		case of == moving || ranges[of] != c:
			continue
		case s.r.IntN(10) == 0:
			err = s.scan(n, s.r.IntN(2) == 0)
		default:
			err = s.one(s.draw(key(n)))
		}
		if err != nil {
			return err
		}
	}
	return s.s.Close()
}

func (s *worker) draw(key string) register.Input {
	in := register.Input{Verb: register.Verb(s.r.IntN(int(register.NumVerbs))), Key: key}
	if in.Verb.Changes() {
		s.f.next++
		in.Value = fmt.Sprint(s.f.next)
		in.Value += fmt.Sprintf("%*s", s.r.IntN(s.f.opts.MaxValueBytes-len(in.Value)+1), "")
	}
	return in
}

func (f *fleet) tick() int64 {
	f.clock++
	return f.clock
}

// one performs an operation. Without an answer it may have happened or not.
func (s *worker) one(in register.Input) error {
	f := s.f
	n := len(f.ops)
	f.counts.ops++
	f.ops = append(f.ops, porcupine.Operation{ClientId: s.id, Input: in, Call: f.tick(), Output: register.Output{Unknown: true}, Return: register.Never})
	out, err := register.Perform(s.s, in)
	if err == nil {
		f.ops[n].Output, f.ops[n].Return = out, f.tick()
	}
	return err
}

// scan counts each pair that it sees as a lookup. The first one is from, or lies behind it.
func (s *worker) scan(from uint64, reverse bool) error {
	if reverse {
		from++
	}
	f, began := s.f, s.f.tick()
	var seen []porcupine.Operation
	if err := s.s.Scan([]byte(key(from)), 20, reverse, func(k, v []byte) bool {
		seen = append(seen, porcupine.Operation{ClientId: s.id, Input: register.Input{Verb: register.Lookup, Key: string(k)}, Call: began, Output: register.Output{Found: true, Value: string(v)}})
		return true
	}); err != nil {
		return err
	}
	now := f.tick()
	for _, o := range seen {
		o.Return = now
		f.ops = append(f.ops, o)
	}
	return nil
}
