// Package ownership is a compute server's part in the protocol that says who owns which keys
// (docs/design/ownership.md).
//
//	View      the newest partition map, and where requests go by it
//	Tables    the keys that this server serves, as sessions see them
//	Manager   makes what a client holds follow the map
//	fencer    ends former owners at all memory servers
//
// It imports no other part of the compute server: what it needs of the index is Owner, and whoever
// makes a Manager says how a client is given up.
package ownership
