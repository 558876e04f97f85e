package shm_test

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/shm"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

var harness = verbstest.Harness{Device: shm.NewDevice, Start: start, Processes: true, Direct: true, Rounds: rounds}

func start(dir string, o verbs.ServerOptions) (address string, s verbs.Server, err error) {
	if s, err = shm.NewServer(o); err != nil {
		return "", nil, err
	}
	address = filepath.Join(dir, "s")
	l, err := net.Listen("unix", address)
	if err != nil {
		return "", nil, err
	}
	go s.Serve(l)
	return address, s, nil
}

func TestConformance(t *testing.T) { verbstest.Run(t, harness) }

func TestMain(m *testing.M) { verbstest.Main(m, harness) }
