package backup

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/dmindex/dmindex/api/config"
)

// S3Config says which bucket a store is, and with which credentials.
type S3Config struct {
	Endpoint string // URL; http is without TLS
	Bucket   string
	Region   string // empty = the server says
	// Proxy is the URL of an HTTP proxy; empty = as the environment says, which is how programs of
	// others find theirs.
	Proxy string
	// CredentialsDir has the files config.S3AccessKey and config.S3SecretKey, and may have
	// config.S3SessionToken and config.S3CA.
	CredentialsDir string

	partBytes int           // of an upload; 0 = as the constant
	pause     time.Duration // before a read goes on; 0 = readPause
	retries   int           // of a request; 0 = the library's
}

const (
	// readTries is how often a read goes on in a row without getting a byte further.
	readTries = 5
	readPause = time.Second
)

// S3 is a Store of objects in a bucket.
//
// An object is there once its upload is completed, so nobody reads half of one. An upload that
// fails is aborted. That of a process that died is aborted by the next attempt at the same name, as
// far as the credentials may list uploads. They need s3:GetObject, s3:PutObject, s3:DeleteObject
// and s3:AbortMultipartUpload, and no right to list anything. Requests that fail are tried again by
// the library; reads that are cut go on where they were, in the same version of the object.
type S3 struct {
	core   minio.Core
	bucket string
	config S3Config
}

// OpenS3 makes a store of a bucket. It asks nothing of the server yet.
func OpenS3(c S3Config) (*S3, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("S3 endpoint %q: write a URL without a path, such as https://s3.example.com", c.Endpoint)
	}
	secret := s3Secret{c.CredentialsDir}
	if _, err := secret.Retrieve(); err != nil {
		return nil, err
	}
	transport, err := minio.DefaultTransport(u.Scheme == "https")
	if err != nil {
		return nil, err
	}
	if c.Proxy != "" {
		proxy, err := url.Parse(c.Proxy)
		if err != nil || proxy.Host == "" || proxy.Scheme != "http" && proxy.Scheme != "https" {
			return nil, fmt.Errorf("proxy %q of the S3 server: write a URL such as http://proxy.example.com:3128", c.Proxy)
		}
		transport.Proxy = http.ProxyURL(proxy)
	}
	switch ca, err := secret.read(c.CredentialsDir, config.S3CA, false); {
	case err != nil:
		return nil, err
	case ca != "" && transport.TLSClientConfig != nil:
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(ca)) {
			return nil, fmt.Errorf("%s of the Secret with the credentials of S3 has no certificate: write PEM", config.S3CA)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds: credentials.New(secret), Secure: u.Scheme == "https", Region: c.Region, Transport: s3Transport{transport}, MaxRetries: c.retries,
	})
	if err != nil {
		return nil, fmt.Errorf("S3 endpoint %s: %w", c.Endpoint, err)
	}
	if c.partBytes == 0 {
		c.partBytes = partBytes
	}
	if c.pause == 0 {
		c.pause = readPause
	}
	return &S3{core: minio.Core{Client: client}, bucket: c.Bucket, config: c}, nil
}

// Close is for symmetry with Directory.
func (*S3) Close() error { return nil }

// Open is Store's.
func (s *S3) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	info, err := s.stat(ctx, name)
	if err != nil {
		return nil, err
	}
	return &s3Reader{ctx: ctx, s: s, name: name, etag: info.ETag, size: info.Size}, nil
}

// stat looks for an artifact. The error wraps ErrNoArtifact if there is none. S3 says so (404) only
// to credentials that may list the bucket (s3:ListBucket). Others are denied the object (403), as
// if they might not read it: the error wraps ErrNotShown.
func (s *S3) stat(ctx context.Context, name string) (minio.ObjectInfo, error) {
	info, err := s.core.Client.StatObject(ctx, s.bucket, name, minio.StatObjectOptions{})
	if r := minio.ToErrorResponse(err); r.StatusCode == http.StatusForbidden || r.StatusCode == http.StatusBadRequest {
		err = s.refusal(ctx, name, err)
	}
	switch minio.ToErrorResponse(err).Code {
	case minio.NoSuchKey:
		err = fmt.Errorf("%w: %w", ErrNoArtifact, err)
	case minio.AccessDenied:
		err = fmt.Errorf("%w: the server denies %s in bucket %s. Either there is none, or the credentials lack s3:GetObject; with s3:ListBucket the server would say which (%w)", ErrNotShown, name, s.bucket, err)
	}
	return info, err
}

