package mapped

// StoreRelease stores v after every access before it, and promises no order with what comes after.
//
//go:noescape
func StoreRelease(p *uint32, v uint32)
