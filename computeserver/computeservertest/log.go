package computeservertest

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// Logger writes to the log of a test.
func Logger(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(testLog{t}, nil)) }

// testLog writes lines of a log to that of a test.
type testLog struct{ t testing.TB }

// Write implements io.Writer.
func (l testLog) Write(line []byte) (int, error) {
	l.t.Logf("%s", bytes.TrimSpace(line))
	return len(line), nil
}

// Await polls what has no event to wait for.
func Await(t testing.TB, what string, f func() bool) {
	t.Helper()
	e := env.Real()
	for deadline := e.Now() + time.Minute; !f(); e.Sleep(time.Millisecond) {
		if e.Now() > deadline {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
