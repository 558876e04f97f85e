// Package memserver is the memory server: much memory, and almost no code that runs while it is
// used.
//
// Clients reach the memory by one-sided requests through the providers of package verbs, which the
// server only admits. All else goes through the control service (api/rpc/v1, Memory): who has which
// chunks and locks, who may connect, and the partition map.
//
//	server.go, config.go    listeners, start and shutdown
//	internal/region/        the memory: two mapped files that a restarted process finds again
//	ledger/, store.go       the accounts, a pure state machine, and the file that has them
//	internal/core/          serializes changes of the ledger; tokens, leases, fences and holdings
//	content.go              opens and serves ledger and fabrics, once this process may
//	control.go, grpc.go     the control service
//	internal/admission/     what callers may hold of the control port, and who may call what
//	zeroer.go               zeroes freed memory before it is granted again
//	volume.go               where a process begins: what earlier ones stored (volume_file.go)
//	volume_rpc.go           the service Volume: views, joins and stops
//	copy.go                 the connections to other copies of the volume, and from them
//	copy_walk.go            sends memory and ledger to a copy that joins
//	copy_scrub.go           compares the memory with a copy's
//	journal.go              what the server changes by itself, and its answers, with a copy
//	mirror/                 carries changes to a copy
//	memservertest/          the same without listeners and files, for tests of other rooms
//	control/                the client's side, as package pool wants it
package memserver
