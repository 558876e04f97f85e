// Package sortedset keeps sorted sets in an ordered index. A set may be as large as the index, and
// lie on as many servers.
//
// # What is stored
//
// The set's key has its head: a pair of its own type, which is all that users see of the set in
// lists of keys. Everything else lies behind a prefix that no user's key has (Prefix), under the
// set's number, which is drawn at random when the set is made and never used again:
//
//	key                                          value
//	the user's                                   head: state, number, token
//	prefix number 'm' member                     item: state, score, stamp, and the former two
//	prefix number 's' score member stamp         - or the mark                the entry
//	prefix number 'z'                            the user's key               the root
//
// The item of a member says which score the member has. Entries are how members are found by score:
// one counts only if its member's item has its stamp. Each change of a member draws a new stamp at
// random. So an entry belongs to one change of one member, is written for that alone, and never
// counts again once the item has another stamp.
//
// # In one step
//
// Where one server owns all pairs that a change of a member is about, and the design can change
// several pairs at one moment (index.Grouper), the change is one operation there (SET_MEMBER): if
// the item is settled, or there is none, the item gets the new score and stamp, the new entry is
// written, and the former one is deleted. For a new member the head has to be made, and of the same
// number, at that moment. A removal deletes item and entry. Where any of this does not hold,
// nothing is done. All observers see a state that is there between two changes in several steps.
//
// Whether one server owns the pairs is known to that server at the moment of the change, and to
// nobody before: ranges move. So it is tried once, and where it is refused the change is made in
// several steps, in the same attempt. The refusal says that nothing was done. A new member whose
// head lies elsewhere is added in several steps, too: to write item and entry together, and then
// to look at the head, would save one step of six, and would be a third way.
//
// # In several steps
//
// Each request below is one operation of the index, and durable before the next one is sent. A
// change of a member:
//
//	1  item: {new score, stamp, pending; former score, stamp}, if the item is still as it was read
//	2  the entry of the new stamp is written; where there was no item, the head is read; the mark
//	   of the former entry is taken away
//	3  the item is settled, if it is still that of step 1
//	4  the former entry is deleted, by the one whose step 3 settled the item
//
// Whoever meets a pending item takes steps 2 to 4 before anything else, and then goes by what the
// item is (settle). They may be taken by several, at any time, and in part:
//
//   - Step 2 writes an entry that counts for the item of step 1 only. Written late, when the member
//     has changed since, it is stale.
//   - Step 4 deletes an entry whose stamp the item does not have any more, for good: it had another
//     one, settled.
//
// So a settled item always has its entry: the entry was written before the item was settled, or at
// the same moment, and is deleted only by those that saw the item settled with another stamp, or
// saw it gone. A crash between two steps leaves a pending item, or a stale entry. Whoever meets a
// stale entry deletes it; nobody is told of one. So step 4 may fail, and the change is made.
//
// Step 2 may find no memory for the entry. Then the item stays pending, and a reader goes by what
// the member had before (item.effective): the former entry is there, as nobody deletes it before
// the item is settled, and a new member is not there yet. So a full pool keeps nobody from reading.
//
// The server that made a change takes it back where a step fails (takeBack): a new member goes, and
// another one gets its former score and stamp back, if the item is still that of step 1. Then it
// was never settled with the new stamp, nor will it be. So nobody was told of the change, the
// former entry is there, and an entry of the new stamp is stale. No other server takes a change
// back, since the one that made it may tell its program that it is made. A former stamp comes back
// only here: it counted all the time.
//
// A member is removed by taking the mark of its entry away, then removing its item, if that is
// still as it was read, then its entries. An item that is pending is removed as well: its change
// was made, and undone. That takes no memory.
//
// # The mark
//
// An entry that was written in one step has the mark. It says that the entry counts, so a reader of
// a range does not look its item up. While a number is alive, this holds at every moment:
//
//	(a)  an entry with the mark counts: the effective item of its member has its stamp
//	(b)  the item that such an entry belongs to says that the entry may have the mark
//
// Only the change in one step sets a mark, together with the item, and of a stamp that it draws:
// (a) and (b) hold then. A stamp is never drawn again, and no other step writes an entry with the
// mark. So an entry that has lost its mark, or was deleted, never has it again. (a) could only be
// broken by what gives the item another stamp or removes it:
//
//   - A change in one step deletes the former entry at the same moment. It compares the item, so
//     that is the entry of the stamp that the item loses.
//   - Step 1 leaves the former stamp effective. Step 2 takes the mark away, durably, before anybody
//     takes step 3 of this pending item: whoever settles has taken step 2 itself, by (b). Nothing
//     sets it meanwhile.
//   - Taking back gives the item the former stamp, which was effective all the time. The item goes
//     on to say that its entry may have the mark, as nobody knows who has taken step 2.
//   - A removal in several steps takes the mark away, durably, before it compares and removes the
//     item. If the item has changed in between, it is not removed.
//   - Deleting entries breaks nothing here, and none that counts is deleted (above).
//
// A server that stands still between two steps, and goes on later, does one of these: it takes a
// mark away (UPDATE, which writes nothing where there is no entry), it writes an entry without the
// mark, it deletes an entry whose stamp no item has, or it compares an item. None of that sets a
// mark, nor takes a stamp from an item that it did not read. So (a) does not depend on who does
// which step, or when. It does not depend either on where pairs lie: a step is one operation on one
// pair, or a change in one step, which the design makes at one moment at the server that owns all
// of the pairs. If these move after that, they move with all of it, or are taken over with the
// whole of its record or nothing of it.
//
// A reader of a range reads the head, then entries. One with the mark says what the member had at
// the moment when the entry was read. A change that was pending then was not made yet, so nobody
// was told of it. Where the set was deleted after the head was read, the member is as it was when
// that happened: what was written under the number later is of changes that began before, and
// counts as made right before the set was deleted. ZPOPMIN and the like remove the member only if
// its item is as the entry says, and look items up where it was not.
//
// Under a dead number there may be marks of which (a) says nothing, since Collect removes pairs in
// any order. Whoever reads the head finds that number no more.
//
// # What is seen
//
// Changes of different members are made side by side (AddEach), also those of several commands of a
// pipeline: all take step 1, then all take step 2. None of the steps of one member depends on
// another member. So a step that fails ends the change of its member alone, and the order in which
// their changes are seen, or survive a crash, is any. Changes of one member are made in their
// order, each when the one before has ended.
//
// A member that is read alone is linearizable: a change is made when its item is settled, in one
// step or several, or removed while it is pending. Nobody is told of it before. A read of several
// members, and a count, reads one after the other, as a scan does: each that is there all the time
// and keeps its score is seen once.
//
// # The head
//
//	no head --> new --> made <--> closing --> no head
//
// A set is made by writing its head (new), then its root, then the head again (made); whoever is
// to write a member meets a new head and does the rest. Then members may be written. A set that is
// deleted, that expires or whose key gets another value loses its head, in one step, and with it
// the number: what lies under that is garbage, which Collect removes. Root and head decide that: a
// number is alive while it has a root, and the head of the root's key has the number. A number that
// was read as dead stays dead: a head that has expired is removed before it is answered that there
// is none (expiry.Session.LookupMark), so no server whose clock is behind finds it again.
//
// The last member takes the set along. Who removed a member and finds no item makes the head
// closing, with a new token, and looks again: with an item it makes the head made, else it removes
// the head, both only if the token is still there. A new member (step 2) reads the head after its
// item was written. Where the head is closing, it is made again: the one who closes fails by its
// token. Where it was made, who closes later sees the item. Where the number is gone, the member
// was written to a set that is deleted: nobody was told of it, since a pending item of a dead
// number is no member, and the change begins anew. So no acknowledged member is lost with its set.
//
// A crash may leave a head without members, until Collect removes it.
//
// # What an error says
//
// A command takes many steps, and each of them may fail, also when members were changed before: of
// several members, of one that is tried again, and where a range is read again behind those that
// were removed. The error of a step says of that step alone that nothing was done. So no step says
// what the command ends with. That is said once, where it ends (endError): an error is UNKNOWN if
// the command has changed a member, or may have, and did not take that back.
package sortedset

