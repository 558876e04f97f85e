package volumes

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
)

// In runs with files the memory of a pod is lost with each process, and the next one reads it from
// files. A process that ends leaves what it has written, a machine that stops what it has synced,
// or more. The files of a primary follow what it recorded, and its answers wait for them. Those of
// a copy have what it says that it has applied.
//
// In half of the runs a pod may be lost with its files, if another one has content or the files of
// the recorded backup, whatever runs at that moment. In the others the volume is never lost:
// whoever is killed and switched off, all of them at once too.

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
func (w *world) power(d *pod, all bool) {
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

// beginFiles gives a process the memory that its files have, if it has content. Files of a backup
// stay as they are, and all others count for nothing.
func (s *server) beginFiles(m *Member) {
	d := s.pod
	d.memory, d.has, d.born = [words]int{}, nil, 0
	switch {
	case m.Empty():
		d.files = files{}
	case d.stored.Content != Nothing:
		s.readFiles()
		s.w.counts.found++
	}
}

// losePrimary waits a while for a backup that has its files, and switches off all machines, and
// that of the primary does not come back. Or it switches off the backup's, and the primary is lost
// at once or some time later: with its process, or while that goes on, as behind a network that is
// cut.
func (w *world) losePrimary() {
	w.copies = 2
	for until := w.Now() + 5*time.Second; w.Now() < until && (w.record.Backup == Proc{} || !w.find(w.record.Backup.Pod).stored.Backup); {
		w.main.Sleep(w.UpTo(20 * time.Millisecond))
	}
	if w.record.Number > 0 {
		d := w.find(w.record.Primary.Pod)
		switch way := w.losses.IntN(3); {
		case way == 0 || w.record.Backup == Proc{}:
			w.power(d, w.losses.IntN(4) > 0)
			w.After(w.UpTo(50*time.Millisecond), nil, func() { w.lose(d) })
		case way == 1:
			w.power(w.find(w.record.Backup.Pod), false)
			for _, operator := range []string{"operator-0", "operator-1"} {
				w.sever(wire{operator, w.record.Backup.Pod, ""}, w.UpTo(2*time.Second))
			}
			w.After(w.UpTo(3*time.Second), nil, func() { w.lose(d) })
		case w.mayLoseFiles(d):
			w.power(w.find(w.record.Backup.Pod), false)
			w.counts.ghosts++
			d.gone = true
			w.busy = w.Now() + 1500*time.Millisecond
			if s := d.server; s != nil {
				w.After(w.UpTo(3*time.Second), nil, s.process.Kill)
			}
		}
	}
}

// receive applies items behind a position, and tells their source how far it is: not before its
// files have that.
func (s *server) receive(from *server, k *sink, view, start, position uint64, items []item) {
	applied, ok := s.take(from.m.Self(), k, view, start, position, items)
	if !ok {
		return
	}
	if s.w.files && s.w.wrong != notFollowed {
		s.writeFiles()
	}
	s.w.send(s.pod.name, from.pod.name, "stream", from.process, func() {
		from.process.Go("ack", func() {
			if applied > k.acked {
				k.acked, k.ackedAt = applied, from.process.Now()
			}
			from.m.Acked(k.Proc, applied)
			if s.w.wrong == inSyncEarly {
				from.m.Acked(k.Proc, from.m.mark)
			}
		})
	})
}

// readFiles makes the memory what the files have, all of which is on disk then.
func (s *server) readFiles() {
	d, f := s.pod, &s.pod.files
	if f.power && s.w.OneIn(2) {
		f.written = f.synced
	}
	f.power = false
	s.process.Sleep(s.w.UpTo(20 * time.Millisecond))
	f.synced = f.written
	d.memory, d.has, d.born = f.written.memory, f.written.has.clone(), f.written.born
}

// Durable implements Host.
func (s *server) Durable() bool { return s.w.files }

// Restore implements Host.
func (s *server) Restore() error {
	s.w.point(s.process)
	if s.pod.disk.full && s.w.OneIn(2) {
		return errors.New("input/output error of the simulated device")
	}
	s.readFiles()
	s.w.counts.read++
	return nil
}

// mayLoseFiles reports whether a pod may be lost with its files: the record names none of it, or
// another pod has the content, or the files of the recorded backup.
func (w *world) mayLoseFiles(d *pod) bool {
	r := w.record
	if !w.losing || d.gone || r.Number == 0 {
		return false
	}
	has := func(name string) bool {
		if name == "" || name == d.name {
			return false
		}
		o := w.find(name)
		return !o.gone && (o.stored.Content != Nothing || o.stored.Backup && o.stored.View.Backup == r.Backup)
	}
	named := d.name == r.Primary.Pod || d.name == r.Backup.Pod || d.name == r.Earlier.Pod
	if named && !has(r.Primary.Pod) && !has(r.Backup.Pod) && w.wrong != leftOut {
		return false
	}
	w.lost = true
	return true
}

// keepFiles lets the files follow the memory of a process that has the content. Those of a copy
// follow when it takes something (server.receive).
func (s *server) keepFiles() {
	for {
		if s.m.Role().holds() || s.w.wrong == notFollowed && s.first && s.w.OneIn(200) {
			s.writeFiles()
		}
		s.process.Sleep(s.w.UpTo(5 * time.Millisecond))
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
	voids, longest := 0, time.Duration(0)
	begun := time.Now()
	done, failed := seeds.Each(func(seed uint64) (passed bool) {
		o := run{seed: seed, files: true}.do()
		if o.err != nil {
			t.Errorf("%v\n%s", o.err, seeds.Replay(seed))
		}
		mu.Lock()
		defer mu.Unlock()
		sum.add(o.counts)
		if o.void {
			voids++
		} else {
			longest = max(longest, o.took)
		}
		return o.err == nil
	})
	t.Logf("volumes with files: %d seeds, %.0f a second, %d failed; %+v; %d ended when the last copy was lost; in sync %v after the last trouble at the latest", done, float64(done)/time.Since(begun).Seconds(), failed, sum, voids, longest)
	if voids > int(done)/100 {
		t.Errorf("the last copy was lost in %d of %d runs: the adversary leaves too little to judge", voids, done)
	}
	if seeds.Count >= 50 && (sum.opened == 0 || sum.powers == 0 || sum.found == 0 || sum.restored == 0 || sum.losses == 0 || sum.read == 0 || sum.ghosts == 0) {
		t.Error("the adversary is tame")
	}
}
