package memserver

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestStop ends a server under its clients: they are told, and everything is given back.
func TestStop(t *testing.T) {
	c := dirConfig(t.TempDir())
	s, stop := start(t, c)
	cl := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(cl.Admit(1, 0, limit))
	shmClient := client(t, s.Addresses().Control, "a", "shm", nil)
	_, overTCP, arena := open(t, must(cl.Connect(7, 1, limit)))
	_, overShm, shmArena := open(t, must(shmClient.Connect(7, 2, limit)))
	stop()
	for name, qp := range map[string]verbs.QP{"tcp": overTCP, "shm": overShm} {
		a := arena
		if name == "shm" {
			a = shmArena
		}
		buf := must(a.Alloc(8))
		deadline := time.Now().Add(limit)
		var err error
		for err == nil && time.Now().Before(deadline) {
			err = verbs.Post(qp, []verbs.Request{{Op: verbs.Read, Remote: 1 << 20, Local: buf}})
		}
		if !errors.Is(err, verbs.ErrDisconnected) {
			t.Errorf("%s after the server's end: %v", name, err)
		}
	}
	if _, err := cl.AllocateChunk(7, 1, 1024, false, limit); !errors.Is(err, verbs.ErrDisconnected) {
		t.Errorf("control after the server's end: %v", err)
	}
	if _, err := os.Stat(c.Shm); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	must(New(c)).Close()
	if err := s.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

// TestStopBeforeStart runs a server whose time is over already.
func TestStopBeforeStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := must(New(localConfig(t))).Run(ctx); err != nil {
		t.Error(err)
	}
}

// TestListenerFails: a server that cannot go on says so and gives everything back.
func TestListenerFails(t *testing.T) {
	s := must(New(localConfig(t)))
	s.fabrics[0].Close()
	err := s.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "serve tcp on "+s.Addresses().Fabric) {
		t.Error(err)
	}
}
