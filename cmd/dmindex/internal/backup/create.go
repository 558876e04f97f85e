// Package backup writes, verifies, restores and deletes the artifacts of backups: dumps in a
// volume or in a bucket of S3. Every operation can be repeated after it was interrupted anywhere
// (docs/design/backup.md).
package backup

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/dumpfile"
)

// Index is what backups need of an index.
type Index interface {
	Scan(ctx context.Context, start, end []byte, o client.ScanOptions) iter.Seq2[client.Pair, error]
	Load(ctx context.Context, pairs iter.Seq[client.Pair], o client.LoadOptions) (stored uint64, err error)
}

// Create dumps an index to an artifact and reads that back.
//
//  1. An artifact that is there under the name was completed by an earlier attempt. It is read
//     back and reported; nothing is dumped again. One that is damaged is deleted. One that may not
//     be read is not replaced either: 2 fails when it is there.
//  2. The index is dumped. The artifact appears once it is complete and durable.
//  3. The artifact is read back. One that is not what was written is deleted, and the attempt has
//     failed.
//
// So whatever a report says was read from the store after the artifact was complete.
func Create(ctx context.Context, index Index, s Store, name string, d dumpfile.Description, progress func(keys uint64)) (config.BackupReport, error) {
	r, err := Verify(ctx, s, name, "")
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, dumpfile.ErrDamaged):
		if err := s.Delete(ctx, name); err != nil {
			return r, fmt.Errorf("delete the damaged %s: %w", name, err)
		}
	case !errors.Is(err, ErrNoArtifact) && !errors.Is(err, ErrNotShown):
		return r, err
	}
	digest := ""
	err = s.Create(ctx, name, func(w io.Writer) (err error) {
		digest, err = dump(ctx, index, w, d, progress)
		return err
	})
	if err != nil {
		return r, fmt.Errorf("write %s: %w", name, err)
	}
	r, err = Verify(ctx, s, name, digest)
	if errors.Is(err, dumpfile.ErrDamaged) || errors.Is(err, ErrOtherDigest) {
		err = errors.Join(fmt.Errorf("what was read back is not what was written: %w", err), s.Delete(ctx, name))
	}
	return r, err
}

// dump writes every pair of an index and returns the digest.
func dump(ctx context.Context, index Index, out io.Writer, d dumpfile.Description, progress func(keys uint64)) (string, error) {
	w, err := dumpfile.NewWriter(out, d)
	if err != nil {
		return "", err
	}
	var n uint64
	for pair, err := range index.Scan(ctx, nil, nil, client.ScanOptions{}) {
		if err == nil {
			err = w.Add(pair)
		}
		if err != nil {
			return "", err
		}
		n++
		progress(n)
	}
	_, sum, err := w.Close()
	return hex.EncodeToString(sum[:]), err
}
