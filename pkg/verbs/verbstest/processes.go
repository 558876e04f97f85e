package verbstest

import (
	"errors"
	"syscall"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// The tests with several processes.
var processTests = []test{
	{"AtomicsOfSeveralProcesses", processesContend},
	{"ClientDiesMidList", clientDies},
	{"ServerDies", serverDies},
	{"ServerFreezes", serverFreezes},
	{"ServerFreezesPolls", serverFreezesPolls},
	{"FenceAFrozenProcess", fenceFrozen},
	{"FenceAProcessThatThaws", fenceThawed},
	{"FenceAfterTheServersDeath", fenceAfterRestart},
}

// addAndSwap adds 1 to the word at 8 and swaps the word at 16 up by 1<<32, looking only at its
// upper half where there are masked atomics; each times times.
func addAndSwap(c verbs.Conn, q verbs.QP, a *verbs.Arena, times int) error {
	b, err := a.Alloc(16)
	if err != nil {
		return err
	}
	op := verbs.CompareSwap
	if c.Capabilities().MaskedAtomics {
		op = verbs.MaskedCompareSwap
	}
	const upper = 0xffffffff << 32
	guess := uint64(0)
	for done := 0; done < times; {
		list := []verbs.Request{{
			Op: op, Region: verbs.RegionLocks, Remote: 16, Local: b[8:], Compare: guess, Swap: guess + 1<<32,
			CompareMask: upper, SwapMask: upper,
		}}
		if err := verbs.Post(q, list); err != nil {
			return err
		}
		v := get(b[8:])
		if v&upper == guess&upper {
			done++
			v += 1 << 32
			if err := verbs.Post(q, []verbs.Request{fetchAdd(8, b[:8], 1)}); err != nil {
				return err
			}
		}
		guess = v
	}
	return nil
}

// processesContend: atomics are atomic against those of other processes.
func processesContend(f *fixture) {
	const children, goroutines = 3, 2
	each := f.repeats()
	var all []*child
	for n := range uint16(children) {
		all = append(all, f.child(childSpec{Role: "add", Target: f.target(n + 1), Times: each}))
	}
	var run []func()
	for n := range uint16(goroutines) {
		c := f.connect(n + 10)
		q := f.qp(c)
		run = append(run, func() {
			if err := addAndSwap(c, q, f.arena, each); err != nil {
				f.Error(err)
			}
		})
	}
	f.together(run...)
	for _, c := range all {
		f.wait(c)
	}
	q := f.client(20)
	want := uint64(children+goroutines) * uint64(each)
	if v := f.word(q, verbs.RegionLocks, 8); v != want {
		f.Errorf("%d additions made %d", want, v)
	}
	if v := f.word(q, verbs.RegionLocks, 16); v != want<<32 {
		f.Errorf("%d swaps made %#x", want, v)
	}
}

// blockSize is how long a WRITE may be that a dying client applies whole or not at all, within
// reason.
func blockSize(c verbs.Conn) int { return min(c.Capabilities().WholeWrite, 256<<10) }

// clientDies: of one WRITE of at most WholeWrite bytes a dying client applies all or none, and once
// it is disconnected nothing of it takes effect.
func clientDies(f *fixture) {
	c := f.connect(1)
	q := f.qp(c)
	first, second := f.buffer(blockSize(c)), f.buffer(blockSize(c))
	for round := range uint16(6) {
		start := f.word(q, verbs.RegionData, 0)
		killed := f.child(childSpec{Role: "write", Target: f.target(100 + round)})
		after := 1 + f.rand.Uint64N(40)
		f.eventually(func() bool {
			v := f.word(q, verbs.RegionData, 0)
			return v != start && v >= after
		}, "the child writes")
		killed.kill()
		f.server.Disconnect(func(p verbs.Peer) bool { return p.Client == 100+round })
		f.post(q, read(0, first))
		for i := 0; i < len(first); i += 8 {
			if get(first[i:]) != get(first) {
				f.Fatalf("the client died: word 0 is %d, word %d is %d", get(first), i/8, get(first[i:]))
			}
		}
		for range 50 {
			f.env.Yield()
			if f.post(q, read(0, second)); string(second) != string(first) {
				f.Fatalf("%d became %d after its writer was dead and disconnected", get(first), get(second))
			}
		}
	}
}

// remoteServer starts a server in another process and connects to it.
func (f *fixture) remoteServer() (*child, verbs.Conn) {
	f.Helper()
	var tokens []verbs.Token
	for range 4 {
		tokens = append(tokens, f.tokens.Issue(verbs.Peer{}))
	}
	s := f.child(childSpec{Role: "serve", Tokens: tokens})
	c, err := f.device.Connect(verbs.Target{Address: f.says(s), Token: tokens[0], Incarnation: incarnation}, soon)
	if err != nil {
		f.Fatalf("connect to a server in another process: %v", err)
	}
	f.Cleanup(func() { c.Close() })
	return s, c
}

func serverDies(f *fixture) {
	for range 3 {
		s, c := f.remoteServer()
		b := f.busy(c)
		b.run(s.kill)
		b.allDied(verbs.ErrDisconnected)
		c.Close() // an error where the provider cannot know what still happens
	}
}

// freeze stops a child as SIGSTOP does and waits until it stands still.
func (f *fixture) freeze(c *child) {
	f.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		f.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		f.Fatalf("a child does not stop: %v, status %v", err, status)
	}
}

// thaw lets it go on.
func (f *fixture) thaw(c *child) {
	f.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		f.Fatal(err)
	}
}

// serverFreezes: a suspended server cannot hold a client longer than the client's limit, not even
// with more than all buffers hold.
func serverFreezes(f *fixture) {
	s, c := f.remoteServer()
	var qps []verbs.QP
	var lists [][]verbs.Request
	out := f.buffer(verbs.MaxTransfer)
	for i := range 8 {
		list := []verbs.Request{read(0, f.buffer(8))}
		if i%2 != 0 {
			for range 8 {
				list = append(list, write(0, out))
			}
		}
		q := f.qp(c)
		q.SetLimit(50 * time.Millisecond)
		qps, lists = append(qps, q), append(lists, list)
	}
	f.freeze(s)
	start := f.env.Now()
	err := verbs.PostAll(qps, lists)
	took := f.env.Now() - start
	if err != nil && !errors.Is(err, verbs.ErrTimeout) {
		f.Errorf("the server stands still: %v, want nil or %v", err, verbs.ErrTimeout)
	}
	if took > soon {
		f.Errorf("8 waits of at most 50 ms took %v", took)
	}
	for _, q := range qps {
		if (q.Err() == nil) != (err == nil) {
			f.Errorf("one queue pair says %v, all together %v", q.Err(), err)
		}
		if err != nil {
			f.isDead(q, q.Err())
		}
	}
	start = f.env.Now()
	q, none := c.NewQP(f.arena)
	// where the server has a part in making it
	if none != nil && !errors.Is(none, verbs.ErrTimeout) {
		f.Errorf("a queue pair with a server that stands still: %v, want one or %v", none, verbs.ErrTimeout)
	}
	if none == nil {
		q.SetLimit(time.Millisecond)
		if again := verbs.Post(q, []verbs.Request{read(0, f.scratch)}); (again == nil) != (err == nil) {
			f.Errorf("a second post to a server that stands still: %v, the first: %v", again, err)
		}
	}
	if took := f.env.Now() - start; took > soon {
		f.Errorf("a new queue pair with a server that stands still took %v", took)
	}
	start = f.env.Now()
	c.Close()
	if took := f.env.Now() - start; took > soon {
		f.Errorf("closing a connection to a server that stands still took %v", took)
	}
}
