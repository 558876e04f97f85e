package combine_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
	"hash/crc32"
	"math/rand/v2"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/register"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// The toy is the least design that reads and writes together: a few keys, each with a leaf of its
// own at a known place, as SMART's leaves are once they are found. A leaf is changed in place under
// the lock word at its rear.
//
//	offset  size  field
//	0       8     1 + length of the value, 0 length = the key is not there; bit 63 is always set
//	8       8     number of the key
//	16      96    value
//	112     8     CRC of all before it, exclusive or the address
//	120     8     lock word
const (
	leafBytes = 128
	wordAt    = 120
	valueAt   = 16
	crcAt     = 112
	mostValue = crcAt - valueAt
)

// faults are put in on purpose.
type faults struct {
	joinLate    bool // a leader posts its READ, and closes the window after that
	failureToo  bool // followers take what a leader has whose READ failed
	sampleFirst bool // what the key is, and what others offer, is looked at before the lock
	unwritten   bool // offers that come behind the sample are acknowledged, and not written

	flaws sim.Flaws // of memory servers that have copies
}

// toy is one run.
type toy struct {
	w                             *simenv.World
	c                             *poolsim.Cluster
	faults                        faults
	leaves                        []pool.Addr
	ops                           []porcupine.Operation
	clock                         int64
	clients, sessions, operations int
	writes                        int // one of how many operations is a change
	lease, limit                  time.Duration
	delegated, combined, failed   uint64
}

func build(b []byte, a pool.Addr, key int, is bool, value []byte) {
	clear(b[:wordAt])
	n := uint64(1 << 63)
	if is {
		n |= 1 + uint64(len(value))
	}
	binary.LittleEndian.PutUint64(b, n)
	binary.LittleEndian.PutUint64(b[8:], uint64(key))
	copy(b[valueAt:crcAt], value)
	binary.LittleEndian.PutUint64(b[crcAt:], uint64(crc32.ChecksumIEEE(b[:crcAt]))^uint64(a))
}

func open(b []byte, a pool.Addr) (is bool, value []byte, ok bool) {
	if binary.LittleEndian.Uint64(b[crcAt:]) != uint64(crc32.ChecksumIEEE(b[:crcAt]))^uint64(a) {
		return false, nil, false
	}
	n := binary.LittleEndian.Uint64(b) &^ (1 << 63)
	if n == 0 {
		return false, nil, true
	}
	return true, b[valueAt : valueAt+n-1], true
}

// toyClient is the toy as one client has it.
type toyClient struct {
	p     *pool.Pool
	reads *combine.Reads
}

// open makes a client, again and again where the memory server dies meanwhile.
func (x *toy) open(p *simenv.Process) (k *toyClient, err error) {
	for range 20 {
		cl, e := x.c.Open(p)
		if err = e; err == nil {
			k = &toyClient{cl, combine.NewReads(p)}
			k.reads.Meet()
			return k, nil
		}
		if x.lease == 0 {
			break
		}
		p.Sleep(x.lease / 4)
	}
	return nil, err
}

// toySession is one session.
type toySession struct {
	op.Op
	x      *toy
	own    combine.Reader // in place of the one in Op, where a fault is put in
	b      []byte
	image  []byte
	change combine.Change
}

func (x *toy) session(k *toyClient, e env.Env) (*toySession, error) {
	ps, err := k.p.NewSession(4096)
	if err != nil {
		return nil, err
	}
	s := &toySession{x: x}
	room, err := ps.Buffer(leafBytes)
	for _, b := range []*[]byte{&s.b, &s.image} {
		if err == nil {
			*b, err = ps.Buffer(leafBytes)
		}
	}
	if err != nil {
		return nil, errors.Join(err, ps.Close())
	}
	ps.SetLimit(x.limit)
	s.Open(ps, e, room)
	if x.faults.joinLate || x.faults.failureToo {
		s.own.Open(k.reads)
	} else {
		s.Delegate(k.reads)
	}
	return s, nil
}

func (s *toySession) close() error {
	s.Leave()
	s.own.Close()
	return s.PS.Close()
}

// read is Read, with the faults of reads.
func (s *toySession) read(a pool.Addr, b []byte) error {
	f := s.x.faults
	if !f.joinLate && !f.failureToo {
		return s.Read(a, b)
	}
	role := s.own.Join(uint64(a), b)
	if role == combine.Wait && f.joinLate {
		s.PS.Read(a, b)
		err := s.PS.Post()
		if role = s.own.Await(s.PS.Remaining()); role == combine.Lead {
			s.own.Done(err == nil)
		}
		return err
	}
	if role == combine.Wait {
		role = s.own.Await(s.PS.Remaining())
	}
	if role == combine.Got {
		return nil
	}
	s.PS.Read(a, b)
	err := s.PS.Post()
	if role == combine.Lead {
		s.own.Done(err == nil || f.failureToo)
	}
	return err
}

