package verbs

import "errors"

// Errors that refuse a list before anything of it is posted. They are faults of the program; the QP
// lives on.
var (
	// ErrNotRegistered is returned when a local buffer is not inside the arena of the QP.
	ErrNotRegistered = errors.New("local buffer is outside the registered arena")
	// ErrMalformed is returned when a request or list breaks a rule of the interface: length,
	// alignment, unknown kind.
	ErrMalformed = errors.New("malformed work request")
	// ErrUnsupported is returned when a request needs a capability that the connection lacks.
	ErrUnsupported = errors.New("work request needs a capability that the connection lacks")
)

// Errors that kill a queue pair or refuse a connection.
var (
	// ErrOutOfRange is returned when a request reaches outside its region, or what of it is granted
	// to its index.
	ErrOutOfRange = errors.New("remote address is outside the region, or not granted to the index")
	// ErrClosed is returned by a QP, connection or device that this side closed.
	ErrClosed = errors.New("closed")
	// ErrDisconnected is returned when the memory server cannot be reached or cut the connection.
	ErrDisconnected = errors.New("memory server is disconnected")
	// ErrTimeout is returned when a wait went over its limit.
	ErrTimeout = errors.New("memory server did not answer in time")
	// ErrRefused is returned when a memory server does not admit a token.
	ErrRefused = errors.New("memory server refuses the token")
	// ErrVersion is returned when the memory server speaks another version of a provider's
	// protocol.
	ErrVersion = errors.New("protocol versions differ")
	// ErrTooMany is returned when a connection or queue pair would exceed a limit of the memory
	// server.
	ErrTooMany = errors.New("too many connections or queue pairs")
	// ErrLostMemory is returned when a memory server came back without the content that the caller
	// knew.
	ErrLostMemory = errors.New("memory server lost its content")
)
