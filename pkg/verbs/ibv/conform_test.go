//go:build ibv

package ibv_test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/ibv"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// The tests with this tag need an RDMA device; `make rdma` gives them one. IBV_DEVICE names one of
// several; IBV_ROUNDS is how often litmus tests repeat: a machine without KVM does some ten
// thousand lists a second. IBV_SOFT says that the device is Soft-RoCE.
var (
	options = ibv.Options{Device: os.Getenv("IBV_DEVICE")}
	harness = verbstest.Harness{Device: newDevice, Start: start, Processes: true, Rounds: rounds(), MaxQPs: ibv.MaxQPs, Memcpy: os.Getenv("IBV_SOFT") != ""}
)

func rounds() int {
	n, _ := strconv.Atoi(os.Getenv("IBV_ROUNDS"))
	return n
}

func newDevice() verbs.Device {
	d, err := ibv.NewDevice(options)
	if err != nil {
		panic(err)
	}
	return d
}

func start(_ string, o verbs.ServerOptions) (address string, s verbs.Server, err error) {
	if s, err = ibv.NewServer(options, o); err != nil {
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
	if os.Getenv(memlockVariable) != "" {
		if err := memlockChild(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	verbstest.Main(m, harness)
}
