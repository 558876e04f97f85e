//go:build !e2efull

package envtest

// How many memory pods of a pool are refused in TestManyRefusedMemoryPods: all numbers were given
// out before it begins.
const (
	refusedBefore = 1024
	refusals      = 96
)
