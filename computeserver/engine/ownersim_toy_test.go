package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// toy is an index of a few keys, each with a page of one word; its client caches pages, dirty ones
// too, and has a log. It is what DEX does about owners, without its tree.
//
//	page: LSN (epoch 16 bits, place in the log 16 bits), value 32 bits
//	log:  a word for each change: epoch 16 bits, key 8 bits, value 32 bits, 1
//
// A change is acknowledged when its word of the log is written; its page follows at some time, at
// the latest in Give.
type toy struct {
	*pool.Pool
	w    *ownWorld
	p    *simenv.Process
	eng  *Sessions
	keep *pool.Session // for Take and Give
	buf  []byte
	all  []byte // room for a log

	written env.Event // writeBack has ended
	closing bool

	mu    env.Mutex
	taken []pool.Holding
	next  int // place in the log
	pages [toyKeys]toyPage
}

type toyPage struct {
	mu    env.Mutex
	known bool
	dirty bool
	word  uint64
}

const toyKeys = 8

func toyKey(n int) []byte { return []byte{byte(n * 256 / toyKeys)} }

func toyNumber(key []byte) int { return int(key[0]) * toyKeys / 256 }

// openToy makes a client.
func (w *ownWorld) openToy(p *simenv.Process, k *path, eng *Sessions) (ownership.Opened, error) {
	opened, err := w.openPool(p, k)
	if err != nil {
		return nil, err
	}
	t := &toy{Pool: opened, w: w, p: p, eng: eng, mu: p.NewMutex(), written: p.NewEvent()}
	for i := range t.pages {
		t.pages[i].mu = p.NewMutex()
	}
	if t.keep, t.buf, err = t.session(8 * ownLogWords); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	p.Go("write back", t.writeBack)
	return t, nil
}

func (t *toy) session(room int) (s *pool.Session, buf []byte, err error) {
	if s, err = t.NewSession(room); err != nil {
		return nil, nil, err
	}
	s.SetLimit(ownLimit)
	buf, err = s.Buffer(room)
	return s, buf, err
}

func (t *toy) page(n int) pool.Addr {
	servers := t.w.memory
	return pool.NewAddr(servers[n%len(servers)].id, uint64(ownPagesAt+8*n))
}

func (t *toy) log(client uint32, place int) pool.Addr {
	servers := t.w.memory
	return pool.NewAddr(servers[int(client)%len(servers)].id, uint64(ownLogsAt+8*(int(client)*ownLogWords+place)))
}

// Log implements index.Partitioned.
func (t *toy) Log() []byte { return binary.BigEndian.AppendUint16(nil, uint16(t.Client())) }

// holding is the grant that has a key.
func (t *toy) holding(key []byte) (epoch uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.taken {
		if _, _, ok := keyrange.Intersect(h.Start, h.End, key, append(bytes.Clone(key), 0)); ok {
			return h.Epoch, true
		}
	}
	return 0, false
}

// doubt ends a client of which it is not known whether a request took effect.
func (t *toy) doubt(err error) error {
	t.Condemn(fmt.Errorf("a request may still take effect: %w", err))
	return fmt.Errorf("%w: %w", index.ErrFenced, err)
}

