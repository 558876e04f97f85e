package backup

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"
)

// errComplete is returned when another attempt completed an artifact meanwhile.
var errComplete = errors.New("another attempt completed the artifact meanwhile")

const (
	// partBytes is how large the parts of an upload are: one of them is in memory, and S3 has
	// 10,000 of them in an object, so an artifact has at most 320 GB.
	partBytes = 32 << 20
	maxParts  = 10_000

	// abortWithin is how long an upload that failed may take to be aborted, also when the time of
	// the whole is over.
	abortWithin = 30 * time.Second
)

// s3Upload is an object whose parts go to the server one by one. Nobody sees it before it is
// complete.
type s3Upload struct {
	ctx      context.Context
	s        *S3
	name, id string
	part     []byte
	parts    []minio.CompletePart
}

// Create is Store's. The upload is completed on the condition that there is no object of the name,
// which the server checks (If-None-Match). A server that does not know the condition is asked
// before: there two attempts may complete within the same moment, and an object that may not be
// read is replaced. No backup is complete by such an object: its content was never read back.
func (s *S3) Create(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := s.clean(ctx, name); err != nil {
		return err
	}
	id, err := s.core.NewMultipartUpload(ctx, s.bucket, name, minio.PutObjectOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return fmt.Errorf("begin the upload: %w", s.explainDenied(err, "s3:PutObject", name))
	}
	u := &s3Upload{ctx: ctx, s: s, name: name, id: id, part: make([]byte, 0, s.config.partBytes)}
	if err = write(u); err == nil {
		err = u.complete()
	}
	if err != nil {
		// Without the right to abort the upload is left to the rules of the bucket.
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
		defer cancel()
		if failed := s.core.AbortMultipartUpload(ending, s.bucket, name, id); failed != nil && minio.ToErrorResponse(failed).Code != minio.NoSuchUpload {
			err = errors.Join(err, fmt.Errorf("abort the upload: %w", s.explainDenied(failed, "s3:AbortMultipartUpload", name)))
		}
	}
	return err
}

// Write sends each part once it is full.
func (u *s3Upload) Write(p []byte) (n int, err error) {
	for n < len(p) {
		take := min(len(p)-n, cap(u.part)-len(u.part))
		u.part = append(u.part, p[n:n+take]...)
		n += take
		if len(u.part) == cap(u.part) {
			if err := u.send(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// send sends what there is of a part, with a sum that the server checks.
func (u *s3Upload) send() error {
	number := len(u.parts) + 1
	if number > maxParts {
		return fmt.Errorf("the artifact has more than %d parts of %d bytes, and S3 takes no more: keep backups of this index on a volume", maxParts, cap(u.part))
	}
	sum := md5.Sum(u.part)
	part, err := u.s.core.PutObjectPart(u.ctx, u.s.bucket, u.name, u.id, number, bytes.NewReader(u.part), int64(len(u.part)),
		minio.PutObjectPartOptions{Md5Base64: base64.StdEncoding.EncodeToString(sum[:])})
	if err != nil {
		return fmt.Errorf("upload part %d: %w", number, u.s.explainDenied(err, "s3:PutObject", u.name))
	}
	u.parts = append(u.parts, minio.CompletePart{PartNumber: number, ETag: part.ETag})
	u.part = u.part[:0]
	return nil
}

// complete sends the rest and makes the object appear.
func (u *s3Upload) complete() error {
	if len(u.part) > 0 {
		if err := u.send(); err != nil {
			return err
		}
	}
	_, there := u.s.stat(u.ctx, u.name)
	if !errors.Is(there, ErrNoArtifact) && !errors.Is(there, ErrNotShown) {
		return errors.Join(errComplete, there)
	}
	var absent minio.PutObjectOptions
	absent.SetMatchETagExcept("*")
	_, err := u.s.core.CompleteMultipartUpload(u.ctx, u.s.bucket, u.name, u.id, u.parts, absent)
	if errors.Is(there, ErrNoArtifact) && knowsNoCondition(err) {
		_, err = u.s.core.CompleteMultipartUpload(u.ctx, u.s.bucket, u.name, u.id, u.parts, minio.PutObjectOptions{})
	}
	switch {
	case err == nil:
		return nil
	case minio.ToErrorResponse(err).StatusCode != http.StatusPreconditionFailed:
		return fmt.Errorf("complete the upload: %w", u.s.explainDenied(err, "s3:PutObject", u.name))
	case errors.Is(there, ErrNotShown):
		return fmt.Errorf("%w, and the credentials may not read it: they need s3:GetObject (%w)", errComplete, err)
	}
	return fmt.Errorf("%w: %w", errComplete, err)
}

// knowsNoCondition reports whether a server may have refused a request for its condition. A token
// that is over and a request that took too long are answered by 400, too, by servers that know it.
func knowsNoCondition(err error) bool {
	switch r := minio.ToErrorResponse(err); r.Code {
	case "ExpiredToken", "ExpiredTokenException", "InvalidToken", "RequestTimeout":
		return false
	default:
		return r.StatusCode == http.StatusNotImplemented || r.StatusCode == http.StatusBadRequest
	}
}
