package computeserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/keyrange"
)

// TestDescribeWithoutKeys: what /describe shows has no keys, but tells ranges apart.
func TestDescribeWithoutKeys(t *testing.T) {
	key, hider := []byte("a customer's name"), newHider(func() []byte { return []byte("salt") })()
	shown := withoutKeys(&rpcv1.DescribeComputeReply{
		Id: 7,
		Ranges: []*rpcv1.OwnedRange{{End: key, State: "Serving", OperationsPerSecond: 3},
			{Start: key, State: "Taking", Reason: "keys " + keyrange.Format(key, nil) + " wait"}},
		TakeOvers: []*rpcv1.TakeOver{{Start: key, End: key, Epoch: 3}},
		Load:      &rpcv1.ComputeLoad{HitRatio: 0.5, Keys: []*rpcv1.KeyLoad{{Key: key, OperationsPerSecond: 1}}},
	}, hider)
	text, err := protojson.Marshal(shown)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), base64.StdEncoding.EncodeToString(key)) || strings.Contains(string(text), string(key)) {
		t.Errorf("a key is shown: %s", text)
	}
	// whoever guesses the key cannot see by its digest that it is right
	if sum := sha256.Sum256(key); strings.Contains(string(text), base64.StdEncoding.EncodeToString(sum[:8])) {
		t.Errorf("the digest is not salted: %s", text)
	}
	if a, b := newHider(nil)(), newHider(func() []byte { return nil })(); a.Quote(key) == b.Quote(key) {
		t.Error("servers without a salt have the same one")
	}
	sum := hider.Digest(key)
	r := shown.Ranges
	if len(r[0].Start) != 0 || !bytes.Equal(r[0].End, sum) || !bytes.Equal(r[1].Start, sum) || len(r[1].End) != 0 {
		t.Errorf("ranges cannot be told apart: %s", text)
	}
	if shown.Id != 7 || shown.Load.HitRatio != 0.5 || r[0].State != "Serving" || r[0].OperationsPerSecond != 3 {
		t.Errorf("more than keys is gone: %s", text)
	}
}

// TestDescribePage: the port of the metrics has the description as JSON.
func TestDescribePage(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	c.split([]uint32{1})
	code, body := c.servers[1].get(t, "/describe")
	reply := &rpcv1.DescribeComputeReply{}
	if err := protojson.Unmarshal([]byte(body), reply); code != 200 || err != nil || reply.Id != 1 || reply.Index != computeservertest.Index {
		t.Errorf("%d %v: %s", code, err, body)
	}
}
