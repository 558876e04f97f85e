package bench

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
)

// prepare opens the index and loads it. Where ranges have owners, or the cache is to be a share of
// what was loaded, the index is then opened anew: caches are empty before the warm-up.
func (b *bencher) prepare() error {
	if err := b.open(b.run.CacheBytes); err != nil {
		return err
	}
	b.cache = b.run.CacheBytes
	if b.owners == nil && b.run.CachePercent == 0 {
		return b.load()
	}
	take := b.spread
	if b.run.BulkLoad {
		take = b.monopolize
	}
	if err := take(); err != nil {
		return err
	}
	if err := b.load(); err != nil {
		return err
	}
	if b.run.CachePercent > 0 {
		leaves, bytes, err := b.leaves()
		if err != nil {
			return err
		}
		b.cache = int(b.run.CachePercent / 100 * float64(leaves) * float64(bytes))
	}
	if err := errors.Join(b.release(), b.closeMembers()); err != nil {
		return err
	}
	if err := b.open(b.cache); err != nil {
		return err
	}
	return b.spread()
}

// open opens the index on all compute servers.
func (b *bencher) open(cache int) error {
	for i := range b.run.ComputeServers {
		m, err := b.cluster.open(i, b.run.options(cache))
		if err != nil {
			return fmt.Errorf("compute server %d: %w", i+1, err)
		}
		b.members = append(b.members, m)
	}
	return nil
}

func (b *bencher) closeMembers() error {
	var errs []error
	for _, m := range b.members {
		errs = append(errs, m.close())
	}
	b.members = nil
	return errors.Join(errs...)
}

// leaves are how many there are, and the bytes of the largest.
func (b *bencher) leaves() (n, bytes int, err error) {
	s, ok := b.members[0].Index.(index.Surveyor)
	if !ok {
		return 0, 0, fmt.Errorf("design %s does not say what its leaves are: give --cache-bytes", b.run.Design)
	}
	err = b.inServer(0, "survey", func() error {
		return s.Survey(func(_ []byte, size int) error {
			n, bytes = n+1, max(bytes, size)
			return nil
		})
	})
	return n, bytes, err
}
