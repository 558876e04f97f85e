package indextest

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// killed kills processes with SIGKILL while they write as fast as they can, fences them, and looks
// whether what they were told is written is there, whether every key can be changed again, and
// whether the structure is whole. Leaves are few and small, so that many writes compact or split
// one, and all keys share a few locks.
func (r *runner) killed(t *testing.T) {
	random := seeded(t)
	c := r.start(t, pooltest.Options{Chunks: 64, Locks: 8})
	o := order{
		Design: r.Design.Name, Control: serveControl(t, c), Options: index.Options{Uint64: true, MaxValueBytes: 40, InlineBytes: 24}, Each: 400, Writer: true,
	}
	p := c.Open(t)
	x := r.open(t, p, o.Options)
	s := session(t, x)
	written := map[uint64]uint64{} // by key: the number of the last write that was acknowledged
	for round := range scale(6) {
		o.Seed = random.Uint64()
		w := r.writer(t, &o)
		last := uint64(0)
		for range 200 + random.IntN(1500) {
			last = w.next(t, written)
		}
		must(t, w.cmd.Process.Kill())
		for w.hasMore() { // what it said before it died
			last = w.next(t, written)
		}
		_ = w.cmd.Wait() // killed
		must(t, c.Fence(w.client))
		for key := range uint64(o.Each) {
			got, err := s.Lookup(number(key), nil)
			if err != nil && !errors.Is(err, index.ErrNotFound) {
				t.Fatalf("round %d: lookup %d: %v", round, key, err)
			}
			value := uint64(0)
			if err == nil {
				value = binary.BigEndian.Uint64(got)
			}
			// One write was under way, or acknowledged and not told, when it died.
			if value != written[key] && value != last+1 {
				t.Fatalf("round %d: key %d has write %d, acknowledged is %d, the last of all %d", round, key, value, written[key], last)
			}
			if err := s.Upsert(number(key), number(value)); err != nil {
				t.Fatalf("round %d: upsert %d: %v", round, key, err)
			}
			written[key] = value
		}
		check(t, x)
	}
	t.Logf("%d half-made changes were repaired", p.Repaired())
}

// writer is a process that writes until it is killed.
type writer struct {
	cmd    *exec.Cmd
	out    *bufio.Reader
	client uint32
}

func (r *runner) writer(t *testing.T, o *order) *writer {
	t.Helper()
	text, err := json.Marshal(o)
	must(t, err)
	w := &writer{cmd: exec.Command(os.Args[0], "-test.run=^$")}
	w.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	must(t, err)
	must(t, w.cmd.Start())
	w.out = bufio.NewReader(out)
	must(t, binary.Read(w.out, binary.LittleEndian, &w.client))
	return w
}

// hasMore reports whether the process has told of another write.
func (w *writer) hasMore() bool {
	_, err := w.out.Peek(16)
	return err == nil
}

// next notes the next write that the process tells of.
func (w *writer) next(t *testing.T, written map[uint64]uint64) (number uint64) {
	t.Helper()
	var b [16]byte
	if _, err := io.ReadFull(w.out, b[:]); err != nil {
		t.Fatalf("the writer ended: %v", err)
	}
	number = binary.LittleEndian.Uint64(b[8:])
	written[binary.LittleEndian.Uint64(b[:])] = number
	return number
}

// writeOn upserts random keys with values of random length that begin with the number of the write,
// and tells of each once it is acknowledged.
func (o *order) writeOn(p *pool.Pool, s index.Session) error {
	r := rand.New(rand.NewPCG(o.Seed, 0))
	client := binary.LittleEndian.AppendUint32(nil, p.Client())
	if _, err := os.Stdout.Write(client); err != nil {
		return err
	}
	var told [16]byte
	value := make([]byte, 40)
	for n := o.Seed | 1<<63; ; n++ { // numbers of their own in every round
		key := uint64(r.IntN(o.Each))
		binary.BigEndian.PutUint64(value, n)
		if err := s.Upsert(number(key), value[:8+r.IntN(33)]); err != nil {
			return fmt.Errorf("upsert %d: %w", key, err)
		}
		binary.LittleEndian.PutUint64(told[:], key)
		binary.LittleEndian.PutUint64(told[8:], n)
		if _, err := os.Stdout.Write(told[:]); err != nil {
			return err
		}
	}
}
