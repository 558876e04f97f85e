package ledger

import "errors"

// Errors that refuse an operation. The ledger is then as it was before.
var (
	// ErrExhausted is returned when there is not as much left as was asked: chunks, locks,
	// superblock slots, client ids. The message has the figures.
	ErrExhausted = errors.New("exhausted")
	// ErrHoldings is returned when a release would make the holdings of an index too many. The
	// client holds the keys still.
	ErrHoldings = errors.New("too many holdings of keys")
	// ErrInUse is returned when a change would take away what is in use.
	ErrInUse = errors.New("in use")
	// ErrUnknownIndex is returned when the index was never admitted or was evicted.
	ErrUnknownIndex = errors.New("index is not admitted on this memory server")
	// ErrUnknownClient is returned when no such client registered or connected here.
	ErrUnknownClient = errors.New("client is not known to this memory server")
	// ErrFenced is returned when the client was ended for good.
	ErrFenced = errors.New("client is fenced")
	// ErrNotOwned is returned when a chunk is not the index's, or a chunk or keys are not the
	// client's.
	ErrNotOwned = errors.New("not owned by who asks")
	// ErrStale is returned when the partition map has another generation than the caller expected.
	ErrStale = errors.New("stale generation")
	// ErrOtherMap is returned when keys are claimed by another partition map than the one that is
	// there.
	ErrOtherMap = errors.New("claimed by another partition map")
	// ErrDraining is returned when the server hands out nothing more.
	ErrDraining = errors.New("memory server is draining")
	// ErrInvalid is returned when the arguments can never be right.
	ErrInvalid = errors.New("invalid argument")
	// ErrCleaning is returned when all that is left still has another index's content; ask again
	// after the next CleanedChunk or CleanedPlace.
	ErrCleaning = errors.New("what is left is being zeroed")
)

// Errors of Decode.
var (
	// ErrDamaged is returned when the bytes are not a ledger, or one that broke.
	ErrDamaged = errors.New("damaged ledger")
	// ErrVersion is returned when the ledger is of another format version.
	ErrVersion = errors.New("ledger of another format version")
)
