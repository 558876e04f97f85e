package op

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Delegate lets READs of o be those of other sessions of its client that use the same table, and
// the other way around (package combine). Call it after Open, and Leave before the session is
// closed.
func (o *Op) Delegate(t *combine.Reads) { o.reader.Open(t) }

// Leave ends what Delegate began.
func (o *Op) Leave() { o.reader.Close() }

// Read READs the node at a into b: one round trip, or the part of one that another session of this
// client makes. Nothing else may be queued.
func (o *Op) Read(a pool.Addr, b []byte) error {
	switch o.reader.Join(uint64(a), b) {
	case combine.Lead:
		return o.readForAll(a, b)
	case combine.Wait:
		role := o.reader.Await(o.PS.Remaining())
		if role == combine.Got {
			o.Pause()
			return nil
		}
		if late := o.PS.Overdue(); late != nil {
			if role == combine.Lead {
				o.reader.Done(false)
			}
			return fmt.Errorf("wait for another session's READ of node %v: %w", a, late)
		}
		if role == combine.Lead {
			return o.readForAll(a, b)
		}
	}
	return o.read(a, b)
}

// readForAll is read, for the followers of the session too.
func (o *Op) readForAll(a pool.Addr, b []byte) error {
	err := o.post(a, b)
	o.reader.Done(err == nil)
	if err != nil {
		return Failure(err, false)
	}
	o.Pause()
	return nil
}

// read READs the node at a into b.
func (o *Op) read(a pool.Addr, b []byte) error {
	if err := o.post(a, b); err != nil {
		return Failure(err, false)
	}
	o.Pause()
	return nil
}

// post posts the READ and waits.
func (o *Op) post(a pool.Addr, b []byte) error {
	began := o.reader.Start(o.Env)
	o.PS.Read(a, b)
	err := o.PS.Post()
	o.reader.Took(o.Env, began, len(b))
	return err
}
