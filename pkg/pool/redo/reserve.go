package redo

// A program may have to append a record whatever the ring has room for: one that takes another back
// must not wait for a truncation that the first one prevents. A part of the ring is set aside for
// such records: as many bytes as all appenders that may owe one need at once.
//
//   - Append and TryAppend leave the reserve free behind the record. So after each of them all of
//     the reserve is free.
//   - Between two of them each appender uses its share once at most: what it owes, it owes for a
//     record that it appended otherwise, before.
//
// So AppendReserved always finds room, and nothing is counted.

// reserveShare is the part of the ring that is set aside at most. A record of half of the ring has
// room besides.
const reserveShare = 4

// Reserve sets room aside for one more appender, which owes one record of so many bytes at a time.
// ok is false if the reserve would be larger than a quarter of the ring.
func (l *Log) Reserve(record int) (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	more := l.reserved + room(record)
	if ok = more <= uint64(l.ref.Bytes)/reserveShare; ok {
		l.reserved = more
	}
	return ok
}

// Unreserve gives back what Reserve has set aside for an appender that owes nothing.
func (l *Log) Unreserve(record int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved -= room(record)
}

// room is what a record of so many bytes takes at most, whatever batches end before it: a batch of
// its own.
func room(record int) uint64 { return align(uint64(batchHead + recordHead + record)) }
