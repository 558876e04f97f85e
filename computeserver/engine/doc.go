// Package engine is a compute server without its network. A front end passes it operations and
// scans. It runs those for this server's keys in borrowed sessions of the open index, and forwards
// the others to their owners.
//
//	Engine     routes operations and scans, and forwards them
//	Sessions   opens the index, lends its sessions, and reopens it when its client has ended
//	Peers      are the other servers; the creator of an engine says how they are reached
//
// It imports ownership, which decides what this server may serve, and internal/count. It imports
// neither the front ends nor the network.
package engine
