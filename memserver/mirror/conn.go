package mirror

import (
	"fmt"
	"io"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Conn is a connection between two memory servers. Each call waits a moment at most, so nobody has
// to be woken when a connection is to end. One goroutine at a time reads, and one writes.
type Conn interface {
	// Read returns what has come; 0 = nothing yet.
	Read(p []byte) (int, error)
	// Write takes as much of p as finds room, and keeps nothing of it.
	Write(p []byte) (int, error)
	// Close ends the connection. Any goroutine may call it.
	Close() error
}

// DefaultLimit is how long either side waits for the other one.
const DefaultLimit = 10 * time.Second

func readFull(e env.Env, c Conn, p []byte, until time.Duration) error {
	for done := 0; done < len(p); {
		n, err := c.Read(p[done:])
		done += n
		switch {
		case done == len(p):
		case err == io.EOF && done > 0:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case n == 0 && e.Now() >= until:
			return fmt.Errorf("%d bytes of %d came: %w", done, len(p), verbs.ErrTimeout)
		}
	}
	return nil
}

func writeFull(e env.Env, c Conn, p []byte, until time.Duration) error {
	for len(p) > 0 {
		n, err := c.Write(p)
		if err != nil {
			return err
		}
		p = p[n:]
		if n == 0 && e.Now() >= until {
			return fmt.Errorf("%d bytes are not taken: %w", len(p), verbs.ErrTimeout)
		}
	}
	return nil
}