import (
	"errors"
	"fmt"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Index is what sets are kept in. An implementation belongs to one request.
type Index interface {
	// Do runs operations on different keys, wherever these belong. What an outcome says is durable.
	Do(ops []*rpcv1.Operation) []*rpcv1.Outcome
	// Scan calls visit with pairs from start, inclusive, to end, exclusive, at most limit of them,
	// in order or in reverse, until it returns false. The slices are valid only during the call.
	Scan(start, end []byte, limit int, reverse bool, visit func(key, value []byte) bool) error
	// OneOwner reports whether one server owns two keys, as far as is known here: what changes both
	// in one step is not refused, as a rule.
	OneOwner(a, b []byte) bool
	// Random is any number.
	Random() uint64
	// Pause waits a little before a try after the first one.
	Pause(try int)
}

// Sets are the sorted sets of an index, for one request. Not safe for concurrent use.
type Sets struct {
	Index            Index
	MaxKey, MaxValue int // bytes

	changed bool // a member was removed, or may have been: only ended asks
	doubt   bool // it is not known whether one was removed
}

// Failure is an outcome that is no answer. Nothing was done, unless the code is UNKNOWN.
type Failure struct{ Outcome *rpcv1.Outcome }

// Error implements error.
func (f *Failure) Error() string { return f.Outcome.Message }

// tries is how often a change is tried while others change the same members.
const tries = 100

func failure(code rpcv1.Outcome_Code, format string, args ...any) error {
	return &Failure{&rpcv1.Outcome{Code: code, Message: fmt.Sprintf(format, args...)}}
}

var errBusy = failure(rpcv1.Outcome_UNAVAILABLE, "others change the same members all the time; try again")

// endError is the error with which a command ends that changes members, by that of a step. changed
// is whether it has changed one, or may have. DATA_LOST stays what it is.
func endError(err error, changed bool) error {
	if err == nil || !changed || codeOf(err) == rpcv1.Outcome_DATA_LOST {
		return err
	}
	return failure(rpcv1.Outcome_UNKNOWN, "some members were changed, others may have been: %v", err)
}

// endError is the error with which a command ends that removes members.
func (s *Sets) endError(err error) error { return endError(err, s.changed) }

// codeOf is the code of a step's error.
func codeOf(err error) rpcv1.Outcome_Code {
	if f := (*Failure)(nil); errors.As(err, &f) {
		return f.Outcome.Code
	}
	return rpcv1.Outcome_UNAVAILABLE
}

// Check returns an error for an index that cannot have sets, or not this one.
func (s *Sets) Check(key []byte) error {
	if least := max(itemBytes, headBytes, len(key)); s.MaxValue < least {
		return failure(rpcv1.Outcome_INVALID, "this index has no sorted set of this key: that needs values of at least %d bytes, its spec.values.maxBytes is %d; nothing was done", least, s.MaxValue)
	}
	return nil
}

// checkMember returns an error for a member that is too long.
func (s *Sets) checkMember(member []byte) error {
	if n := entryBytes + escapedLen(member); n > s.MaxKey {
		return failure(rpcv1.Outcome_INVALID, "the member takes %d bytes of a key, with what stands before it (a zero byte takes two); this index takes at most %d", n, s.MaxKey)
	}
	return nil
}
