// Package index is the contract between the designs of an ordered index on disaggregated memory and
// everybody who uses one.
//
// Keys and values are byte strings, keys ordered by bytes.Compare, and no key or value is reserved:
// the empty ones are like any other. Uint64 keys are 8 bytes, big-endian, so that they compare as
// integers.
//
// Point operations are linearizable. A scan is sorted, has no duplicates, returns every pair that
// was present during the whole scan and no pair that was absent during the whole scan.
package index

import (
	"errors"
	"time"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Index is an open index of one client (a process). Safe for concurrent use.
type Index interface {
	// Session makes a session. Each costs queue pairs and buffers: make one a goroutine, and keep
	// it.
	Session() (Session, error)

	// BulkLoad fills an empty index: all pairs, or none of them. It takes effect at one moment, at
	// its end; a client that dies before leaves an index that is empty. Others may use the index
	// meanwhile; if one of them inserts, the load fails with ErrNotEmpty. parallel is how many
	// sessions write, at least one. Memory is bounded, whatever comes. What was allocated is given
	// back on an error. Errors of pairs are passed on; ErrUnsorted names the two keys that are out
	// of order; one that wraps ErrUnknown is of the last step. Without an error all pairs are
	// there, and with any other error none is: how the load's own sessions end, once it has taken
	// effect, is no part of its result.
	BulkLoad(pairs Pairs, parallel int) error

	// Stats is a recent count of what the client's sessions did.
	Stats() Stats

	// Close ends the index. Its sessions must be closed before.
	Close() error
}

// Session is one goroutine's hands on an index. It owns its queue pairs and buffers; it is not safe
// for concurrent use. Point operations allocate nothing.
//
// Keys and values given to a session are not kept. An error other than the sentinels of "answers"
// below leaves the operation undone, unless it wraps [ErrUnknown].
type Session interface {
	// Lookup appends the value of key to dst and returns the extended slice; ErrNotFound and dst as
	// it was, if there is none.
	Lookup(key, dst []byte) ([]byte, error)

	Insert(key, value []byte) error // ErrExists if key is there
	Update(key, value []byte) error // ErrNotFound if key is not there
	Upsert(key, value []byte) error
	Delete(key []byte) error // ErrNotFound if key is not there

	// Modify is a linearizable read-modify-write: it tells change what key has, and does what
	// change says. No other operation on the key takes effect in between. See Change.
	Modify(key []byte, change Change) error

	// LookupBatch looks keys up side by side: what has to be READ for several of them is READ in
	// one round trip, as far as buffers reach. It calls visit once for each key, in any order, with
	// its number in keys, and its value or ErrNotFound. The value is valid only during the call,
	// and visit must not use the session. Each key is looked up at a moment of its own. An error
	// ends the batch; keys that were not visited have no answer then. The session's limit is of the
	// batch as a whole.
	LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error

	// Prepare READs side by side what changes of keys are about to need, and makes room for their
	// values, as far as caches and buffers reach, so that the changes themselves wait less often.
	// values[i] is that of keys[i]; nil if the key is to be deleted. It is a hint: it changes no
	// pair and says nothing of any, and it leaves out pairs that this client does not own, or that
	// the index cannot have. As with operations, keys of this client do not move to another one
	// meanwhile (Partitioned). With a design that READs a leaf only under its lock it does nothing.
	// An error is one of a lookup: the session may be dead. The session's limit is of the call as
	// a whole.
	Prepare(keys, values [][]byte) error

	// Defer makes later operations return before what they did, or saw, is durable, until it is
	// called with false. A change takes effect at once, as ever. But a crash may undo it, and what
	// was seen, so nothing of it may be told to anybody before Durable(Position()) has returned
	// nil: one wait for many operations. A scan waits as ever. With a design that has no log
	// nothing changes.
	Defer(on bool)

	// Position is up to where the design's log has to be durable for all that this session did and
	// saw while it deferred; 0 = nothing is left to wait for.
	Position() uint64

	// Durable waits until the log is durable up to position, at most for the session's limit. Any
	// session of the index may wait. An error wraps ErrUnknown, or ErrDataLost: what was done may
	// be undone.
	Durable(position uint64) error

	// Scan calls visit with pairs from start (inclusive) on, in order, at most limit of them; with
	// reverse, with those below start (exclusive), downwards, and an empty start is then the upper
	// end of the key space. It ends early when visit returns false. The slices that visit gets are
	// valid only during the call. visit must not use the session.
	Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error

	// SetLimit bounds every later operation of the session: it ends in time with ErrTimeout. The
	// default is DefaultLimit. With a limit below that it changes nothing if it has the lock of
	// what it is to change only after its limit. A list of requests that changes something, or that
	// a lock depends on, may take DefaultLimit, whatever the limit is: else its outcome would be
	// unknown, or more than the session would end.
	SetLimit(limit time.Duration)

	// Counters is the exact count of what the session posted.
	Counters() verbs.Counters

	Close() error
}

// Change says what Modify does with the pair of its key. old is the value, if found. The result is
// an action, and the value for Put.
//
// It may be called several times, each time with what key has then. What the last call says is done
// if Modify returns nil; no earlier call counts. With any error nothing is done, unless the error
// wraps ErrUnknown.
//
// Others wait for the leaf meanwhile, also other servers. So change is quick, waits for nothing and
// does not use the session. old is valid during the call and is not to be changed. The value stays
// as it is until Modify returns; it may be a part of old.
type Change func(old []byte, found bool) (value []byte, action Action)

// Action is what a Modify does.
type Action uint8

// The actions.
const (
	Keep   Action = iota // nothing
	Put                  // the key gets the value, whether it is there or not
	Remove               // the pair goes; nothing if key is not there
)

// Grouper is a Session that changes several keys in one step.
type Grouper interface {
	// Group is Modify of several keys at one moment: no other point operation on one of them takes
	// effect between what change was told and what it said, and a crash leaves all of it or
	// nothing. Scans and batches of lookups look at each key by itself, so they may see a part.
	// members have different keys, all of this client. change is told what the keys have, and sets
	// Value and Action of each; see Change for when it is called and what it may do. An error of
	// change is returned as it is, and nothing is done.
	//
	// Deferring it is one change: all of it has one position. ErrGroupTooLarge.
	Group(members []Member, change func() error) error
}

// Member is one key of a group.
type Member struct {
	Key    []byte
	Old    []byte // what it has, if Found; valid during the call of change
	Found  bool
	Value  []byte // what it gets, if Action is Put
	Action Action
}

// Unprepared is a Session whose Prepare does nothing, so that nobody needs to collect keys for it.
type Unprepared interface{ Unprepared() }

// Fences is a Session of a design that knows the fences of leaves without asking a memory server.
type Fences interface {
	// LowFence appends to dst the low fence of the leaf that holds key, the lowest key that may be
	// in it; false and dst as it was if the leaf is not in the cache. It is not counted as a use of
	// the leaf.
	LowFence(key, dst []byte) ([]byte, bool)
}

// Pairs calls yield with pairs in ascending order of keys, each key once, until there are no more,
// or yield returns false; yield keeps neither slice. An error of the source ends what the pairs are
// for. yield is called on one goroutine, which is that of the call.
type Pairs func(yield func(key, value []byte) bool) error

// Surveyor is an index that can say where its leaves begin.
type Surveyor interface {
	// Survey calls visit with the lowest key of each leaf's range, in order, and the bytes of the
	// leaf. It looks at the inner nodes only, so it may miss leaves whose split is under way;
	// nobody should change the structure meanwhile. The slice is valid only during the call. An
	// error of visit ends it.
	Survey(visit func(low []byte, bytes int) error) error
}

// DefaultLimit bounds an operation unless the session was told otherwise.
const DefaultLimit = 10 * time.Second

// Stats says how an index fares, summed over the sessions of one client.
type Stats struct {
	Verbs         verbs.Counters
	Log           verbs.Counters // of Verbs, what wrote the redo log, if the design has one
	Operations    uint64         // point operations and scans
	Retries       uint64         // times that a torn or stale node was read again
	LockConflicts uint64         // times that the global lock was held by another client
	Merges        uint64         // nodes that were merged with a neighbour
	// merged nodes that nobody can look at any more, and that are used again
	Reclaimed uint64
	// leaves that began above the key that led there: what a cache held was of memory that was used
	// again too early. The operation began anew
	Misled uint64
	// times that a session passed the global lock on to another one of this client
	Handovers uint64
	// changes that a session carried out, with its own, for others of this client that waited for
	// its lock
	Combined uint64
	// READs that a session did not make, since another one of its client made them for both.
	Delegated uint64
	// lookups that READ an entry alone, where a buffer of hotspots said it is, and those that
	// found it there
	Speculated, SpeculatedRight uint64

	CacheBytes  uint64 // memory of the index cache
	CacheHits   uint64 // descents that went from the cache straight to the leaf
	CacheMisses uint64 // inner nodes that had to be read, and the root's address
}

// Answers: the operation did what it could, and this is the outcome.
var (
	// ErrNotFound is returned when the key is not there.
	ErrNotFound = errors.New("key not found")
	// ErrExists is returned by Insert when the key is there.
	ErrExists = errors.New("key exists")
)

// Refusals: nothing was changed.
var (
	// ErrKeyTooLong is returned when a key is longer than the index was created for (or not of 8
	// bytes, with Uint64 keys).
	ErrKeyTooLong = errors.New("key length does not fit the index")
	// ErrValueTooLong is returned when a value is longer than the index was created for.
	ErrValueTooLong = errors.New("value is too long for the index")
	// ErrGroupTooLarge is returned by Group when its changes do not fit into one record of the
	// design's log, or it is about more leaves than the cache may keep for it.
	ErrGroupTooLarge = errors.New("the changes do not fit into one step")
	// ErrUnsorted is returned by BulkLoad when a key is not above the one before it.
	ErrUnsorted = errors.New("keys are not sorted, or one is there twice")
	// ErrNotEmpty is returned by BulkLoad when the index has pairs, or had so many that it has
	// inner nodes.
	ErrNotEmpty = errors.New("index is not empty")
	// ErrPoolFull is returned when memory had to be allocated and the quota of chunks is used up.
	// Reads, deletes and updates with values that lie beside their keys go on; a value that is too
	// long for that needs memory before the one that it replaces is given back.
	ErrPoolFull = pool.ErrPoolFull
	// ErrNotOwner is returned when another compute server is in charge of the key.
	ErrNotOwner = errors.New("another compute server owns the key")
	// ErrFenced is returned when this client was declared dead; it must not answer anything any
	// more.
	ErrFenced = pool.ErrFenced
	// ErrTimeout is returned when an operation went over its limit.
	ErrTimeout = pool.ErrTimeout
	// ErrClosed is returned by a closed session or index.
	ErrClosed = errors.New("index is closed")
)

// Failures.
var (
	// ErrUnknown is returned when a memory server was lost before it confirmed a change: whether
	// the change took effect is not known. The session is dead.
	ErrUnknown = errors.New("outcome is unknown")
	// ErrUnreachable is returned when a memory server cannot be reached, or does not answer in
	// time. The session is dead; the operation changed nothing.
	ErrUnreachable = errors.New("memory server is unreachable")
	// ErrDataLost is returned when a memory server lost its content; nothing may be answered from
	// what is left.
	ErrDataLost = errors.New("index has lost data")
	// ErrFormat is returned when a superblock or node is of another format version, or is not what
	// it should be.
	ErrFormat = pool.ErrFormat
)
