package backup

import (
	"bytes"
	"crypto/md5"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/dumpfile"
)

const bucket = "dumps"

// s3Server is an S3 server with faults: fault is asked before each request, and answers it if it
// returns true.
type s3Server struct {
	t       *testing.T
	url, ca string
	backend *s3mem.Backend
	next    http.Handler

	mu    sync.Mutex
	fault func(w http.ResponseWriter, r *http.Request) bool
	seen  []string // methods and queries
}

func newS3Server(t *testing.T) *s3Server {
	t.Helper()
	s := &s3Server{t: t, backend: s3mem.New()}
	if err := s.backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	s.next = gofakes3.New(s.backend).Server()
	// With TLS: without it, parts are signed piece by piece, which this server does not know.
	server := httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	s.url = server.URL
	s.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return s
}

func (s *s3Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fault := s.fault
	s.seen = append(s.seen, r.Method+" "+r.URL.RawQuery)
	s.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	if r.Method == http.MethodPost && r.Header.Get("If-None-Match") == "*" && len(s.objects()) > 0 {
		// gofakes3 knows the condition of objects that come in one piece only
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	s.next.ServeHTTP(w, r)
}

// inject sets the fault; nil = none.
func (s *s3Server) inject(fault func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.seen = fault, nil
}

// requests counts those since the last inject.
func (s *s3Server) requests(method, query string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		if strings.HasPrefix(r, method+" ") && strings.Contains(r, query) {
			n++
		}
	}
	return n
}

func (s *s3Server) store(change func(*S3Config)) *S3 {
	s.t.Helper()
	dir := s.t.TempDir()
	for name, text := range map[string]string{config.S3AccessKey: "access", config.S3SecretKey: "secret\n", config.S3CA: s.ca} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	c := S3Config{Endpoint: s.url, Bucket: bucket, Region: "us-east-1", CredentialsDir: dir, partBytes: 5 << 20, pause: time.Millisecond, retries: 3}
	if change != nil {
		change(&c)
	}
	store, err := OpenS3(c)
	if err != nil {
		s.t.Fatal(err)
	}
	return store
}

