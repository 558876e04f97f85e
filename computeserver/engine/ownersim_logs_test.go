package engine

import (
	"fmt"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// logAt is the log in use at an address of the simulated memory.
func (w *ownWorld) logAt(a pool.Addr) (r redo.Ref, client uint32, ok bool) {
	data := w.memory[a.Server()-1].memory[0].Bytes
	return redo.RefOf(a, data[a.Offset():][:pool.HeadBytes])
}

// named are the logs that holdings have, by what the home stored.
func (w *ownWorld) named() map[redo.Ref]bool {
	stored, err := ledger.Decode(w.memory[0].disk.Stored)
	if err != nil {
		w.Report("the ledger of memory server 1: %v", err)
		return nil
	}
	all, _ := stored.Holdings(ownIndex)
	names := map[redo.Ref]bool{}
	note := func(log []byte) {
		r, err := redo.DecodeRef(log)
		if err != nil {
			w.Report("a holding names a log %x: %v", log, err)
		}
		names[r] = true
	}
	for _, h := range all {
		note(h.Log)
		for _, in := range h.Inherits {
			note(in.Log)
		}
	}
	return names
}

// watchLogs sees to it that no log is given back which somebody may have to replay.
func (w *ownWorld) watchLogs() {
	for !w.over {
		w.main.Sleep(w.UpTo(50 * time.Millisecond))
		for r := range w.named() {
			if found, _, ok := w.logAt(r.Addr); !ok || found != r {
				w.Report("log %+v is named by a holding and not there any more", r)
			}
		}
	}
}

// awaitLogs waits until what is left of logs of dead clients, in chunks of clients that live, is
// named by a holding.
func (w *ownWorld) awaitLogs() {
	var left error
	for begun := w.Now(); w.Now()-begun < settleBound; w.main.Sleep(time.Second) {
		if left = w.needless(); left == nil {
			return
		}
	}
	w.Report("%v after all trouble %w", settleBound, left)
}

func (w *ownWorld) needless() error {
	names := w.named()
	w.dex.returned = 0
	for _, m := range w.memory {
		stored, err := ledger.Decode(m.disk.Stored)
		if err != nil {
			return err
		}
		for number := uint32(1); number <= dexChunks; number++ {
			owner := w.dex.owner[chunkName{m.id, number}]
			first := pool.NewAddr(m.id, w.chunkAt(number))
			for _, at := range []pool.Addr{first + pool.Addr(pool.TableBytes(w.chunkBytes())), first + pool.Addr(w.chunkBytes()/2)} {
				r, client, ok := w.logAt(at)
				if redo.Dead(m.memory[0].Bytes[at.Offset():]) {
					w.dex.returned++
				}
				if ok && client != owner && !names[r] && stored.Live(ownIndex, owner) == nil {
					return fmt.Errorf("log %+v of client %d in a chunk of client %d is not given back", r, client, owner)
				}
			}
		}
	}
	return nil
}
