package memorypool

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// TestPoolsThatListWithoutEnd: a server may say what it likes, and the API server takes what the
// status has of it.
func TestPoolsThatListWithoutEnd(t *testing.T) {
	const many = 6306
	long := strings.Repeat("x", 10_000)
	s := &scope{pool: &dmv1.DMMemoryPool{}, answering: []*corev1.Pod{operatortest.Pod("pool-0", 0)}, described: map[int]*rpcv1.DescribeMemoryReply{}}
	d := &rpcv1.DescribeMemoryReply{Transports: []*rpcv1.Transport{{Device: long}}}
	s.use.KeptFor = map[int][]string{}
	for i := range many {
		d.Indexes = append(d.Indexes, &rpcv1.IndexUse{Index: fmt.Sprint(long, i)}, &rpcv1.IndexUse{Index: fmt.Sprint(i)})
		s.use.KeptFor[0] = append(s.use.KeptFor[0], fmt.Sprint(i))
	}
	s.described[0] = d
	s.account()
	server, grants := s.pool.Status.Servers[0], s.pool.Status.Grants
	if len(server.Device) > report.LongestDevice || len(server.KeptFor) > dmv1.MaxShownKeptFor || len(grants) != dmv1.MaxShownGrants || len(grants[0].Identity) > dmv1.MaxShownIdentity {
		t.Errorf("device %d bytes, kept for %d, %d grants", len(server.Device), len(server.KeptFor), len(grants))
	}
}