// objects are the names of what is in the bucket.
func (s *s3Server) objects() (names []string) {
	s.t.Helper()
	list, err := s.backend.ListBucket(bucket, nil, gofakes3.ListBucketPage{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, o := range list.Contents {
		names = append(names, o.Key)
	}
	return names
}

// bigIndex is an index whose dump has several parts.
func bigIndex() *fakeIndex {
	f := newFake(0)
	for i := range 3000 {
		f.pairs[fmt.Sprintf("key/%06d", i)] = strings.Repeat(fmt.Sprintf("%08d", i), 512)
	}
	return f
}

func unavailable(w http.ResponseWriter) bool {
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, `<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>later</Message></Error>`)
	return true
}

// cut ends the connection in the middle of an answer, or before one.
func cut() bool { panic(http.ErrAbortHandler) }

func TestS3(t *testing.T) {
	server := newS3Server(t)
	s := server.store(nil)
	index := bigIndex()
	first, err := Create(t.Context(), index, s, artifact, description, quiet)
	if err != nil || first.Keys != 3000 {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := Create(t.Context(), index, s, artifact, description, quiet)
	if err != nil || again != first || index.scans != 1 {
		t.Errorf("the second attempt reported %+v, %v after %d scans", again, err, index.scans)
	}
	for range 2 {
		if err := s.Delete(t.Context(), artifact); err != nil {
			t.Error(err)
		}
	}
	if _, err := Verify(t.Context(), s, artifact, ""); !errors.Is(err, ErrNoArtifact) {
		t.Errorf("verify what is not there: %v", err)
	}
	empty, err := Create(t.Context(), newFake(0), s, artifact, description, quiet)
	if err != nil || empty.Keys != 0 || empty.Bytes == 0 {
		t.Errorf("an empty index: %+v, %v", empty, err)
	}
}

// TestS3Busy: a server that is busy, and connections that are cut before an answer, delay a backup.
func TestS3Busy(t *testing.T) {
	server := newS3Server(t)
	s := server.store(nil)
	count, mu := 0, sync.Mutex{}
	server.inject(func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		count++
		switch count % 4 {
		case 1:
			return unavailable(w)
		case 2:
			if r.Method != http.MethodPost { // whose effect the library could not know
				return cut()
			}
		}
		return false
	})
	if r, err := Create(t.Context(), bigIndex(), s, artifact, description, quiet); err != nil || r.Keys != 3000 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestS3ReadIsCut: a read that is cut goes on where it was, and ends with an error if it gets
// nowhere.
func TestS3ReadIsCut(t *testing.T) {
	server := newS3Server(t)
	s := server.store(nil)
	want, err := Create(t.Context(), bigIndex(), s, artifact, description, quiet)
	if err != nil {
		t.Fatal(err)
	}
	const piece = 1 << 20
	server.inject(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		answer := httptest.NewRecorder()
		server.next.ServeHTTP(answer, r)
		for key, values := range answer.Header() {
			w.Header()[key] = values
		}
		w.WriteHeader(answer.Code)
		body := answer.Body.Bytes()
		if len(body) <= piece {
			_, _ = w.Write(body)
			return true
		}
		_, _ = w.Write(body[:piece])
		return cut()
	})
	if r, err := Verify(t.Context(), s, artifact, want.Digest); err != nil || r != want {
		t.Errorf("%+v, %v", r, err)
	}
	if n := server.requests(http.MethodGet, ""); n < 5 {
		t.Errorf("%d reads", n)
	}
	server.inject(func(_ http.ResponseWriter, r *http.Request) bool { return r.Method == http.MethodGet && cut() })
	s = server.store(func(c *S3Config) { c.retries = 1 })
	if _, err := Verify(t.Context(), s, artifact, want.Digest); err == nil || !strings.Contains(err.Error(), "at byte 0") {
		t.Errorf("a server that sends nothing: %v", err)
	}
}

// TestS3UploadFails: an upload that cannot be completed leaves neither an object nor an upload.
func TestS3UploadFails(t *testing.T) {
	server := newS3Server(t)
	s := server.store(nil)
	index := bigIndex()
	index.scanErr, index.scanned = io.ErrUnexpectedEOF, 2000
	if _, err := Create(t.Context(), index, s, artifact, description, quiet); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a scan that failed: %v", err)
	}
	if got := server.objects(); len(got) != 0 {
		t.Errorf("in the bucket are %v", got)
	}
	index.scanErr = nil
	server.inject(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && r.URL.Query().Get("partNumber") == "2" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `<?xml version="1.0"?><Error><Code>QuotaExceeded</Code><Message>the bucket is full</Message></Error>`)
			return true
		}
		return false
	})
	if _, err := Create(t.Context(), index, s, artifact, description, quiet); err == nil || !strings.Contains(err.Error(), "the bucket is full") {
		t.Errorf("a bucket that is full: %v", err)
	}
	if n := server.requests(http.MethodDelete, "uploadId="); n != 1 {
		t.Errorf("%d uploads were aborted", n)
	}
	if got := server.objects(); len(got) != 0 {
		t.Errorf("in the bucket are %v", got)
	}
	server.inject(nil)
	if _, err := Create(t.Context(), index, s, artifact, description, quiet); err != nil {
		t.Error(err)
	}
}

// TestS3AbortsUploads: what a process that died had begun to upload is aborted by the next attempt.
func TestS3AbortsUploads(t *testing.T) {
	server := newS3Server(t)
	s := server.store(nil)
	begun, err := s.core.NewMultipartUpload(t.Context(), bucket, artifact, s3PutOptions(s))
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.core.NewMultipartUpload(t.Context(), bucket, artifact+".other", s3PutOptions(s))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), newFake(3), s, artifact, description, quiet); err != nil {
		t.Fatal(err)
	}
	list, err := s.core.ListMultipartUploads(t.Context(), bucket, "", "", "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Uploads) != 1 || list.Uploads[0].UploadID != other {
		t.Errorf("uploads %+v; want %s only, not %s", list.Uploads, other, begun)
	}
}