// refusal asks once more why a server refused to say anything of an object: the answer to HEAD has
// no body, and keys that are wrong or over look there like rights that lack.
func (s *S3) refusal(ctx context.Context, name string, refused error) error {
	body, _, _, err := s.core.GetObject(ctx, s.bucket, name, minio.GetObjectOptions{})
	if err != nil {
		return err
	}
	body.Close() // it was not read
	return refused
}

// explainDenied adds to the refusal of a request which right it needs.
func (s *S3) explainDenied(err error, right, name string) error {
	if minio.ToErrorResponse(err).Code == minio.AccessDenied {
		return fmt.Errorf("%w: give the credentials %s on %s/%s", err, right, s.bucket, name)
	}
	return err
}

// Delete is Store's. The server answers alike whether there was an object.
func (s *S3) Delete(ctx context.Context, name string) error {
	if err := s.clean(ctx, name); err != nil {
		return err
	}
	return s.explainDenied(s.core.Client.RemoveObject(ctx, s.bucket, name, minio.RemoveObjectOptions{}), "s3:DeleteObject", name)
}

// clean aborts uploads of a name. Credentials that may not look for them
// (s3:ListBucketMultipartUploads) or not abort them leave them to the rules of the bucket.
func (s *S3) clean(ctx context.Context, name string) error {
	err := s.core.Client.RemoveIncompleteUpload(ctx, s.bucket, name)
	switch r := minio.ToErrorResponse(err); {
	case err == nil, r.StatusCode == http.StatusForbidden, r.StatusCode == http.StatusNotImplemented, r.Code == minio.AccessDenied, r.Code == minio.NoSuchUpload:
		return nil
	}
	return fmt.Errorf("abort unfinished uploads of %s: %w", name, err)
}

// s3Reader reads an object, and goes on where it was when it is cut.
type s3Reader struct {
	ctx  context.Context
	s    *S3
	name string
	etag string
	size int64

	at   int64 // next byte
	body io.ReadCloser
}

func (r *s3Reader) Read(p []byte) (int, error) {
	var last error
	for range readTries {
		if r.at >= r.size {
			return 0, io.EOF
		}
		if last != nil {
			select {
			case <-time.After(r.s.config.pause):
			case <-r.ctx.Done():
				return 0, r.ctx.Err()
			}
		}
		if r.body == nil {
			if last = r.open(); last != nil {
				if minio.ToErrorResponse(last).StatusCode == http.StatusPreconditionFailed {
					return 0, fmt.Errorf("%s was replaced while it was read: %w", r.name, last)
				}
				continue
			}
		}
		n, err := r.body.Read(p)
		r.at += int64(n)
		if err != nil {
			last = err
			if errors.Is(err, io.EOF) {
				last = io.ErrUnexpectedEOF // else it would be at its end
			}
			r.body.Close() // it is of no use any more
			r.body = nil
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, fmt.Errorf("read %s at byte %d of %d, %d times: %w", r.name, r.at, r.size, readTries, last)
}

func (r *s3Reader) open() (err error) {
	var o minio.GetObjectOptions
	if err := errors.Join(o.SetMatchETag(r.etag), o.SetRange(r.at, r.size-1)); err != nil {
		return err
	}
	r.body, _, _, err = r.s.core.GetObject(r.ctx, r.s.bucket, r.name, o)
	return r.s.explainDenied(err, "s3:GetObject", r.name)
}

func (r *s3Reader) Close() error {
	if r.body == nil {
		return nil
	}
	return r.body.Close()
}
