package backup

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// s3Transport takes the body of a request out of use once there is an answer. A server that is busy
// answers before it has read a part, and the connection may go on sending it for a while. The
// library would read the same part again from its beginning for another attempt, and both would
// send pieces of it; the writer of the upload would fill it anew.
type s3Transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t s3Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return t.next.RoundTrip(r)
	}
	b := &s3Body{from: r.Body}
	defer b.end()
	sent := r.WithContext(r.Context())
	sent.Body, sent.GetBody = b, nil
	return t.next.RoundTrip(sent)
}

// s3Body is the body of one attempt. It has no WriteTo, by which a connection would hold the part
// itself.
type s3Body struct {
	mu    sync.Mutex // held while from is read
	from  io.ReadCloser
	ended bool
}

var errAnswered = errors.New("the request was answered before all of it was sent")

func (b *s3Body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return 0, errAnswered
	}
	return b.from.Read(p)
}

func (b *s3Body) Close() error {
	b.end()
	return b.from.Close()
}

func (b *s3Body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}
