package volumes

import (
	"errors"
	"slices"
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
// In a third of the runs answers wait for what is written, and it is on disk some time later. A
// machine that stops may have lost the end of it then. So it stops as such only while another pod
// has all that was answered, and else its process ends alone.
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
		o.files.power = o.files.power || !w.soon || w.record.Number > 0 && (!w.isNamed(o) || w.othersHave(o))
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
	case d.stored.Content != Nothing && s.isShut():
		s.w.counts.lack++
	case d.stored.Content != Nothing:
		s.readFiles()
		s.w.counts.found++
	}
}

// tear switches off the machine of a primary that answers many changes, while its backup has its
// files and only its process ends, most of the time.
func (w *world) tear() {
	if !w.awaitFiles() {
		return
	}
	w.busy = w.Now() + 2*time.Second
	// The operators would see the other one end first.
	for _, operator := range []string{"operator-0", "operator-1"} {
		w.sever(wire{operator, w.record.Backup.Pod, ""}, 700*time.Millisecond+w.UpTo(time.Second))
	}
	w.main.Sleep(700 * time.Millisecond)
	d := w.find(w.record.Primary.Pod)
	if d.server == nil || !w.othersHave(d) {
		return
	}
	w.power(d, false)
	if b := w.find(w.record.Backup.Pod).server; b != nil && w.losses.IntN(4) > 0 {
		b.process.Kill()
	}
}

// awaitFiles waits a while for a backup that has stored that its files count.
func (w *world) awaitFiles() bool {
	w.copies = 2
	has := func() bool { return w.record.Backup != Proc{} && w.find(w.record.Backup.Pod).stored.Backup }
	for until := w.Now() + 5*time.Second; w.Now() < until && !has(); {
		w.main.Sleep(w.UpTo(20 * time.Millisecond))
	}
	return has()
}

// losePrimary waits a while for a backup that has its files, and switches off all machines, and
// that of the primary does not come back. Or it switches off the backup's, and the primary is lost
// at once or some time later: with its process, or while that goes on, as behind a network that is
// cut.
func (w *world) losePrimary() {
	w.awaitFiles()
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
			w.counts.ghosts++
			d.gone = true
			w.power(w.find(w.record.Backup.Pod), false)
			w.busy = w.Now() + 1500*time.Millisecond
			if s := d.server; s != nil {
				w.After(w.UpTo(3*time.Second), nil, s.process.Kill)
			}
		}
	}
}

// receive applies items behind a position, and tells their source how far it is: not before its
// files have that.
func (s *server) receive(from *server, source Proc, k *sink, view, start, position uint64, items []item) {
	applied, ok := s.take(source, k, view, start, position, items)
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

// MayLack implements Host.
func (s *server) MayLack() bool { return s.isShut() }

var errShut = errors.New("the files may lack something")

// isShut reports whether the files may lack something, so that the server does not read them.
func (s *server) isShut() bool { return s.w.soon && s.pod.files.power && s.w.wrong != lackingRead }

// Restore implements Host.
func (s *server) Restore() error {
	s.w.point(s.process)
	if s.isShut() {
		return errShut
	}
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
	if w.isNamed(d) && !w.othersHave(d) && w.wrong != leftOut {
		return false
	}
	w.lost = true
	return true
}

func (w *world) isNamed(d *pod) bool {
	r := w.record
	return d.name == r.Primary.Pod || d.name == r.Backup.Pod || d.name == r.Earlier.Pod
}

// othersHave reports whether another pod than d has all that was answered.
func (w *world) othersHave(d *pod) bool {
	r := w.record
	has := func(name string) bool {
		if name == "" || name == d.name {
			return false
		}
		o := w.find(name)
		lacks := w.soon && o.files.power
		return !o.gone && !lacks && (o.stored.Content != Nothing || o.stored.Backup && o.stored.View.Backup == r.Backup)
	}
	return has(r.Primary.Pod) || has(r.Backup.Pod)
}

// isShut reports whether nobody may go on without a person: the record names alone a primary whose
// machine stopped just before, while operators took its backup for lost.
func (w *world) isShut() bool {
	return w.soon && w.record.Number > 0 && w.record.Backup == (Proc{}) && w.find(w.record.Primary.Pod).files.power
}

// judgeLacking reports if a primary is to go on alone with files that may lack something, while its
// backup's lack nothing, and both processes said so.
func (w *world) judgeLacking(o Observed, to View) {
	from := o.Record
	if !w.soon || from != w.record || from.Backup == (Proc{}) || to.Primary.Pod != from.Primary.Pod {
		return
	}
	says := func(pod string) (r Report, ok bool) {
		i := slices.IndexFunc(o.Pods, func(p Pod) bool { return p.Name == pod && p.Report != nil })
		s := w.find(pod).server
		if i < 0 || s == nil || s.m == nil || s.m.self != o.Pods[i].Report.Proc {
			return r, false
		}
		return *o.Pods[i].Report, true
	}
	p, pSays := says(from.Primary.Pod)
	b, bSays := says(from.Backup.Pod)
	if pSays && bSays && p.Role == Stopped && w.find(from.Primary.Pod).files.power && b.Was == from.Backup && !w.find(from.Backup.Pod).files.power {
		w.Report("view %v names %v, whose files may lack something, and those of %v have everything", to, p.Proc, from.Backup)
	}
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
	if s.isFormer() {
		if w.wrong == asideFiled {
			s.filed = at
		}
		return
	}
	f.written = c
	if w.soon {
		s.filed = at
		p.Go("sync", func() {
			p.Sleep(w.UpTo(300 * time.Millisecond))
			f.synced = f.written
		})
		return
	}
	w.point(p)
	p.Sleep(w.UpTo(2 * time.Millisecond))
	if s.isFormer() {
		return
	}
	f.synced = c
	s.filed = at
}

// TestSeedsFiles: the same as TestSeeds, of volumes with files.
func TestSeedsFiles(t *testing.T) {
	seeds := simtest.Read(t, "volumes-files", "pkg/volumes", 120)
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
	if sum.shut > int(done)/40+1 || voids-sum.shut > int(done)/100 {
		t.Errorf("the last copy was lost in %d of %d runs: the adversary leaves too little to judge", voids, done)
	}
	if seeds.Count >= 50 && (sum.opened == 0 || sum.powers == 0 || sum.found == 0 || sum.restored == 0 || sum.losses == 0 || sum.read == 0 || sum.ghosts == 0 || sum.lack == 0) {
		t.Error("the adversary is tame")
	}
}
