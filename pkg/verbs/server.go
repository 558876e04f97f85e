package verbs

import (
	"net"
	"os"
)

// Memory is a region as its server holds it: mapped bytes and, where clients of the same host can map it too, its file.
type Memory struct {
	ID    RegionID
	Bytes []byte
	File  *os.File // nil = cannot be shared with other processes
}

// Peer is who stands behind a connection.
type Peer struct {
	Index  string // UID of the DMIndex object
	Client uint16 // the client's incarnation within the index; never 0
}

// Admission decides which connections a memory server accepts. Safe for concurrent use.
type Admission interface {
	// Admit consumes a token: a second Admit of the same one fails with ErrRefused.
	Admit(Token) (Peer, error)
}

// Server is the memory server's half of a provider. It serves regions that outlive it.
type Server interface {
	// Serve accepts connections of l until Close; it returns nil after Close.
	Serve(l net.Listener) error

	// Disconnect cuts every connection whose peer matches and returns how many. When it returns, no request of theirs
	// takes effect any more, as far as the provider can tell: a peer of shm that maps the memory is beyond its reach.
	Disconnect(match func(Peer) bool) int

	// Close stops accepting, cuts all connections and waits for them to end.
	Close() error
}
