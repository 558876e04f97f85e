package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// admit frees what earlier incarnations of the index have at the memory servers, and has this one admitted with its quota.
// Servers that do not answer are left for later.
func (r *indexes) admit(ctx context.Context, s *indexScope) error {
	identity := identityOf(s.index)
	var problems []string
	reason := ""
	for _, p := range s.memoryPools {
		for _, pod := range p.pods {
			described := p.described[podID(pod)]
			if described == nil {
				continue
			}
			for _, old := range earlier(described, string(s.index.UID), identity) {
				err := r.withMemory(pod, p.authority, func(m servers.Memory) error { return m.Evict(ctx, old) })
				if err != nil {
					return err
				}
			}
		}
	}
	for _, m := range s.verdict.servers {
		p, pod, described := s.memoryPod(m)
		if described == nil {
			continue
		}
		want := p.quota(described)
		if use := useOf(described, identity); use != nil && use.QuotaChunks == want {
			continue
		}
		err := r.withMemory(pod, p.authority, func(c servers.Memory) error { return c.Admit(ctx, identity, want) })
		switch {
		case errors.Is(err, servers.ErrNoRoom):
			free := described.ChunksTotal - min(described.ChunksTotal, described.ChunksGranted)
			reason = dmv1.ReasonMemoryPending
			problems = append(problems, fmt.Sprintf("memory server %d (pod %s) has %d chunks of %d bytes left, the index asks for %d: lower quota, free memory of another index, or use another pool",
				m.id, m.pod, free, described.ChunkBytes, want))
		case errors.Is(err, servers.ErrInUse):
			reason = dmv1.ReasonQuotaRefused
			problems = append(problems, fmt.Sprintf("%v: raise quota again", err))
		case err != nil:
			return err
		}
	}
	if len(problems) > 0 {
		if s.index.Annotations[dmv1.AnnotationCreated] != "" {
			s.waiting = strings.Join(problems, "; ") // what is served goes on being served
			return nil
		}
		return &halt{reason, strings.Join(problems, "; "), soon * 5}
	}
	return nil
}

// memoryPod finds the pod of a memory server and what it said.
func (s *indexScope) memoryPod(m memoryServer) (*memoryPoolOfIndex, *corev1.Pod, *rpcv1.DescribeMemoryReply) {
	ordinal, id := build.MemoryServerPod(m.id)
	if ordinal >= len(s.memoryPools) {
		return nil, nil, nil
	}
	p := &s.memoryPools[ordinal]
	for _, pod := range p.pods {
		if podID(pod) == id {
			return p, pod, p.described[id]
		}
	}
	return p, nil, nil
}

// quota is how many chunks of a server the index may use.
func (p *memoryPoolOfIndex) quota(d *rpcv1.DescribeMemoryReply) uint64 {
	if p.spec.Quota == nil {
		return d.ChunksTotal
	}
	return uint64(p.spec.Quota.Value()) / max(1, d.ChunkBytes)
}

// earlier are the identities at a server that belong to the same object, but to what it was before its data was lost.
func earlier(d *rpcv1.DescribeMemoryReply, uid, identity string) (old []string) {
	for _, use := range d.Indexes {
		if (use.Index == uid || strings.HasPrefix(use.Index, uid+"/")) && use.Index != identity {
			old = append(old, use.Index)
		}
	}
	return old
}

func useOf(d *rpcv1.DescribeMemoryReply, identity string) *rpcv1.IndexUse {
	for _, use := range d.Indexes {
		if use.Index == identity {
			return use
		}
	}
	return nil
}
