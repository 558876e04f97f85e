package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/dumpfile"
)

// identity makes an identity of age.
func identity(t *testing.T) *age.X25519Identity {
	t.Helper()
	made, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// encryptedWith is a store whose Secret has that text.
func encryptedWith(t *testing.T, s Store, text string) (Store, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, config.BackupIdentities), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Encrypt(s, dir)
}

// TestEncrypted: an artifact shows nothing of the index, is restored with each identity that the
// Secret has had first, also by age itself, and with no other one.
func TestEncrypted(t *testing.T) {
	d, dir := newDirectory(t)
	pq, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	old := identity(t)
	for _, first := range []string{old.String(), pq.String()} {
		name := artifact + first[len(first)-4:]
		s, err := encryptedWith(t, d, "# made today\n"+first+"\n")
		if err != nil {
			t.Fatal(err)
		}
		index := newFake(3000)
		report, err := Create(t.Context(), index, s, name, description, quiet)
		if err != nil || report.Keys != 3000 {
			t.Fatalf("%+v, %v", report, err)
		}
		if again, err := Create(t.Context(), index, s, name, description, quiet); err != nil || again != report || index.scans != 1 {
			t.Errorf("the second attempt: %+v, %v after %d scans", again, err, index.scans)
		}
		stored, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || bytes.Contains(stored, []byte("value of 7")) || bytes.Contains(stored, []byte("DMDUMP")) {
			t.Errorf("the file shows what is in it, or cannot be read: %v", err)
		}
		// a new identity before the former one
		rotated, err := encryptedWith(t, d, identity(t).String()+"\n"+first+"\n")
		if err != nil {
			t.Fatal(err)
		}
		loaded := newFake(0)
		if _, err := Restore(t.Context(), loaded, rotated, name, report.Digest, quiet); err != nil || len(loaded.pairs) != 3000 {
			t.Errorf("restored %d pairs, %v", len(loaded.pairs), err)
		}
		ids, err := age.ParseIdentities(strings.NewReader(first))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := age.Decrypt(bytes.NewReader(stored), ids...)
		if err != nil {
			t.Fatal(err)
		}
		if head, err := io.ReadAll(plain); err != nil || int64(len(head)) != report.Bytes || !bytes.HasPrefix(head, []byte("DMDUMP")) {
			t.Errorf("age reads %d bytes of %d, %v", len(head), report.Bytes, err)
		}
	}
}

// TestEncryptedIsKept: an artifact that cannot be decrypted, or not be read now, is neither deleted
// nor dumped again; one that is damaged is.
func TestEncryptedIsKept(t *testing.T) {
	d, dir := newDirectory(t)
	first := identity(t)
	s, err := encryptedWith(t, d, first.String())
	if err != nil {
		t.Fatal(err)
	}
	report, err := Create(t.Context(), newFake(3000), s, artifact, description, quiet)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, artifact)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kept := func(what string, s Store, want string) {
		t.Helper()
		index := newFake(3)
		if _, err := Create(t.Context(), index, s, artifact, description, quiet); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, dumpfile.ErrDamaged) || index.scans != 0 {
			t.Errorf("%s: %v after %d scans, want %q", what, err, index.scans, want)
		}
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, whole) {
			t.Errorf("%s: the file is another one, or gone: %v", what, err)
		}
	}
	other, err := encryptedWith(t, d, identity(t).String())
	if err != nil {
		t.Fatal(err)
	}
	kept("another identity", other, "add the one that it was made with")
	for _, at := range []int64{10, int64(len(whole) / 2)} {
		cut, err := encryptedWith(t, breaking{d, at}, first.String())
		if err != nil {
			t.Fatal(err)
		}
		kept("a connection that breaks", cut, errBroken.Error())
	}

	for name, change := range map[string]func(b []byte) []byte{
		"changed":           func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"changed head":      func(b []byte) []byte { b[3] ^= 1; return b },
		"cut":               func(b []byte) []byte { return b[:len(b)-20] },
		"cut at its head":   func(b []byte) []byte { return b[:30] },
		"longer":            func(b []byte) []byte { return append(b, 0) },
		"a dump in plain":   func([]byte) []byte { return []byte("DMDUMP\x00\x04") },
		"nothing, as it is": func([]byte) []byte { return nil },
	} {
		if err := os.WriteFile(file, change(bytes.Clone(whole)), 0o640); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(t.Context(), s, artifact, report.Digest); !errors.Is(err, dumpfile.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		index := newFake(5)
		if again, err := Create(t.Context(), index, s, artifact, description, quiet); err != nil || again.Keys != 5 {
			t.Errorf("%s: %+v, %v", name, again, err)
		}
	}
}

var errBroken = errors.New("the connection broke")

// breaking reads so many bytes of an artifact.
type breaking struct {
	Store
	at int64
}

func (b breaking) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	in, err := b.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &brokenReader{in, b.at}, nil
}

type brokenReader struct {
	io.ReadCloser
	left int64
}

func (b *brokenReader) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errBroken
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// TestEncryptRefuses: what is no file of identities is refused, with what to write.
func TestEncryptRefuses(t *testing.T) {
	d, _ := newDirectory(t)
	for _, text := range []string{"", "# nothing\n", "secret", identity(t).Recipient().String()} {
		if _, err := encryptedWith(t, d, text); err == nil || !strings.Contains(err.Error(), "age-keygen") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Encrypt(d, t.TempDir()); err == nil || !strings.Contains(err.Error(), "Secret") {
		t.Errorf("no file: %v", err)
	}
}
