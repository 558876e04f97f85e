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

// Lose lets the device of a Device or Server be gone, as far as this process is told.
func Lose(of any) {
	switch d := of.(type) {
	case *device:
		d.hca.happened(deviceFatal, 0)
	case *server:
		d.hca.happened(deviceFatal, 0)
	}
}
