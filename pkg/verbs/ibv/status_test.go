package ibv

import (
	"errors"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
)

func TestStatus(t *testing.T) {
	if err := status(0).Err(); err != nil {
		t.Errorf("success is %v", err)
	}
	f := func(s status, name string, want error) {
		t.Helper()
		if err := s.Err(); !errors.Is(err, want) || !strings.Contains(err.Error(), name) {
			t.Errorf("status %d: %v, want %v with %s", s, err, want, name)
		}
	}
	f(4, "LOC_PROT_ERR", verbs.ErrNotRegistered)
	f(5, "WR_FLUSH_ERR", verbs.ErrDisconnected)
	f(9, "REM_INV_REQ_ERR", verbs.ErrUnsupported)
	f(10, "REM_ACCESS_ERR", verbs.ErrOutOfRange)
	f(12, "RETRY_EXC_ERR", verbs.ErrDisconnected)
	f(20, "RESP_TIMEOUT_ERR", verbs.ErrTimeout)
	f(22, "22", verbs.ErrDisconnected)
	f(-1, "-1", verbs.ErrDisconnected)
	known := []error{verbs.ErrMalformed, verbs.ErrNotRegistered, verbs.ErrUnsupported, verbs.ErrOutOfRange, verbs.ErrDisconnected, verbs.ErrTimeout}
	for s := range outcomes {
		if s == 0 {
			continue
		}
		ours := false
		for _, k := range known {
			ours = ours || errors.Is(status(s).Err(), k)
		}
		if !ours || outcomes[s].name == "" {
			t.Errorf("status %d means %v", s, status(s).Err())
		}
	}
}
