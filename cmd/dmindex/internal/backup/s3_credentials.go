package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/dmindex/dmindex/api/config"
)

// s3Secret is a mounted Secret with the credentials of S3. Keys that are temporary are replaced in
// it while a long upload goes on, so it is read again for each request: that is three small files
// beside a part of 32 MiB.
type s3Secret struct{ dir string }

// mounted is the link that the kubelet sets anew, in one step, to replace all files of a Secret.
const mounted = "..data"

// readAgain is how often a Secret is read that is replaced while it is read.
const readAgain = 3

// read reads one file; nothing if there is none and it is not required.
func (s s3Secret) read(dir, name string, required bool) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && (required || !errors.Is(err, fs.ErrNotExist)) {
		return "", fmt.Errorf("read the Secret with the credentials of S3: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// RetrieveWithCredContext is the library's. The files are those of one version of the Secret: a key
// of one and the token of another are refused by the server.
func (s s3Secret) RetrieveWithCredContext(*credentials.CredContext) (v credentials.Value, err error) {
	for range readAgain {
		dir, broken := filepath.EvalSymlinks(filepath.Join(s.dir, mounted))
		if broken != nil {
			dir = s.dir // files in a folder of somebody's own
		}
		var access, key, token error
		v.AccessKeyID, access = s.read(dir, config.S3AccessKey, true)
		v.SecretAccessKey, key = s.read(dir, config.S3SecretKey, true)
		v.SessionToken, token = s.read(dir, config.S3SessionToken, false)
		err = errors.Join(access, key, token)
		if now, gone := filepath.EvalSymlinks(filepath.Join(s.dir, mounted)); broken != nil || gone == nil && now == dir {
			break
		}
	}
	v.SignerType = credentials.SignatureV4
	return v, err
}

// Retrieve is the library's.
func (s s3Secret) Retrieve() (credentials.Value, error) { return s.RetrieveWithCredContext(nil) }

// IsExpired is the library's: what it has is read again.
func (s3Secret) IsExpired() bool { return true }
