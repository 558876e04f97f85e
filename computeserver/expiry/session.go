package expiry

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
)

// Session is what an index.Session does with pairs, where these may expire. It is used as that is,
// by one goroutine at a time, and allocates nothing either, but where it meets a pair that has
// expired.
type Session struct {
	inner index.Session
	now   func() int64

	stored []byte // what a key gets
	value  []byte // of a pair that was met
	puts   [][]byte

	// of the Modify under way
	user   Change
	change index.Change
	err    error

	// of the Insert, Update or Delete under way
	conditional  Change
	put          []byte
	action       index.Action
	there, right bool

	// of the batch under way
	visit  func(i int, value []byte, err error)
	look   func(i int, stored []byte, err error)
	moment int64 // by which they are judged
	passed []int // keys whose pairs have expired
}

// Change is index.Change with marks: is has that of the pair, if it was found, and gets is what it
// gets with Put. A deadline that has passed removes the pair.
type Change func(old []byte, found bool, is Mark) (value []byte, gets Mark, action index.Action)

// New wraps s. now is the clock: milliseconds since 1970.
func New(s index.Session, now func() int64) *Session {
	x := &Session{inner: s, now: now}
	x.change, x.look, x.conditional = x.changeStored, x.lookStored, x.replaceIf
	return x
}

// Lookup implements index.Session, for strings: it returns ErrType for what is none.
func (x *Session) Lookup(key, dst []byte) ([]byte, error) {
	value, is, err := x.LookupMark(key, dst)
	if err == nil && is.Type != String {
		return dst, ErrType
	}
	return value, err
}

// LookupMark is Lookup of a pair of any type, with its mark.
func (x *Session) LookupMark(key, dst []byte) ([]byte, Mark, error) {
	out, err := x.inner.Lookup(key, dst)
	if err != nil {
		return out, Mark{}, err
	}
	value, is, err := Split(out[len(dst):])
	switch {
	case err != nil:
		return dst, Mark{}, err
	case is.Deadline != 0 && Passed(is.Deadline, x.now()): // the clock is read for those only
		return x.Expire(key, dst)
	}
	return out[:len(dst)+len(value)], is, nil
}

// Expire removes the pair of key if its deadline has passed. It returns as LookupMark what the key
// has then: another server may have written it since it was seen.
func (x *Session) Expire(key, dst []byte) (out []byte, is Mark, err error) {
	there := false
	err = x.ModifyUntil(key, func(old []byte, found bool, has Mark) ([]byte, Mark, index.Action) {
		out, is, there = append(dst[:len(dst):len(dst)], old...), has, found
		return nil, Mark{}, index.Keep
	})
	switch {
	case err != nil:
		return dst, Mark{}, err
	case !there:
		return dst, Mark{}, index.ErrNotFound
	}
	return out, is, nil
}

// ModifyUntil is Modify with marks. A pair whose deadline has passed is not found, and goes
// whatever change says.
func (x *Session) ModifyUntil(key []byte, change Change) error {
	x.user, x.err = change, nil
	err := x.inner.Modify(key, x.change)
	x.user = nil
	if err == nil {
		err = x.err
	}
	return err
}

// changeStored implements index.Change. The clock is read once, so that both deadlines are judged
// by the same moment.
func (x *Session) changeStored(stored []byte, found bool) ([]byte, index.Action) {
	now := x.now()
	var old []byte
	var is Mark
	x.err = nil
	if found {
		if old, is, x.err = Split(stored); x.err != nil {
			return nil, index.Keep
		}
	}
	gone := found && Passed(is.Deadline, now)
	if gone {
		old, is, found = nil, Mark{}, false
	}
	value, gets, action := x.user(old, found, is)
	switch {
	case action == index.Put && Passed(gets.Deadline, now), action == index.Keep && gone:
		return nil, index.Remove
	case action == index.Put:
		x.stored = AppendStored(x.stored[:0], value, gets)
	}
	return x.stored, action
}

// Upsert implements index.Session. It asks for nothing that the key has, so it meets no pair that
// has expired.
func (x *Session) Upsert(key, value []byte) error { return x.UpsertMark(key, value, Mark{}) }

