package index

import "github.com/dmindex/dmindex/pkg/pool"

// Partitioned is an index of a design whose ranges have owners: of all clients only the one that
// took a key may use it. Designs that are registered without SharesAll implement it. Who holds
// which range is decided elsewhere (docs/design/ownership.md); the index believes what Take and
// Give tell it.
//
// Operations on keys that this client has not taken, or has given back, are refused with
// ErrNotOwner. A scan begins in a range that was taken, else it is refused likewise, and ends
// without an error where what was taken without a gap, and not given since the scan began, ends.
//
// Sessions go on beside Take and Give on all keys that these are not about, also on those next to
// them: none of their operations waits for a move to end, or is refused for it. A scan is an
// operation on the keys that its caller wants of it: where these end, its visit ends it. So it may
// come to a range ahead that moves. It does not fail for that, and shows no pair that another
// client may have changed when the scan looked at it. Calls of Take and Give take turns, whoever
// makes them; none is made after Close began. They end soon when the client is given up
// (pool.Condemn).
type Partitioned interface {
	Index

	// Log names this client's redo log for who inherits it: at most 64 bytes, the same ones for as
	// long as the index is open.
	Log() []byte

	// Take makes this client serve r from now on. Before it returns, what the logs in r.Inherits
	// have of their keys is replayed, in the order of their epochs, and is safe without these logs:
	// they may be gone afterwards. After an error nothing of r is taken: no operation on its keys
	// was admitted, what was replayed is replayed again with the same outcome, and Take may be
	// called again with the same r, by this client or the next one. Nothing that fails after the
	// first operation was admitted is an error of Take. A crash during Take is equivalent to Take
	// never having started: whoever takes r next inherits the same logs. Take itself leaves nothing
	// in this client's log that is needed: it is not inherited before r is settled and operations
	// have begun.
	Take(r pool.Holding) error

	// Give writes back all that this client changed of the keys from start up to end, and forgets
	// them. It is called for keys of one range that was taken, when no session is in an operation
	// on them, and none begins one. When it returns nil, nothing of this client takes effect on
	// these keys any more, neither what sessions left behind that died. After an error it may be
	// called again, and either all of the keys are this client's still or none is; a client that
	// cannot give is ended, and its log is replayed. ErrPoolFull is returned when there is no
	// memory to divide a node at start or end: then all of the keys are this client's still, as if
	// Give had not been called, and sessions may use them. written is how many nodes it wrote back,
	// also after an error.
	Give(start, end []byte) (written int, err error)
}
