package servers

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/pki"
)

// TargetOf is how to reach a pod's server.
func TargetOf(p *corev1.Pod, port int, a *pki.Authority) Target {
	return Target{
		Namespace: p.Namespace, Pod: p.Name, UID: string(p.UID), Authority: a,
		Address: net.JoinHostPort(p.Status.PodIP, strconv.Itoa(port)),
		Name:    build.Host(p.Name, p.Labels[dmv1.LabelPool], p.Namespace),
	}
}

// mostAtOnce is how many calls one use of Each makes at once.
const mostAtOnce = 128

// Each runs f for 0 to n-1, up to mostAtOnce at once, and waits for all.
func Each(n int, f func(i int)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(n, mostAtOnce) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}