// UpsertMark is Upsert with a mark. A deadline that has passed removes the pair.
func (x *Session) UpsertMark(key, value []byte, gets Mark) error {
	if gets.Deadline != 0 && Passed(gets.Deadline, x.now()) {
		if err := x.inner.Delete(key); !errors.Is(err, index.ErrNotFound) {
			return err
		}
		return nil
	}
	x.stored = AppendStored(x.stored[:0], value, gets)
	return x.inner.Upsert(key, x.stored)
}

// Insert implements index.Session.
func (x *Session) Insert(key, value []byte) error {
	return x.replace(key, value, index.Put, false, index.ErrExists)
}

// Update implements index.Session. The pair is a string without a deadline afterwards.
func (x *Session) Update(key, value []byte) error {
	return x.replace(key, value, index.Put, true, index.ErrNotFound)
}

// Delete implements index.Session.
func (x *Session) Delete(key []byte) error {
	return x.replace(key, nil, index.Remove, true, index.ErrNotFound)
}

// replace does action if the key is there, or is not, as there says; else it returns otherwise. The
// index alone cannot tell: it has pairs that have expired.
func (x *Session) replace(key, value []byte, action index.Action, there bool, otherwise error) error {
	x.put, x.action, x.there, x.right = value, action, there, false
	err := x.ModifyUntil(key, x.conditional)
	x.put = nil
	if err == nil && !x.right {
		err = otherwise
	}
	return err
}

func (x *Session) replaceIf(_ []byte, found bool, _ Mark) ([]byte, Mark, index.Action) {
	if x.right = found == x.there; !x.right {
		return nil, Mark{}, index.Keep
	}
	return x.put, Mark{}, x.action
}

// LookupBatch implements index.Session, for strings, as Lookup. Pairs that have expired are removed
// after the batch. All are judged by one moment, since a key may be in it more than once.
func (x *Session) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error {
	x.visit, x.err, x.passed, x.moment = visit, nil, x.passed[:0], x.now()
	err := x.inner.LookupBatch(keys, x.look)
	x.visit = nil
	if err == nil {
		err = x.err
	}
	for _, i := range x.passed {
		if err != nil {
			return err
		}
		var is Mark
		var one error
		switch x.value, is, one = x.Expire(keys[i], x.value[:0]); {
		case one != nil && !errors.Is(one, index.ErrNotFound):
			return one
		case one == nil && is.Type != String:
			one = ErrType
		}
		visit(i, x.value, one)
	}
	return err
}

// lookStored is told of a key of a batch.
func (x *Session) lookStored(i int, stored []byte, err error) {
	if err != nil {
		x.visit(i, nil, err)
		return
	}
	value, is, err := Split(stored)
	switch {
	case err != nil:
		x.err = err // the key has no answer
	case Passed(is.Deadline, x.moment):
		x.passed = append(x.passed, i)
	case is.Type != String:
		x.visit(i, nil, ErrType)
	default:
		x.visit(i, value, nil)
	}
}

// Prepare implements index.Session.
func (x *Session) Prepare(keys, values [][]byte) error {
	x.puts, x.stored = x.puts[:0], x.stored[:0]
	for _, v := range values {
		x.stored = append(x.stored, v...)
		x.stored = append(x.stored, 0) // it tells the index how long they are
	}
	rest := x.stored
	for _, v := range values {
		n := len(v) + 1
		if v == nil {
			x.puts = append(x.puts, nil)
		} else {
			x.puts = append(x.puts, rest[:n:n])
		}
		rest = rest[n:]
	}
	return x.inner.Prepare(keys, x.puts)
}

// Scan is index.Session's over all that is stored: visit is told the mark of a pair, and whether
// its deadline has passed. Such a pair must go by Expire before anybody is told that it is not
// there. limit counts these pairs, too.
func (x *Session) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte, is Mark, passed bool) bool) error {
	now := x.now()
	var broken error
	err := x.inner.Scan(start, limit, reverse, func(key, stored []byte) bool {
		value, is, err := Split(stored)
		if err != nil {
			broken = err
			return false
		}
		return visit(key, value, is, Passed(is.Deadline, now))
	})
	if err == nil {
		err = broken
	}
	return err
}
