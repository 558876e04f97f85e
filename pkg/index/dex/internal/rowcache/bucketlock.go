package rowcache

import (
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/index/internal/seqlock"
)

// Invalidate makes the entry of key one that is not found any more, and keeps its place and its
// count. It reports whether there was one, valid or not.
func (e *Cache) Invalidate(key []byte) (had bool, err error) {
	p, b, err := e.await(key)
	if err != nil {
		return false, err
	}
	defer unlock(b)
	_, at, head := seek(b, p.head, key)
	if head == 0 {
		return false, nil
	}
	seqlock.Store(&b[at], head|stale)
	return true, nil
}

// await locks the bucket of key, which may be another one each time that it tries: removed ones
// stay locked. A holder has it for a few instructions, and waits for nothing.
func (e *Cache) await(key []byte) (p spot, b []uint64, err error) {
	for try := 0; ; try++ {
		var ok bool
		if p, b, ok = e.acquire(key); ok {
			return p, b, nil
		}
		switch {
		case try < bucketTries:
			e.env.Yield()
		case try < bucketTries+int(bucketLimit/bucketPause):
			e.env.Sleep(bucketPause)
		default:
			return p, nil, fmt.Errorf("the bucket of an entry is locked for %v", bucketLimit)
		}
	}
}

// tryLock locks b, unless somebody has it for more than a few instructions.
func (e *Cache) tryLock(b []uint64) bool {
	for range bucketTries {
		if lock(b) {
			return true
		}
		e.env.Yield()
	}
	return false
}

const (
	bucketTries = 100
	bucketPause = time.Millisecond
	bucketLimit = 10 * time.Second
)
