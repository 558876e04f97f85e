//go:build e2efull

package envtest

// How many memory pods of a pool are refused in TestManyRefusedMemoryPods, from the first one on.
// It takes some minutes.
const (
	refusedBefore = 0
	refusals      = 2000
)
