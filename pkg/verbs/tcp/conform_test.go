package tcp_test

import (
	"net"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

var harness = verbstest.Harness{Device: tcp.NewDevice, Start: start, Processes: true}

func start(_ string, o verbs.ServerOptions) (address string, s verbs.Server, err error) {
	if s, err = tcp.NewServer(o); err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go s.Serve(l)
	return l.Addr().String(), s, nil
}

func TestConformance(t *testing.T) { verbstest.Run(t, harness) }

func TestMain(m *testing.M) {
	if tcp.BenchServer() {
		return
	}
	verbstest.Main(m, harness)
}
