// Package engine is a compute server without its network. Operations and scans come in by a front
// end; those of this server's keys run in borrowed sessions of the open index, the others are sent
// to their owners.
//
//	Engine     takes operations and scans, places them and forwards them
//	Sessions   opens the index, lends its sessions, and opens it anew when its client has ended
//	Peers      are the other servers; whoever makes an engine says how they are reached
//
// It imports ownership, which says what this server may serve, and internal/count. It knows neither
// the front ends nor the network.
package engine