// TestS3KeepsTheFirst: of two attempts at the same time the second one to end fails.
func TestS3KeepsTheFirst(t *testing.T) {
	server := newS3Server(t)
	s := server.store(nil)
	var first config.BackupReport
	err := s.Create(t.Context(), artifact, func(w io.Writer) (err error) {
		first, err = Create(t.Context(), newFake(3), server.store(nil), artifact, description, quiet)
		return err
	})
	if !errors.Is(err, errComplete) {
		t.Errorf("the second attempt: %v", err)
	}
	if _, err := Verify(t.Context(), s, artifact, first.Digest); err != nil {
		t.Error(err)
	}
}

// TestS3Damages: an object that is not what was uploaded is found when it is read back, and
// deleted.
func TestS3Damages(t *testing.T) {
	server := newS3Server(t)
	s := server.store(nil)
	var kept []byte
	server.inject(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || kept != nil || r.URL.RawQuery != "" {
			return false
		}
		o, err := server.backend.GetObject(bucket, artifact, nil)
		if err != nil {
			return false
		}
		kept, _ = io.ReadAll(o.Contents)
		kept[len(kept)/2] ^= 1
		sum := md5.Sum(kept)
		if bytes.Equal(sum[:], o.Hash) {
			t.Error("nothing was damaged")
		}
		// The same tag: a disk that changed, and not a new object.
		o.Hash = sum[:]
		if _, err := server.backend.PutObject(bucket, artifact, o.Metadata, bytes.NewReader(kept), int64(len(kept)), nil); err != nil {
			t.Error(err)
		}
		r.Header.Del("If-Match")
		return false
	})
	if _, err := Create(t.Context(), newFake(1000), s, artifact, description, quiet); !errors.Is(err, dumpfile.ErrDamaged) {
		t.Errorf("a server that damages what it keeps: %v", err)
	}
	if got := server.objects(); len(got) != 0 {
		t.Errorf("in the bucket are %v", got)
	}
}

func TestS3Config(t *testing.T) {
	f := func(want string, c S3Config) {
		t.Helper()
		if _, err := OpenS3(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	f("write a URL", S3Config{Endpoint: "s3.example.com"})
	f("write a URL", S3Config{Endpoint: "https://s3.example.com/bucket"})
	f("AWS_ACCESS_KEY_ID", S3Config{Endpoint: "https://s3.example.com", CredentialsDir: t.TempDir()})
	f("write a URL such as http://proxy.example.com:3128", S3Config{Endpoint: "https://s3.example.com", CredentialsDir: credentialsDir(t), Proxy: "proxy:3128"})
	server := newS3Server(t)
	stranger := server.store(func(c *S3Config) {
		if err := os.Remove(filepath.Join(c.CredentialsDir, config.S3CA)); err != nil {
			t.Error(err)
		}
	})
	if _, err := Verify(t.Context(), stranger, artifact, ""); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server with the certificate of an unknown authority: %v", err)
	}
	missing := server.store(func(c *S3Config) { c.Bucket = "missing" })
	if _, err := Create(t.Context(), newFake(1), missing, artifact, description, quiet); err == nil || errors.Is(err, ErrNoArtifact) {
		t.Errorf("a bucket that is not there: %v", err)
	}
}

func s3PutOptions(s *S3) minio.PutObjectOptions {
	return minio.PutObjectOptions{PartSize: uint64(s.config.partBytes)}
}

// denied answers as S3 does to credentials without a right.
func denied(w http.ResponseWriter, code string) bool {
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, `<?xml version="1.0"?><Error><Code>`+code+`</Code><Message>`+code+` is the answer</Message></Error>`)
	return true
}
