//env:real calls to a memory server

package computeserver

import (
	"context"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// memoryMaps reads the partition map from the index's home memory server.
type memoryMaps struct {
	memory rpcv1.MemoryClient
	index  string
	ctx    context.Context
	cancel context.CancelFunc
}

// MapsFrom is the map source of an index whose home server is memory. Close ends its long polls.
func MapsFrom(memory rpcv1.MemoryClient, index string) interface {
	MapSource
	Close()
} {
	ctx, cancel := context.WithCancel(context.Background())
	return &memoryMaps{memory: memory, index: index, ctx: ctx, cancel: cancel}
}

// mapCallSlack is how much longer than its wait a long poll may take.
const mapCallSlack = 10 * time.Second

func (s *memoryMaps) Map(newerThan uint64, wait time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(s.ctx, wait+mapCallSlack)
	defer cancel()
	reply, err := s.memory.GetMap(ctx, &rpcv1.GetMapRequest{
		Index: s.index, NewerThan: newerThan, WaitMilliseconds: uint32(wait / time.Millisecond),
	})
	if err != nil {
		return nil, err
	}
	return reply.Map, nil
}

func (s *memoryMaps) Close() { s.cancel() }
