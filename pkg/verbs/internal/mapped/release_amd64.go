//go:build !race

package mapped

// StoreRelease stores v after every access before it, and promises no order with what comes after.
//
// Every store of this processor is one. It is plain Go so that it is part of its caller: a call of
// assembly costs 2 ns. The compiler keeps it where it is: it moves no access to memory over a call
// or an operation of sync/atomic, and callers have one of them between any two stores here.
// atomic.StoreUint32 is an exchange, which also waits for the store to be performed.
func StoreRelease(p *uint32, v uint32) { *p = v }
