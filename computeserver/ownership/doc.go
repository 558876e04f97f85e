// Package ownership is a compute server's part in the protocol that decides which server owns which
// keys (docs/design/ownership.md).
//
//	View      the newest partition map, and the servers that requests are sent to by it
//	Tables    the keys that this server serves, as sessions see them
//	Manager   acquires, serves and releases ranges, so that what a client holds follows the map
//	fencer    fences former owners at all memory servers
//
// It imports no other part of the compute server. Owner is what it needs of the index; the creator
// of a Manager says how a client is given up.
package ownership
