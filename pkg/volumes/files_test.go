package volumes

import (
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
)

// In runs with files the memory of a pod is lost with each process, and the next one reads it from
// files, which are lost with nothing. A process that ends leaves what it has written, a machine
// that stops what it has synced, or more. The files of a primary follow what it recorded, and its
// answers wait for them. Those of a copy follow behind what it applies, and have all of it when it
// stores that it has the content.
//
// Nothing is ever lost in these runs: whoever is killed and switched off, all of them at once too.

// content is what a memory is, or files are.
type content struct {
	memory [words]int
	has    bits
	born   int
}

type files struct {
	written, synced content
	power           bool // the machine stopped
}

func (d *pod) content() content { return content{d.memory, d.has.clone(), d.born} }

// power switches off the machine of a pod, or all machines.
func (w *world) power(d *pod) {
	all := w.OneIn(2)
	for _, o := range w.pods {
		if o.gone || !all && o != d {
			continue
		}
		w.counts.powers++
		o.files.power = true
		if o.server != nil {
			o.server.process.Kill()
		}
	}
}

// readFiles gives a process the memory that its files have, all of which is on disk then.
func (s *server) readFiles() {
	d, f := s.pod, &s.pod.files
	if f.power && s.w.OneIn(2) {
		f.written = f.synced
	}
	f.power = false
	s.process.Sleep(s.w.UpTo(20 * time.Millisecond))
	f.synced = f.written
	d.memory, d.has, d.born = f.written.memory, f.written.has.clone(), f.written.born
	if d.stored.Content != Nothing {
		s.w.counts.found++
	}
}

// keepFiles lets the files follow the memory.
func (s *server) keepFiles() {
	for {
		s.writeFiles()
		s.process.Sleep(s.w.UpTo(5 * time.Millisecond))
		for late := s.process.Now() + s.w.UpTo(2*time.Second); s.process.Now() < late && !s.m.Role().holds(); {
			s.process.Sleep(10 * time.Millisecond)
		}
	}
}

func (s *server) writeFiles() {
	w, p, f := s.w, s.process, &s.pod.files
	s.filing.Lock()
	defer s.filing.Unlock()
	s.order.Lock()
	at, c := uint64(len(s.items)), s.pod.content()
	s.order.Unlock()
	p.Sleep(w.UpTo(time.Millisecond) + w.UpTo(s.pod.disk.slow/20))
	f.written = c
	w.point(p)
	p.Sleep(w.UpTo(2 * time.Millisecond))
	f.synced = c
	s.filed = at
}

// TestSeedsFiles: the same as TestSeeds, of volumes with files.
func TestSeedsFiles(t *testing.T) {
	seeds := simtest.Read(t, "volumes", "pkg/volumes", 120)
	var mu sync.Mutex
	var sum counts
	longest := time.Duration(0)
	begun := time.Now()
	done, failed := seeds.Each(func(seed uint64) (passed bool) {
		o := run{seed: seed, files: true}.do()
		if o.err != nil {
			t.Errorf("%v\n%s", o.err, seeds.Replay(seed))
		}
		mu.Lock()
		defer mu.Unlock()
		sum.add(o.counts)
		longest = max(longest, o.took)
		if o.void {
			t.Errorf("seed %d: the volume is lost\n%s", seed, seeds.Replay(seed))
		}
		return o.err == nil
	})
	t.Logf("volumes with files: %d seeds, %.0f a second, %d failed; %+v; in sync %v after the last trouble at the latest", done, float64(done)/time.Since(begun).Seconds(), failed, sum, longest)
	if seeds.Count >= 50 && (sum.opened == 0 || sum.powers == 0 || sum.found == 0 || sum.restored == 0) {
		t.Error("the adversary is tame")
	}
}
