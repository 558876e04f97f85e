package profile

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestHandler takes profiles from a server whose other answers may take less time than they do.
func TestHandler(t *testing.T) {
	server := httptest.NewUnstartedServer(Handler())
	server.Config.WriteTimeout = 500 * time.Millisecond
	server.Start()
	defer server.Close()
	get := func(query string) (int, []byte) {
		r, err := http.Get(server.URL + Path + query)
		if err != nil {
			t.Error(err)
			return 0, nil
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		return r.StatusCode, b
	}
	gzip := []byte{0x1f, 0x8b}
	if code, b := get("profile?seconds=1"); code != http.StatusOK || !bytes.HasPrefix(b, gzip) {
		t.Errorf("a profile of a second: %d, %.100q", code, b)
	}
	if code, b := get("heap?seconds=1"); code != http.StatusOK || !bytes.HasPrefix(b, gzip) {
		t.Errorf("what a second allocated: %d, %.100q", code, b)
	}
	if code, b := get("goroutine?debug=1"); code != http.StatusOK || !bytes.Contains(b, []byte("TestHandler")) {
		t.Errorf("goroutines: %d, %.100q", code, b)
	}
	if code, b := get(""); code != http.StatusOK || !bytes.Contains(b, []byte("heap")) {
		t.Errorf("index: %d, %.100q", code, b)
	}
	for _, query := range []string{"profile?seconds=0", "profile?seconds=61", "trace?seconds=x", "heap?seconds=1e9"} {
		if code, b := get(query); code != http.StatusBadRequest {
			t.Errorf("%s: %d, %.100q", query, code, b)
		}
	}
	for round := 0; ; round++ { // until some are taken at the same time
		codes := make(chan int)
		for range 4 {
			go func() {
				code, _ := get("trace?seconds=1")
				codes <- code
			}()
		}
		count := map[int]int{}
		for range 4 {
			count[<-codes]++
		}
		if count[http.StatusOK] == 0 || count[http.StatusOK]+count[http.StatusServiceUnavailable] != 4 {
			t.Fatalf("of four at once: %v", count)
		}
		if count[http.StatusServiceUnavailable] > 0 {
			break
		}
		if round == 10 {
			t.Fatal("of four at once none is refused")
		}
	}
	if r, err := http.Post(server.URL+Path, "", nil); err != nil || r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v, %v", r, err)
	}
}
