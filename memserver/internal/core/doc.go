// Package core decides everything about a memory server's clients: its accounts, tokens, leases,
// fences, holdings and locks. It knows no listeners, no files and no gRPC, so package memserver
// runs it behind its control port, and tests run it bare (package memservertest).
//
//	core.go, expire.go       admission of clients, the lease loop
//	accounts.go, turns.go    serialize changes of the ledger; each is stored before it is answered
//	tokens.go, leases.go     who may connect, and for how long it is believed
//	fence.go, fences.go      the end of a client
//	forget.go                its id can be given to another one
//	holdings.go              who holds which keys
//	locktable.go, words.go   locks of fenced clients say REPAIR
//	onchip.go                locks in the NIC's own memory
package core
