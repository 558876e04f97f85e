package redo

// A program may have to append a record whatever the ring has room for: one that takes another back
// must not wait for a truncation that the first one prevents. A part of the ring is set aside for
// such records: as many bytes as all appenders that may owe one need at once.
//
//   - Append and TryAppend leave the reserve free behind the record. So after each of them all of
//     the reserve is free.
//   - An appender sets its share aside before it appends the record for which it may owe one, and
//     gives it back when it owes none. It owes one record at most.
//
// So between two records that were appended otherwise each share is used once at most, and one that
// was set aside in between not at all. AppendReserved always finds room, and nothing is counted.

// reserveShare is the part of the ring that is set aside at most. A record of half of the ring has
// room besides.
const reserveShare = 4

// Reserve sets room aside for a record of so many bytes, which one more appender may owe. ok is
// false if the reserve would be larger than a quarter of the ring.
func (l *Log) Reserve(record int) (ok bool) {
	for {
		was := l.reserved.Load()
		more := was + mostBytes(record)
		if more > uint64(l.ref.Bytes)/reserveShare {
			return false
		}
		if l.reserved.CompareAndSwap(was, more) {
			return true
		}
	}
}

// Unreserve gives back what Reserve has set aside for an appender that owes nothing.
func (l *Log) Unreserve(record int) { l.reserved.Add(-mostBytes(record)) }

// mostBytes is what a record of so many bytes takes at most, whatever batches end before it: a
// batch of its own.
func mostBytes(record int) uint64 { return align(uint64(batchHead + recordHead + record)) }
