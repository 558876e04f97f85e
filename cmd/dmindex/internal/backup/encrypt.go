package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"filippo.io/age"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/dumpfile"
)

// encrypted is a store whose artifacts are files of age (age-encryption.org/v1) that have the dump.
type encrypted struct {
	Store
	to   age.Recipient
	with []age.Identity
}

// Encrypt is a store that has artifacts of another one encrypted. The file of identities in dir is
// as age-keygen writes it: artifacts are encrypted to the first identity, and decrypted with
// whichever fits, so that a new one is put before the former ones.
func Encrypt(s Store, dir string) (Store, error) {
	f, err := os.Open(filepath.Join(dir, config.BackupIdentities))
	if err != nil {
		return nil, fmt.Errorf("read the Secret that backups are encrypted with: %w", err)
	}
	defer f.Close()
	e := &encrypted{Store: s}
	if e.with, err = age.ParseIdentities(f); err != nil {
		return nil, fmt.Errorf("%s: write identities of age there, a line each, as age-keygen makes them: %w", config.BackupIdentities, err)
	}
	switch first := e.with[0].(type) {
	case *age.X25519Identity:
		e.to = first.Recipient()
	case *age.HybridIdentity:
		e.to = first.Recipient()
	default:
		return nil, fmt.Errorf("%s: the first identity is of a kind that cannot be encrypted to", config.BackupIdentities)
	}
	return e, nil
}

// Create implements Store.
func (e *encrypted) Create(ctx context.Context, name string, write func(io.Writer) error) error {
	return e.Store.Create(ctx, name, func(out io.Writer) error {
		w, err := age.Encrypt(out, e.to)
		if err != nil {
			return err
		}
		if err := write(w); err != nil {
			return err // without its last part the file is none
		}
		return w.Close()
	})
}

// Open implements Store. An artifact that none of the identities fits is not damaged, and is not
// made anew: whoever has another identity can read it.
func (e *encrypted) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	in, err := e.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	d := &decrypting{in: in, raw: raw{in: in}}
	d.plain, err = age.Decrypt(&d.raw, e.with...)
	if err == nil {
		return d, nil
	}
	var other *age.NoIdentityMatchError
	if err = d.judge(err); errors.As(err, &other) {
		err = fmt.Errorf("it is encrypted to none of the identities: add the one that it was made with to the Secret: %w", other)
	}
	return nil, errors.Join(err, in.Close())
}

// decrypting reads what an artifact has.
type decrypting struct {
	in    io.ReadCloser
	raw   raw
	plain io.Reader
}

// raw reads the file of an artifact, and keeps how that failed.
type raw struct {
	in     io.Reader
	failed error
}

func (r *raw) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	if err != nil && err != io.EOF {
		r.failed = err
	}
	return n, err
}

// judge is why decrypting failed: the file could not be read, or was, and is damaged.
func (d *decrypting) judge(err error) error {
	var other *age.NoIdentityMatchError
	switch {
	case d.raw.failed != nil:
		return d.raw.failed
	case errors.As(err, &other):
		return other
	}
	return fmt.Errorf("%w: it cannot be decrypted: %w", dumpfile.ErrDamaged, err)
}

func (d *decrypting) Read(p []byte) (int, error) {
	n, err := d.plain.Read(p)
	if err != nil && err != io.EOF {
		err = d.judge(err)
	}
	return n, err
}

func (d *decrypting) Close() error { return d.in.Close() }
