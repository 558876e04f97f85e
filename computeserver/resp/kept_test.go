package resp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/pkg/partition"
)

// keepers are peers that keep what they are asked, as a stream does that could not send it in time.
type keepers struct {
	engine.Peers
	kept []*rpcv1.Operation
}

func (k *keepers) Start(_ partition.Server, ops []*rpcv1.Operation, _ time.Duration, ended engine.Waker) engine.Started {
	k.kept = append(k.kept, ops...)
	ended.Set()
	return k
}

func (k *keepers) Take(bool) ([]*rpcv1.Outcome, error, bool) {
	return nil, &engine.Failure{Code: rpcv1.Outcome_TIMED_OUT, Message: "not in time"}, true
}

// TestForwardedKeysAreKept: what is sent to another server stays as it is after the command was
// replied, when the read buffer is used again.
func TestForwardedKeysAreKept(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	to := &keepers{Peers: c.servers[1].core.Peers}
	c.servers[1].core.Peers = to // nobody looks before there is a map
	c.split([]uint32{1, 2}, "m")
	conn := c.quiet(1)
	for _, command := range [][]string{{"SET", "z1", "v1"}, {"GET", "z1"}, {"MSET", "z1", "v1", "z2", "v2"}, {"MGET", "z1", "z2"}, {"DEL", "z1", "z2"}, {"EXISTS", "z1", "z2"}} {
		to.kept = nil
		in := []byte(computeservertest.Command(command...))
		if out, err := conn.feed(in); err != nil || !strings.HasPrefix(string(out), "-TIMEOUT ") {
			t.Fatalf("%q was replied %q, %v", command, out, err)
		}
		for i := range in {
			in[i] = 'x'
		}
		if len(to.kept) == 0 {
			t.Fatalf("%q was not sent on", command)
		}
		for i, op := range to.kept {
			if key, value := fmt.Sprint("z", i+1), fmt.Sprint("v", i+1); string(op.Key) != key || len(op.Value) > 0 && string(op.Value) != value {
				t.Errorf("%q: what was sent became %q: %q", command, op.Key, op.Value)
			}
		}
	}
}
