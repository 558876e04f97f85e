package dostream

// The windows of a connection between programs and compute servers, and between those, in both
// directions: what may be under way of a stream, and of all together, before the receiver has taken
// it. They are fixed. gRPC's own grow up to 16 MiB, and to find out how far, each side sends a ping
// with what it receives: two more messages, and the system calls for them, for a forwarded command.
const (
	StreamWindow = 1 << 20 // a full batch of short pairs needs an eighth of it
	ConnWindow   = 4 << 20
)