// Take implements index.Partitioned.
func (t *toy) Take(r pool.Holding) error {
	if t.w.wrong == settleFirst {
		if err := t.Settle(r.Start, r.End, r.Epoch); err != nil {
			return err
		}
	}
	t.w.dooms(t.p, r)
	for _, in := range r.Inherits {
		t.w.counts.replays++
		if err := t.replay(in); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = append(t.taken, r)
	return nil
}

func (t *toy) replay(in pool.Inherited) error {
	client := uint32(binary.BigEndian.Uint16(in.Log))
	t.keep.Begin()
	defer t.keep.End()
	t.keep.Read(t.log(client, 0), t.buf)
	if err := t.keep.Post(); err != nil {
		return t.doubt(err)
	}
	t.all = append(t.all[:0], t.buf...)
	for n := range toyKeys {
		if _, _, ok := keyrange.Intersect(in.Start, in.End, toyKey(n), append(toyKey(n), 0)); !ok {
			continue
		}
		newest := uint64(0)
		for place := range ownLogWords {
			if word := binary.LittleEndian.Uint64(t.all[8*place:]); word != 0 && word>>48 == in.Epoch && int(word>>40&0xFF) == n {
				newest = word>>48<<48 | uint64(place)<<32 | word>>8&0xFFFF_FFFF
			}
		}
		if newest == 0 {
			continue
		}
		word := t.buf[:8]
		t.keep.Read(t.page(n), word)
		if err := t.keep.Post(); err != nil {
			return t.doubt(err)
		}
		if binary.LittleEndian.Uint64(word)>>32 >= newest>>32 {
			continue
		}
		binary.LittleEndian.PutUint64(word, newest)
		t.keep.Write(pool.Sole, t.page(n), word)
		if err := t.keep.Post(); err != nil {
			return t.doubt(err)
		}
	}
	return nil
}

// Give implements index.Partitioned.
func (t *toy) Give(start, end []byte) (written int, err error) {
	t.w.counts.gives++
	if err := t.w.isFull(); err != nil {
		return 0, err
	}
	for n := range toyKeys {
		if _, _, ok := keyrange.Intersect(start, end, toyKey(n), append(toyKey(n), 0)); !ok {
			continue
		}
		pg := &t.pages[n]
		pg.mu.Lock()
		if pg.dirty && t.w.wrong != giveUnflushed {
			if err := t.flush(t.keep, t.buf[:8], n); err != nil {
				pg.mu.Unlock()
				return written, err
			}
			written++
		}
		pg.known, pg.dirty = false, false
		pg.mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var kept []pool.Holding
	for _, h := range t.taken {
		if _, _, ok := keyrange.Intersect(h.Start, h.End, start, end); !ok {
			kept = append(kept, h)
			continue
		}
		if below, to, ok := keyrange.Intersect(h.Start, h.End, nil, start); ok && len(start) > 0 {
			kept = append(kept, pool.Holding{Start: below, End: to, Epoch: h.Epoch})
		}
		if from, above, ok := keyrange.Intersect(h.Start, h.End, end, nil); ok && len(end) > 0 {
			kept = append(kept, pool.Holding{Start: from, End: above, Epoch: h.Epoch})
		}
	}
	t.taken = kept
	return written, nil
}

// flush writes a page back. Its mutex is held.
func (t *toy) flush(s *pool.Session, buf []byte, n int) error {
	binary.LittleEndian.PutUint64(buf, t.pages[n].word)
	t.w.stumble(t.p, t.w.memory[n%len(t.w.memory)], true)
	s.Begin()
	defer s.End()
	s.Write(pool.Sole, t.page(n), buf)
	if err := s.Post(); err != nil {
		return t.doubt(err)
	}
	t.pages[n].dirty = false
	return nil
}

// Session implements index.Index.
func (t *toy) Session() (index.Session, error) {
	s, buf, err := t.session(64)
	return &toySession{t: t, s: s, buf: buf}, err
}

func (t *toy) BulkLoad(index.Pairs, int) error { return index.ErrNotEmpty }
func (t *toy) Stats() index.Stats              { return index.Stats{} }

// Close implements index.Index.
func (t *toy) Close() error {
	t.closing = true
	t.written.Wait(5 * time.Second)
	return errors.Join(t.keep.Close(), t.Pool.Close())
}

type toySession struct {
	t   *toy
	s   *pool.Session
	buf []byte
	out *ownership.Table // with a mistake: the table that it left too early
}

// begin locks the page of a key that is taken.
func (x *toySession) begin(key []byte) (n int, epoch uint64, err error) {
	epoch, ok := x.t.holding(key)
	if !ok {
		return 0, 0, fmt.Errorf("key %x: %w", key, index.ErrNotOwner)
	}
	if x.t.w.wrong == giveAtOnce {
		x.out = x.t.eng.tables.Current()
		x.out.In.Add(-1)
	}
	if x.t.w.OneIn(6) {
		x.t.p.Sleep(x.t.w.UpTo(150 * time.Millisecond)) // an operation may take its time
	}
	n = toyNumber(key)
	x.t.pages[n].mu.Lock()
	return n, epoch, nil
}

func (x *toySession) end(n int) {
	x.t.pages[n].mu.Unlock()
	if x.t.w.wrong == giveAtOnce {
		x.out.In.Add(1)
	}
}

// load reads the page unless it is cached.
func (x *toySession) load(n int) error {
	pg := &x.t.pages[n]
	if pg.known {
		return nil
	}
	x.s.Begin()
	defer x.s.End()
	x.s.Read(x.t.page(n), x.buf[:8])
	if err := x.s.Post(); err != nil {
		return fmt.Errorf("%w: %w", index.ErrUnreachable, err)
	}
	pg.word, pg.known = binary.LittleEndian.Uint64(x.buf), true
	return nil
}

func (x *toySession) Lookup(key, dst []byte) ([]byte, error) {
	// a server asks another one for the start of a range, which has no page
	if len(key) != 1 || !bytes.Equal(toyKey(toyNumber(key)), key) {
		if _, ok := x.t.holding(key); !ok {
			return dst, fmt.Errorf("key %x: %w", key, index.ErrNotOwner)
		}
		return dst, index.ErrNotFound
	}
	n, _, err := x.begin(key)
	if err != nil {
		return dst, err
	}
	defer x.end(n)
	if err := x.load(n); err != nil {
		return dst, err
	}
	value := uint32(x.t.pages[n].word)
	if value == 0 {
		return dst, index.ErrNotFound
	}
	return binary.LittleEndian.AppendUint32(dst, value), nil
}

func (x *toySession) Upsert(key, value []byte) error {
	t := x.t
	n, epoch, err := x.begin(key)
	if err != nil {
		return err
	}
	defer x.end(n)
	if err := x.load(n); err != nil {
		return err
	}
	t.mu.Lock()
	place := t.next
	t.next++
	t.mu.Unlock()
	if place >= ownLogWords {
		t.Condemn(errors.New("the log is full"))
		return index.ErrFenced
	}
	v := uint64(binary.LittleEndian.Uint32(value))
	binary.LittleEndian.PutUint64(x.buf, epoch<<48|uint64(n)<<40|v<<8|1)
	t.w.stumble(t.p, t.w.memory[int(t.Client())%len(t.w.memory)], false)
	x.s.Begin()
	x.s.Write(pool.Sole, t.log(t.Client(), place), x.buf[:8])
	err = x.s.Post()
	x.s.End()
	if err != nil {
		t.doubt(err)
		return fmt.Errorf("%w: %w", index.ErrUnknown, err)
	}
	t.pages[n].word, t.pages[n].dirty = epoch<<48|uint64(place)<<32|v, true
	return nil
}

// writeBack writes dirty pages back all the time. It does not ask whether this client may still
// answer: that is what fencing is for.
func (t *toy) writeBack() {
	defer t.written.Set()
	s, buf, err := t.session(64)
	if err != nil {
		return
	}
	defer s.Close()
	for n := 0; !t.closing; n = (n + 1) % toyKeys {
		t.p.Sleep(t.w.UpTo(150 * time.Millisecond))
		pg := &t.pages[n]
		pg.mu.Lock()
		if pg.dirty {
			err = t.flush(s, buf[:8], n)
		}
		pg.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (x *toySession) Insert([]byte, []byte) error { return index.ErrKeyTooLong }
func (x *toySession) Update([]byte, []byte) error { return index.ErrKeyTooLong }
func (x *toySession) Delete([]byte) error         { return index.ErrKeyTooLong }

func (x *toySession) Defer(bool)           {}
func (x *toySession) Position() uint64     { return 0 }
func (x *toySession) Durable(uint64) error { return nil }
func (x *toySession) LookupBatch(keys [][]byte, visit func(int, []byte, error)) error {
	for i, key := range keys {
		value, err := x.Lookup(key, nil)
		if err != nil && !errors.Is(err, index.ErrNotFound) {
			return err
		}
		visit(i, value, err)
	}
	return nil
}

func (x *toySession) Prepare(_, _ [][]byte) error { return nil }

func (x *toySession) Modify([]byte, index.Change) error { return index.ErrKeyTooLong }

func (x *toySession) Scan([]byte, int, bool, func(key, value []byte) bool) error { return nil }
func (x *toySession) SetLimit(limit time.Duration)                               { x.s.SetLimit(limit) }
func (x *toySession) Counters() verbs.Counters                                   { return x.s.Counters() }
func (x *toySession) Close() error                                               { return x.s.Close() }

var _ ownership.Owner = (*toy)(nil)
var _ index.Partitioned = (*toy)(nil)
