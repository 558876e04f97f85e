package blink

import "github.com/dmindex/dmindex/pkg/pool"

// Keeper is a design's cache of leaves. The tree changes the structure of leaves in the memory servers only, so what is kept of one must be written back
// before, and is old afterwards.
type Keeper interface {
	// Claim keeps everybody of this client from the leaf at a, which holds keys from low on, until Release, and writes back what is kept of it. false: this
	// client may not use all of it, or somebody uses it now. It does not wait for other claims.
	Claim(a pool.Addr, low []byte) (bool, error)
	Release(a pool.Addr)
}
