//env:real a log is for people

package admission

import (
	"log/slog"
	"sync"
	"time"
)

// maxLines is how many lines of a second say that connections were closed or refused. A caller can
// provoke as many as it opens connections, and bury what else the log says.
const maxLines = 10

// Lines counts such lines. Safe for concurrent use.
type Lines struct {
	mu     sync.Mutex
	second int64
	of     int // lines of that second
	more   int // that were left out since the last one
}

// next reports whether there is room for one more line at a time, and how many were left out before
// it.
func (l *Lines) next(now time.Time) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Unix() != l.second {
		l.second, l.of = now.Unix(), 0
	}
	if l.of >= maxLines {
		l.more++
		return 0, false
	}
	l.of++
	left, l.more = l.more, 0
	return left, true
}

// Warn logs what was done to a connection, if there is room.
func (l *Lines) Warn(log *slog.Logger, message string, what ...any) {
	left, ok := l.next(time.Now())
	if !ok {
		return
	}
	if left > 0 {
		what = append(what, "lines_left_out", left)
	}
	log.Warn(message, what...)
}

func (c *Callers) warn(message string, what ...any) { c.lines.Warn(c.log, message, what...) }
