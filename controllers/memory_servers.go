package controllers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// target is how to reach a pod's server.
func target(p *corev1.Pod, port int, a *pki.Authority) servers.Target {
	return servers.Target{
		Namespace: p.Namespace, Pod: p.Name, UID: string(p.UID), Authority: a,
		Address: address(p.Status.PodIP, port),
		Name:    build.Host(p.Name, p.Labels[dmv1.LabelPool], p.Namespace),
	}
}

// describeMemory asks the servers of all pods at once. Those that do not answer are in neither
// result; those that cannot start on their nodes say why.
func describeMemory(ctx context.Context, b *base, pods []*corev1.Pod, a *pki.Authority) (_ map[int]*rpcv1.DescribeMemoryReply, problems map[int]string) {
	replies, errs := make([]*rpcv1.DescribeMemoryReply, len(pods)), make([]error, len(pods))
	each(len(pods), func(i int) {
		errs[i] = withMemory(b, pods[i], a, func(m servers.Memory) error {
			reply, err := m.Describe(ctx)
			replies[i] = reply
			return err
		})
	})
	byID, problems := map[int]*rpcv1.DescribeMemoryReply{}, map[int]string{}
	for i, reply := range replies {
		if reply != nil {
			byID[podstate.VolumeOf(pods[i])] = reply
		}
		if unfit := (*servers.Unfit)(nil); errors.As(errs[i], &unfit) {
			problems[podstate.VolumeOf(pods[i])] = unfit.Why
		}
	}
	return byID, problems
}

// describePools asks the memory servers of all pools at once: a node that is lost may have servers
// of each.
func describePools(ctx context.Context, b *base, pools ...*memoryPoolOfIndex) {
	each(len(pools), func(i int) {
		p := pools[i]
		p.described, p.problems = describeMemory(ctx, b, p.pods, p.authority)
	})
}

// pools are the memory pools of the index.
func (s *indexScope) pools() (pools []*memoryPoolOfIndex) {
	for i := range s.memoryPools {
		pools = append(pools, &s.memoryPools[i])
	}
	return pools
}

// withMemory runs f with a connection to a pod's server, if the pod can have one.
func withMemory(b *base, p *corev1.Pod, a *pki.Authority, f func(servers.Memory) error) error {
	if p.Status.PodIP == "" || p.Status.Phase != corev1.PodRunning || a == nil {
		return outcome.WaitFor(dmv1.ReasonMemoryUnreachable, "memory pod "+p.Name+" is not running", outcome.RequeueSoon)
	}
	m, err := b.dialer.Memory(target(p, config.PortControl, a))
	if err != nil {
		return err
	}
	defer m.Close()
	return f(m)
}

// mostAtOnce is how many calls one use of each makes at once.
const mostAtOnce = 128

// each runs f for 0 to n-1, up to mostAtOnce at once, and waits for all.
func each(n int, f func(i int)) {
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
