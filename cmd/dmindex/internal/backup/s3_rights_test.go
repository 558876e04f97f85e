package backup

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
)

// s3Action is the right that a request needs, as S3 names it.
func s3Action(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case q.Has("location"):
		return "s3:GetBucketLocation"
	case q.Has("uploads") && r.Method == http.MethodGet:
		return "s3:ListBucketMultipartUploads"
	case q.Has("uploadId") && r.Method == http.MethodDelete:
		return "s3:AbortMultipartUpload"
	case r.Method == http.MethodDelete:
		return "s3:DeleteObject"
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		return "s3:GetObject"
	}
	return "s3:PutObject"
}

// grant lets requests through that need one of some rights. Without s3:ListBucket, what is not
// there is denied like what may not be read. Requests for objects that are not there come to the
// server, whose answer is changed.
func (s *s3Server) grant(rights ...string) {
	may := map[string]bool{}
	for _, right := range rights {
		may[right] = true
	}
	s.inject(func(w http.ResponseWriter, r *http.Request) bool {
		action := s3Action(r)
		if may[action] && (action != "s3:GetObject" || may["s3:ListBucket"] || len(s.objects()) > 0) {
			return false
		}
		return denied(w, "AccessDenied")
	})
}

// minimal are the rights that the documentation asks for.
var minimal = []string{"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"}

// TestS3MinimalRights: credentials that may list nothing make, find, restore and delete backups,
// and clean up behind an attempt that failed.
func TestS3MinimalRights(t *testing.T) {
	server := newS3Server(t)
	s := server.store(func(c *S3Config) { c.Region = "" })
	server.grant(minimal...)
	failing := newFake(3)
	failing.scanErr, failing.scanned = io.ErrUnexpectedEOF, 2
	if _, err := Create(t.Context(), failing, s, artifact, description, quiet); !errors.Is(err, io.ErrUnexpectedEOF) || server.requests(http.MethodDelete, "uploadId=") != 1 {
		t.Errorf("a scan that failed: %v", err)
	}
	index := newFake(3)
	for range 2 {
		if r, err := Create(t.Context(), index, s, artifact, description, quiet); err != nil || r.Keys != 3 || index.scans != 1 {
			t.Errorf("%+v, %v after %d scans", r, err, index.scans)
		}
	}
	for range 2 {
		if err := s.Delete(t.Context(), artifact); err != nil {
			t.Error(err)
		}
	}
	if _, err := Verify(t.Context(), s, artifact, ""); !errors.Is(err, ErrNotShown) || !strings.Contains(err.Error(), "there is none, or the credentials lack s3:GetObject") {
		t.Errorf("what is not there: %v", err)
	}
}

// TestS3LacksRights: each right that lacks is named, and nothing that is there is replaced.
func TestS3LacksRights(t *testing.T) {
	server := newS3Server(t)
	s := server.store(nil)
	for _, lacks := range minimal {
		var rights []string
		for _, right := range minimal {
			if right != lacks {
				rights = append(rights, right)
			}
		}
		server.grant(rights...)
		index := newFake(3)
		if lacks == "s3:AbortMultipartUpload" {
			index.scanErr, index.scanned = io.ErrUnexpectedEOF, 2
		}
		_, err := Create(t.Context(), index, s, artifact, description, quiet)
		if lacks == "s3:DeleteObject" {
			err = errors.Join(err, s.Delete(t.Context(), artifact))
		}
		if err == nil || !strings.Contains(err.Error(), lacks) {
			t.Errorf("without %s: %v", lacks, err)
		}
		if lacks == "s3:GetObject" {
			first := server.objects()
			if _, err := Create(t.Context(), newFake(9), s, artifact, description, quiet); !errors.Is(err, errComplete) || !strings.Contains(err.Error(), lacks) {
				t.Errorf("over an artifact that may not be read: %v", err)
			}
			server.inject(nil)
			if r, err := Verify(t.Context(), s, artifact, ""); err != nil || r.Keys != 3 {
				t.Errorf("%v had 3 keys, and has %+v, %v", first, r, err)
			}
		}
		server.inject(nil)
		if err := s.Delete(t.Context(), artifact); err != nil {
			t.Error(err)
		}
	}
	server.inject(func(w http.ResponseWriter, _ *http.Request) bool { return denied(w, "InvalidAccessKeyId") })
	if _, err := Verify(t.Context(), s, artifact, ""); err == nil || errors.Is(err, ErrNotShown) || !strings.Contains(err.Error(), "InvalidAccessKeyId is the answer") {
		t.Errorf("keys that are wrong: %v", err)
	}
}

