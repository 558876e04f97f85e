// Package memserver is the memory server: much memory, and almost no code that runs while it is
// used.
//
// Clients reach the memory by one-sided requests through the providers of package verbs, which the
// server only admits. All else goes through the control service (api/rpc/v1, Memory): who has which
// chunks and locks, who may connect, and the partition map.
//
//	region.go, layout.go    the memory: two mapped files that a restarted process finds again
//	ledger/                 the accounts, a pure state machine
//	internal/core/          serializes changes of the ledger; tokens, leases, fences and holdings
//	journal.go              what the server changes by itself, and its answers, with a copy
//	mirror/                 carries changes to a copy
//	scrubber.go             zeroes freed memory before it is granted again
//	control.go, rights.go   the control service, and who may call what
//	server.go, config.go    listeners, metrics, start and shutdown
//	memservertest/          the same without listeners and files, for tests of other rooms
//	control/                the client's side, as package pool wants it
package memserver
