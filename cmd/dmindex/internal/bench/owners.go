package bench

import (
	"bytes"
	"math/bits"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// owners says which compute server has which keys, in designs whose ranges have owners: each an
// equal width of the space that keys are scrambled over. There is no protocol about it here, and
// nothing moves while it is measured.
type owners struct {
	keys  workload.Keys
	n     int
	epoch uint64 // of the last grant
	dead  bool   // the last server died, and the one before it has its keys, too
}

// served is how many servers have keys.
func (o *owners) served() int {
	if o.dead {
		return o.n - 1
	}
	return o.n
}

// of is the server that has an item.
func (o *owners) of(item uint64) int { return o.ofNumber(workload.Scramble(item)) }

func (o *owners) ofNumber(x uint64) int {
	server, _ := bits.Mul64(x, uint64(o.n))
	return int(server)
}

// at is the server that has a key, which may be no item's.
func (o *owners) at(key []byte) int {
	if x, err := o.keys.Scrambled(key); err == nil {
		return o.ofNumber(x)
	}
	for server := o.n - 1; server > 0; server-- {
		if bytes.Compare(o.low(server), key) <= 0 {
			return server
		}
	}
	return 0
}

// first is the lowest scrambled number of a server's keys.
func (o *owners) first(server int) uint64 {
	if server == 0 {
		return 0
	}
	low, rest := bits.Div64(uint64(server), 0, uint64(o.n))
	if rest > 0 {
		low++
	}
	return low
}

// low is where the keys of a server begin, high where they end; empty ones are the ends of the key
// space.
func (o *owners) low(server int) []byte {
	if server == 0 {
		return nil
	}
	return o.keys.AppendScrambled(nil, o.first(server))
}

func (o *owners) high(server int) []byte {
	if server+1 == o.n {
		return nil
	}
	return o.low(server + 1)
}

// holding is a grant of what servers from .. up to to have.
func (o *owners) holding(from, to int) pool.Holding {
	o.epoch++
	return pool.Holding{Start: o.low(from), End: o.high(to), Epoch: o.epoch}
}

// inServer calls do on a goroutine of a compute server and waits for it.
func (b *bencher) inServer(server int, name string, do func() error) (err error) {
	g := env.NewWaitGroup(b.cluster.env(server))
	g.Go(name, func() { err = do() })
	g.Wait(env.Forever)
	return err
}

// spread gives every compute server its own keys.
func (b *bencher) spread() error { return b.eachOwn("take", index.Partitioned.Take) }

// release lets every compute server give back what it has, of its own keys: all is written back
// then.
func (b *bencher) release() error {
	return b.eachOwn("give", func(x index.Partitioned, h pool.Holding) error {
		_, err := x.Give(h.Start, h.End)
		return err
	})
}

// eachOwn calls do on every compute server, one after the other, with its own keys, if there is
// such a thing.
func (b *bencher) eachOwn(name string, do func(index.Partitioned, pool.Holding) error) error {
	if b.owners == nil {
		return nil
	}
	for i := range b.run.ComputeServers {
		h, server := b.owners.holding(i, i), min(i, b.owners.served()-1)
		if err := b.inServer(server, name, func() error { return do(b.members[server].owner(), h) }); err != nil {
			return err
		}
	}
	return nil
}

// monopolize lets the first compute server take everything, which nobody has.
func (b *bencher) monopolize() error {
	if b.owners == nil {
		return nil
	}
	return b.inServer(0, "take", func() error { return b.members[0].owner().Take(b.owners.holding(0, b.owners.n-1)) })
}

// owner is the member as an index whose ranges have owners.
func (m *member) owner() index.Partitioned { return m.Index.(index.Partitioned) }
