// Package admission bounds what the callers of a memory server's control port make it keep, and
// says who may call what.
//
//	a connection   callers.go   a place in the lobby until its handshake is over, then one of its
//	     |                      identity's places
//	a stream       streams.go   counted from its first frame until the server's last one
//	     |
//	its request    senders.go   charged until its last frame has come
//	     |
//	its call       replies.go   counted; its request is charged while it goes on
//	     |         rights.go    allowed to this identity, or refused
//	its reply      replies.go   charged from before it is encoded until gRPC frees its bytes
//
// All of these are counted for each identity and over all identities but the operator: so callers
// of one index keep neither the operator nor another index out. limits.go has what gRPC bounds
// itself, and the order of all that is done around a call. lines.go bounds what the log says of it.
//
// Locks: Callers.mu guards places, streams and requests; connection.mu guards the replies that one
// connection owes. Neither is taken while the other is held.
package admission
