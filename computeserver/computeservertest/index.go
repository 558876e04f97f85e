package computeservertest

import (
	"time"

	"github.com/dmindex/dmindex/api/config"
)

// Index is the identity of the index that servers in tests serve.
const Index = "uid-1"

// Config is that index, of byte keys.
func Config(routing string) *config.Index {
	return &config.Index{
		Identity: Index, Name: "idx", Namespace: "ns", Design: "memory", KeyType: config.KeyBytes, MaxKeyBytes: 512, MaxValueBytes: 2048,
		Durability: "Memory", Routing: routing, MemoryServers: []config.MemoryServer{{ID: 1, Control: "mem-0:7471"}},
	}
}

// Standstill is what these servers take for a standstill: no machine stands still for so long.
const Standstill = time.Hour
