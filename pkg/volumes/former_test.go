package volumes

import (
	"errors"
	"math/rand/v2"
	"time"
)

// A pod may be deleted by force, or with its node, while its process goes on behind a network that
// is cut. What it has its disk for is attached elsewhere then, and the next process begins there.
// The former one has its memory, its clients and its copy, and can store nothing any more.

var errDetached = errors.New("the disk is attached elsewhere")

// part lets another process begin with the files of a primary that goes on.
func (w *world) part(d *pod, random *rand.Rand) {
	s := d.server
	if s == nil || s.m == nil || s.m.role != Primary || d.former != nil || d.gone || w.soon {
		return
	}
	w.counts.former++
	former := *d
	former.has, former.files = d.has.clone(), files{}
	d.former, d.server, s.pod = &former, nil, &former
	d.files.power = true // what was not on disk stays behind
	w.busy = w.Now() + 1500*time.Millisecond
	w.After(w.UpTo(300*time.Millisecond), nil, func() { w.boot(d) })
	w.After(time.Duration(random.Int64N(int64(5*time.Second))), nil, func() {
		s.process.Kill()
		d.former = nil
	})
}

// isFormer reports whether another process has the files of this one.
func (s *server) isFormer() bool { return s.w.find(s.pod.name) != s.pod }

// isAside reports whether a later process of the pod has stored that it waits for nobody. As long
// as this one has the permission of a backup that nobody reaches, or waits for nobody, what it
// reads may be stale then: controllers/volume_copy.go. Its changes wait for its files.
func (s *server) isAside() bool { return s.isFormer() && s.pod.aside }
