package memorypool

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// askVolumes asks all pods of the volumes what they are. A pod that did not answer the look before
// is waited for less long, since a copy may have to take its place: the whole time is waited only
// if no other copy of the volume misses one. So a server that is slow, and does its work, is heard.
// While a copy of any volume of the pool misses one, pods that no view names are not waited for:
// they may be on the same lost node.
func (r *Reconciler) askVolumes(ctx context.Context, s *scope) {
	for _, v := range s.volumes {
		v.reports, v.refuses = map[string]servers.VolumeReport{}, map[string]bool{}
	}
	r.askSome(ctx, s, func(v *volumeScope, c *volumeCopy) time.Duration {
		if v.memory.IsSilent(c.uid) {
			return silentLimit
		}
		return reportLimit
	})
	misses := func(v *volumeScope) bool { return v.misses() >= volumeLook }
	hurries := slices.ContainsFunc(s.volumes, misses)
	r.askSome(ctx, s, func(v *volumeScope, c *volumeCopy) time.Duration {
		if v.reports[c.uid].Proc.Pod != "" || v.refuses[c.uid] || !v.memory.IsSilent(c.uid) || misses(v) || hurries && v.view.Number > 0 && !s.record.Names(v.number, c.uid) {
			return 0
		}
		return reportLimit
	})
}

// Limits of questions for reports.
const (
	reportLimit = time.Second
	silentLimit = 250 * time.Millisecond // of a pod that was silent
)

// askSome asks pods of the volumes side by side, each for at most as long as limit says; 0 = it is
// not asked.
func (r *Reconciler) askSome(ctx context.Context, s *scope, limit func(*volumeScope, *volumeCopy) time.Duration) {
	type asked struct {
		v     *volumeScope
		copy  *volumeCopy
		limit time.Duration
	}
	var all []asked
	for _, v := range s.volumes {
		for _, c := range v.copies {
			if limit := limit(v, c); limit > 0 && c.pod != nil {
				all = append(all, asked{v, c, limit})
			}
		}
	}
	reports, errs := make([]servers.VolumeReport, len(all)), make([]error, len(all))
	servers.Each(len(all), func(i int) {
		a := all[i]
		errs[i] = withVolume(&r.Base, a.copy.pod, s.authority, func(c servers.Volume) (err error) {
			ctx, cancel := context.WithTimeout(ctx, a.limit)
			defer cancel()
			reports[i], err = c.Report(ctx, a.v.number+1, a.copy.uid)
			return err
		})
	})
	for i, a := range all {
		uid := a.copy.uid
		if errs[i] == nil && reports[i].Proc.Pod == uid {
			a.v.reports[uid] = reports[i]
		}
		a.v.refuses[uid] = errors.Is(errs[i], servers.ErrRefused)
	}
}

// withVolume runs f with a connection to a pod's server as a copy.
func withVolume(b *reconciler.Base, p *corev1.Pod, a *pki.Authority, f func(servers.Volume) error) error {
	if p.Status.PodIP == "" || p.Status.Phase != corev1.PodRunning || a == nil {
		return outcome.WaitFor(dmv1.ReasonMemoryUnreachable, "memory pod "+p.Name+" is not running", outcome.RequeueSoon)
	}
	c, err := b.Dialer.Volume(servers.TargetOf(p, config.PortControl, a))
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}
