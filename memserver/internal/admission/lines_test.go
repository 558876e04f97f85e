package admission

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// TestLines: so many lines of a second are logged, and the next one says how many were left out.
func TestLines(t *testing.T) {
	var l Lines
	now := time.Unix(1_800_000_000, 0)
	for i := range 3 * maxLines {
		if left, ok := l.next(now.Add(time.Duration(i))); left != 0 || ok != (i < maxLines) {
			t.Errorf("line %d: %v, %d left out", i, ok, left)
		}
	}
	for i, want := range []int{2 * maxLines, 0} {
		if left, ok := l.next(now.Add(time.Second)); left != want || !ok {
			t.Errorf("line %d of the next second: %v, %d left out", i, ok, left)
		}
	}
}

// TestRefusalsAreLoggedNowAndThen: callers that are refused again and again do not fill the log.
func TestRefusalsAreLoggedNowAndThen(t *testing.T) {
	var out bytes.Buffer
	c := NewCallers(nil, time.Hour, slog.New(slog.NewTextHandler(&out, nil)))
	for range maxConnections {
		calling(t, c, everybody)
	}
	began := time.Now()
	for range 100 * maxLines {
		ours, _ := net.Pipe()
		if _, _, err := c.ServerHandshake(ours); err == nil {
			t.Fatal("one too many is admitted")
		}
	}
	most := maxLines * int(time.Since(began)/time.Second+2)
	if n := strings.Count(out.String(), "\n"); n == 0 || n > most {
		t.Errorf("%d lines, want at most %d", n, most)
	}
}
