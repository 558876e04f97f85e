package serverpod

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// DescribeMemory asks the servers of all pods at once. Those that do not answer are in neither
// result; those that cannot start on their nodes say why.
func DescribeMemory(ctx context.Context, b *reconciler.Base, pods []*corev1.Pod, a *pki.Authority) (_ map[int]*rpcv1.DescribeMemoryReply, problems map[int]string) {
	replies, errs := make([]*rpcv1.DescribeMemoryReply, len(pods)), make([]error, len(pods))
	servers.Each(len(pods), func(i int) {
		errs[i] = WithMemory(b, pods[i], a, func(m servers.Memory) error {
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

// WithMemory runs f with a connection to a pod's server, if the pod can have one.
func WithMemory(b *reconciler.Base, p *corev1.Pod, a *pki.Authority, f func(servers.Memory) error) error {
	if p.Status.PodIP == "" || p.Status.Phase != corev1.PodRunning || a == nil {
		return outcome.WaitFor(dmv1.ReasonMemoryUnreachable, "memory pod "+p.Name+" is not running", outcome.RequeueSoon)
	}
	m, err := b.Dialer.Memory(servers.TargetOf(p, config.PortControl, a))
	if err != nil {
		return err
	}
	defer m.Close()
	return f(m)
}
