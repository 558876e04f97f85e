package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/dumpfile"
)

// ErrNoArtifact is returned when a store has no artifact of a name.
var ErrNoArtifact = errors.New("there is no such artifact")

// ErrNotShown is returned when a store hides what it has, if anything, under a name.
var ErrNotShown = errors.New("the artifact is not shown")

// ErrOtherDigest is returned when an artifact is whole, but not the one that is asked for.
var ErrOtherDigest = errors.New("the artifact has another digest")

// Store keeps artifacts. Names are paths with slashes. A store is used by one goroutine at a time.
type Store interface {
	// Create calls write with the writer of a new artifact. The artifact is there under its name
	// only once write has returned nil and the content is durable; if anything fails, and if the
	// process dies, nothing new is there under the name. What earlier attempts at this name left
	// behind is deleted first. An artifact that is there already is not replaced.
	Create(ctx context.Context, name string, write func(io.Writer) error) error

	// Open reads an artifact from its beginning. The error wraps ErrNoArtifact if there is none,
	// and ErrNotShown if the store hides what there is.
	Open(ctx context.Context, name string) (io.ReadCloser, error)

	// Delete deletes an artifact, and what unfinished attempts at its name left behind. It is no
	// error if there is nothing.
	Delete(ctx context.Context, name string) error
}

// counter counts the bytes that are read.
type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// read reads a whole artifact, calls add with its pairs, and compares its digest with the one that
// is wanted, in hex; empty = any. It reports what the artifact is. A caller that must not act on a
// damaged artifact reads it once with an add that does nothing.
func read(ctx context.Context, s Store, name, digest string, add func(client.Pair) error) (config.BackupReport, error) {
	var r config.BackupReport
	in, err := s.Open(ctx, name)
	if err != nil {
		return r, fmt.Errorf("open %s: %w", name, err)
	}
	defer in.Close()
	counted := &counter{Reader: in}
	count, sum, err := dumpfile.Read(counted, func(dumpfile.Description) error { return nil }, func(p client.Pair) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return add(p)
	})
	if err != nil {
		return r, fmt.Errorf("read %s: %w", name, err)
	}
	r = config.BackupReport{Keys: count, Bytes: counted.n, Digest: hex.EncodeToString(sum[:])}
	if digest != "" && digest != r.Digest {
		return r, fmt.Errorf("%w: %s has %.16s..., %.16s... is wanted", ErrOtherDigest, name, r.Digest, digest)
	}
	return r, nil
}

// Verify reads a whole artifact back and reports what it is. The error wraps ErrNoArtifact,
// ErrNotShown, dumpfile.ErrDamaged or ErrOtherDigest if the artifact is not what it should be.
func Verify(ctx context.Context, s Store, name, digest string) (config.BackupReport, error) {
	if digest != "" && len(digest) != 2*sha256.Size {
		return config.BackupReport{}, fmt.Errorf("digest %q: write the %d hexadecimal digits of a SHA-256", digest, 2*sha256.Size)
	}
	return read(ctx, s, name, digest, func(client.Pair) error { return nil })
}