func (s *toySession) lookup(key int) (out register.Output, err error) {
	s.Begin()
	defer s.End()
	for n := 1; ; n++ {
		a := s.x.leaves[key]
		if err := s.read(a, s.b[:wordAt]); err != nil {
			return out, err
		}
		if is, value, ok := open(s.b, a); ok {
			return register.Output{Found: is, Value: string(value)}, nil
		}
		if err := s.Retry(); err != nil {
			return out, err
		}
		if n%op.LockEvery == 0 { // its writer may be dead
			_, err := s.PS.Acquire(s.word(a))
			if err == nil {
				err = s.PS.PostRelease(0, 0)
			}
			if err != nil {
				return out, err
			}
		}
	}
}

func (s *toySession) word(a pool.Addr) pool.Word { return pool.Word{At: a + wordAt, Node: a} }

// put does a change. unknown: it may or may not have taken effect. Else, with an error, it has not.
func (s *toySession) put(key int, m combine.Mode, value []byte) (answer error, unknown bool, err error) {
	s.Begin()
	defer s.End()
	a, f := s.x.leaves[key], s.x.faults
	c := &s.change
	*c = combine.Change{Mode: m, Key: binary.BigEndian.AppendUint32(nil, uint32(key)), Value: value}
	k := combine.KeyState{Key: c.Key}
	if f.sampleFirst {
		out, err := s.lookup(key)
		if err != nil {
			return nil, false, err
		}
		k.Was, k.Is = out.Found, out.Found
		s.PS.Begin()
	}
	_, answered, err := s.PS.AcquireOr(s.word(a), c, pool.Span{At: a, Local: s.b[:wordAt]})
	if answered || err != nil {
		return c.Answer, answered, err
	}
	is, _, ok := open(s.b, a)
	if !ok {
		return nil, false, errors.Join(fmt.Errorf("leaf %v is torn under its lock", a), s.PS.PostRelease(0, 0))
	}
	if !f.sampleFirst {
		k.Was, k.Is = is, is
	}
	if !k.Add(c, mostValue) {
		return nil, false, errors.Join(errors.New("the change does not fit"), s.PS.PostRelease(0, 0))
	}
	if err := s.PS.ReserveRewrite(a, wordAt); err != nil {
		return nil, false, errors.Join(err, s.PS.PostRelease(0, 0))
	}
	if !f.unwritten {
		k.Take(s.PS, a, mostValue) // as late as can be
	}
	if k.Changed() {
		build(s.image, a, key, k.Is, k.Value)
		s.PS.Rewrite(a, s.image[:wordAt])
	}
	if f.unwritten {
		k.Take(s.PS, a, mostValue)
	}
	err = s.PS.PostRelease(0, 0)
	return c.Answer, err != nil, err
}

func (x *toy) tick() int64 { x.clock++; return x.clock }

// step does one operation and notes it.
func (x *toy) step(s *toySession, id, n int, r *rand.Rand) error {
	key := r.IntN(len(x.leaves))
	in := register.Input{Verb: register.Lookup, Key: fmt.Sprint(key)}
	if r.IntN(x.writes) == 0 {
		in.Verb = register.Insert + register.Verb(r.IntN(int(register.Modify-register.Insert)))
		in.Value = fmt.Sprintf("%d.%d%*s", id, n, r.IntN(mostValue-20), "")
	}
	// A process that dies notes nothing more: so its operation has no answer until it has one.
	at := len(x.ops)
	x.ops = append(x.ops, porcupine.Operation{ClientId: id, Input: in, Output: register.Output{Unknown: true}, Call: x.tick(), Return: register.Never})
	var out register.Output
	var err error
	unknown := false
	if in.Verb == register.Lookup {
		out, err = s.lookup(key)
	} else {
		m := map[register.Verb]combine.Mode{register.Insert: combine.Insert, register.Update: combine.Update, register.Upsert: combine.Upsert, register.Delete: combine.Delete}[in.Verb]
		var answer error
		answer, unknown, err = s.put(key, m, []byte(in.Value))
		out.Found = errors.Is(answer, index.ErrExists) || answer == nil && m != combine.Insert
	}
	switch o := &x.ops[at]; {
	case err == nil:
		o.Output, o.Return = out, x.tick()
	case !unknown: // it has not taken effect
		o.Input = register.Input{Verb: register.Lookup, Key: in.Key}
	}
	return err
}

// work is what one session does, or one after the other where they die.
func (x *toy) work(p *simenv.Process, k **toyClient, id int, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 3))
	var s *toySession
	deaths := 0
	for n := 0; n < x.operations; n++ {
		var err error
		if s == nil {
			if s, err = x.session(*k, p); err != nil {
				if deaths++; deaths > 20 || x.lease == 0 {
					return err
				}
				if *k, err = x.open(p); err != nil {
					return err
				}
				n--
				continue
			}
		}
		err = x.step(s, id, n, r)
		if err != nil && s.PS.Err() == nil && errors.Is(err, pool.ErrTimeout) && x.limit < time.Minute {
			continue
		}
		if err != nil {
			if x.lease == 0 {
				return err
			}
			x.failed++
			_ = s.close()
			s = nil
		}
	}
	if s != nil {
		return s.close()
	}
	return nil
}
