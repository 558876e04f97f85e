//go:build ibv

package ibv

import "github.com/dmindex/dmindex/pkg/verbs"

// SetCallers bounds the queue pairs that take calls, and gives back the bound that was before.
func SetCallers(n int) (was int) {
	was = int(callMemory / callBytes)
	callMemory = int64(n) * callBytes
	return was
}

// CallersOf is how many queue pairs of a server take calls.
func CallersOf(s verbs.Server) int { return int(s.(*server).callMemory.Load() / callBytes) }