// TestS3WithoutConditions: a server that refuses the condition on which an upload is completed is
// asked whether there is an object. One that does not tell has it refused.
func TestS3WithoutConditions(t *testing.T) {
	server := newS3Server(t)
	s := server.store(nil)
	// One that refuses the request for another reason is not asked to do without.
	server.inject(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `<?xml version="1.0"?><Error><Code>ExpiredToken</Code></Error>`)
			return true
		}
		return false
	})
	once := server.store(func(c *S3Config) { c.retries = 1 })
	if _, err := Create(t.Context(), newFake(3), once, artifact, description, quiet); err == nil || len(server.objects()) > 0 {
		t.Errorf("a token that is over: %v, and %d objects", err, len(server.objects()))
	}
	withoutConditions := func(tells bool) {
		server.inject(func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case r.Method == http.MethodPost && r.Header.Get("If-None-Match") != "":
				w.WriteHeader(http.StatusNotImplemented)
				return true
			case s3Action(r) == "s3:GetObject" && !tells:
				return denied(w, "AccessDenied")
			}
			return false
		})
	}
	withoutConditions(true)
	if r, err := Create(t.Context(), newFake(3), s, artifact, description, quiet); err != nil || r.Keys != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	withoutConditions(false)
	if _, err := Create(t.Context(), newFake(9), s, artifact, description, quiet); err == nil || !strings.Contains(err.Error(), "complete the upload") {
		t.Errorf("over an object that may not be read: %v", err)
	}
	withoutConditions(true)
	if r, err := Verify(t.Context(), s, artifact, ""); err != nil || r.Keys != 3 {
		t.Errorf("the first one has %+v, %v", r, err)
	}
}

// TestS3TokenIsReplaced: temporary keys that are replaced in their Secret while an upload goes on
// are used from then on.
func TestS3TokenIsReplaced(t *testing.T) {
	server := newS3Server(t)
	var dir string
	s := server.store(func(c *S3Config) { dir = c.CredentialsDir })
	mount := func(token string) {
		version := filepath.Join(dir, "..version-"+token)
		err := os.Mkdir(version, 0o700)
		for name, text := range map[string]string{config.S3AccessKey: "access-" + token, config.S3SecretKey: "secret", config.S3SessionToken: token} {
			err = errors.Join(err, os.WriteFile(filepath.Join(version, name), []byte(text), 0o600))
		}
		err = errors.Join(err, os.Symlink(version, filepath.Join(dir, "..new")), os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, mounted)))
		if err != nil {
			t.Error(err)
		}
	}
	mount("first")
	valid := "first"
	server.inject(func(w http.ResponseWriter, r *http.Request) bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		if valid == "first" && r.URL.Query().Get("partNumber") == "2" {
			valid = "second"
			mount(valid)
		}
		if r.Header.Get("X-Amz-Security-Token") == valid && strings.Contains(r.Header.Get("Authorization"), "access-"+valid+"/") {
			return false
		}
		return denied(w, "ExpiredToken")
	})
	if r, err := Create(t.Context(), bigIndex(), s, artifact, description, quiet); err != nil || r.Keys != 3000 {
		t.Errorf("%+v, %v", r, err)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if valid != "second" {
		t.Errorf("the upload used %q only", valid)
	}
}

// answersEarly answers a request of which it has read some bytes, and keeps the body.
type answersEarly struct{ body io.Reader }

func (a *answersEarly) RoundTrip(r *http.Request) (*http.Response, error) {
	a.body = r.Body
	_, err := io.ReadFull(r.Body, make([]byte, 3))
	return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, err
}

// TestS3AnswersEarly: what goes on sending a part after the answer gets nothing of it any more: the
// next attempt reads the same part, and all of it.
func TestS3AnswersEarly(t *testing.T) {
	server, part := &answersEarly{}, strings.NewReader("a part")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://s3.example.com", io.NopCloser(part))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s3Transport{server}.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close() // it is empty
	if rest, err := io.ReadAll(server.body); len(rest) > 0 || !errors.Is(err, errAnswered) || part.Len() != 3 {
		t.Errorf("after the answer %q was read, %v; %d bytes are left", rest, err, part.Len())
	}
}

// credentialsDir is a folder with credentials.
func credentialsDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, key := range []string{config.S3AccessKey, config.S3SecretKey} {
		if err := os.WriteFile(filepath.Join(dir, key), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestS3Proxy: a server that only a proxy reaches is reached through it.
func TestS3Proxy(t *testing.T) {
	asked := make(chan string, 100)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.URL.String():
		default:
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	s, err := OpenS3(S3Config{Endpoint: "http://s3.invalid", Bucket: "dumps", Region: "eu", CredentialsDir: credentialsDir(t), Proxy: proxy.URL, retries: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), artifact); err == nil {
		t.Error("what the proxy refuses is there")
	}
	if got := <-asked; !strings.HasPrefix(got, "http://s3.invalid/dumps/") {
		t.Errorf("the proxy is asked for %s", got)
	}
}
