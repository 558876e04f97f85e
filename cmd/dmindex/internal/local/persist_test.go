package local

import (
	"strings"
	"testing"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/memory"
)

// TestNoPromiseWithoutTCP: what keeps content beyond a process is refused over other transports,
// whose clients change memory by themselves, and the error says what to use.
func TestNoPromiseWithoutTCP(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"copies": func(c *Config) { c.Copies = 2 },
		"files":  func(c *Config) { c.Persist = &memory.Persist{Dir: t.TempDir()} },
	} {
		c := small("shm")
		change(&c)
		if l, err := Start(c); err == nil || !strings.HasSuffix(err.Error(), "use tcp") {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				l.Close()
			}
		}
	}
}
