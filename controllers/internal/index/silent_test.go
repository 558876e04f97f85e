package index

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// lostNodes dials memory servers that let each call wait for 5 s.
type lostNodes struct{ servers.Dialer }

type lostMemory struct{ servers.Memory }

func (lostNodes) Memory(servers.Target) (servers.Memory, error) { return lostMemory{}, nil }

func (lostMemory) Close() {}

func (lostMemory) Describe(ctx context.Context) (*rpcv1.DescribeMemoryReply, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSilentPools: servers of several pools that do not answer are waited for once, and together.
func TestSilentPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &reconciler.Base{Dialer: servers.NewPatient(lostNodes{})}
		s := &scope{memoryPools: make([]memoryPool, 4)}
		for i := range s.memoryPools {
			p := &s.memoryPools[i]
			p.authority = &pki.Authority{}
			for id := range 3 {
				one := operatortest.Pod("m", id)
				one.UID, one.Status.PodIP, one.Status.Phase = types.UID(fmt.Sprint(i, id)), "10.0.0.1", corev1.PodRunning
				p.pods = append(p.pods, one)
			}
		}
		f := func(what string, want time.Duration) {
			t.Helper()
			begun := time.Now()
			describePools(t.Context(), b, s.pools()...)
			if took := time.Since(begun); took > want {
				t.Errorf("%s takes %v, want %v at most", what, took, want)
			}
			for i := range s.memoryPools {
				if len(s.memoryPools[i].described) != 0 {
					t.Errorf("%s: a silent server of pool %d answers", what, i)
				}
			}
		}
		f("the first look", 5*time.Second)
		f("the second look", time.Second)
		<-time.After(10 * time.Second) // what is asked in the background ends
	})
}
