package frame

import (
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// State is the outcome of an attempt with a frame.
type State uint8

const (
	Done       State = iota
	Busy             // it is locked, or changed meanwhile: try again
	Evicted          // the frame has another leaf by now
	AboveRange       // the key lies above its leaf
	BelowRange       // the key lies below its leaf
	NotFound         // the key is not there
	InBlock          // done, but it is a reference
	States           // where the numbers of other outcomes begin
)

// Search searches the leaf at a, without the lock, for key, whose fingerprint is fp. It appends the
// value to dst, or the reference. The result is durable once the log is durable up to lsn.
func (f *Frame) Search(e env.Env, lay *fence.Layout, a pool.Addr, key, dst []byte, fp byte) (value []byte, lsn uint64, st State) {
	version := f.Version()
	if version&1 != 0 {
		return dst, 0, Busy
	}
	if f.Addr() != a {
		return dst, 0, Evicted
	}
	var v View
	op.Pause(e)
	value, st = dst, NotFound
	if !f.Open(&v) {
		st = Busy
	} else if f.Below(&v, key, lay.Uint64) {
		st = BelowRange
	} else if f.Above(&v, key, lay.Uint64) {
		st = AboveRange
	} else if i, w := f.Find(&v, key, fp, lay.Uint64); i >= 0 {
		op.Pause(e)
		value = f.Value(w, lay, key, dst)
		if st = Done; f.Refers(w, lay) {
			st = InBlock
		}
	}
	op.Pause(e)
	lsn = f.PageLSN()
	if f.Version() != version {
		return dst, 0, Busy
	}
	return value, lsn, st
}
