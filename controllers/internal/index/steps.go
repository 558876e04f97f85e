package index

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/authority"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/controllers/internal/volume"
	"github.com/dmindex/dmindex/pkg/identity"
)

// pinImage remembers the image of the operator that first saw the index: later operators do not
// change it.
func (r *Reconciler) pinImage(ctx context.Context, s *scope) error {
	if decision.ImageOf(s.index) == "" {
		pinned := map[string]string{dmv1.AnnotationImage: r.Image}
		if r.ImageRDMA != "" {
			pinned[dmv1.AnnotationImageRDMA] = r.ImageRDMA
		}
		return r.Annotate(ctx, s.index, pinned)
	}
	if !hasRDMATemplate(s.index) || decision.ImageFor(s.index, dmv1.TransportRDMA) != "" {
		return nil
	}
	if r.ImageRDMA == "" {
		return serverpod.NoRDMAImage("index " + s.index.Name)
	}
	return r.Annotate(ctx, s.index, map[string]string{dmv1.AnnotationImageRDMA: r.ImageRDMA})
}

func hasRDMATemplate(index *dmv1.DMIndex) bool {
	return slices.ContainsFunc(index.Spec.MemoryPools, func(p dmv1.IndexMemoryPool) bool {
		return p.Template != nil && p.Template.Transport == dmv1.TransportRDMA
	}) || slices.ContainsFunc(index.Spec.ComputePools, func(p dmv1.IndexComputePool) bool {
		return p.Template != nil && p.Template.Transport == dmv1.TransportRDMA
	})
}

// checkTransports halts an index whose compute servers could not reach its memory.
func (r *Reconciler) checkTransports(_ context.Context, s *scope) error {
	for _, m := range s.memoryPools {
		if m.pool == nil {
			continue
		}
		if s.index.Spec.Security.FabricTLS {
			if err := m.speaksTLS(); err != nil {
				return err
			}
		}
		if m.pool.Spec.Transport != dmv1.TransportRDMA {
			continue
		}
		for _, c := range s.computePools {
			if c.Spec.Transport != dmv1.TransportRDMA {
				return outcome.WaitFor(dmv1.ReasonTransportMismatch, fmt.Sprintf("memory pool %s has transport RDMA, compute pool %s has TCP and cannot reach it: "+
					"set transport: RDMA of the compute pool", m.pool.Name, c.Name), 0)
			}
		}
	}
	return nil
}

// speaksTLS halts an index with fabricTLS whose clients a pool could not serve.
func (m *memoryPool) speaksTLS() error {
	if m.pool.Spec.Transport == dmv1.TransportRDMA {
		return outcome.WaitFor(dmv1.ReasonTransportMismatch, fmt.Sprintf("the index has security.fabricTLS, memory pool %s has transport RDMA, over which nothing is encrypted: "+
			"set fabricTLS: false, or use a pool with transport TCP", m.pool.Name), 0)
	}
	for _, p := range m.pods {
		d := m.described[podstate.VolumeOf(p)]
		if d != nil && !slices.ContainsFunc(d.Transports, func(t *rpcv1.Transport) bool { return t.Tls }) {
			return outcome.WaitFor(dmv1.ReasonTransportMismatch, fmt.Sprintf("the index has security.fabricTLS, and memory pod %s runs version %s, which has no TLS on its fabric: "+
				"set image of memory pool %s to a newer one, or fabricTLS: false", p.Name, d.Version, m.pool.Name), outcome.RequeueSoon*5)
		}
	}
	return nil
}

// issueSecrets makes the index's certificate authority and the Secret with which programs connect.
// The password is made once, and again if somebody empties it.
func (r *Reconciler) issueSecrets(ctx context.Context, s *scope) (err error) {
	if s.index.Spec.Paused && !s.made() {
		s.authority, err = authority.Read(ctx, &r.Base, s.index)
		return err
	}
	if s.authority, err = authority.Ensure(ctx, &r.Base, s.index, map[string]string{dmv1.LabelIndex: s.index.Name}); err != nil {
		return err
	}
	secret := build.ConnectionSecret(s.index, nil, pki.Bundle(s.authority.Trusted()...))
	live := &corev1.Secret{}
	live.Name, live.Namespace = secret.Name, secret.Namespace
	switch err := r.Find(ctx, live, live); {
	case apierrors.IsNotFound(err):
		// Created, not applied: a password is never written over.
		secret.Data[build.KeyPassword] = []byte(rand.Text())
		if err := ctrl.SetControllerReference(s.index, secret, r.Scheme()); err != nil {
			return err
		}
		return r.Create(ctx, secret, kube.Owner)
	case err != nil:
		return err
	}
	if secret.Data[build.KeyPassword] = live.Data[build.KeyPassword]; identity.TrimPassword(string(live.Data[build.KeyPassword])) == "" {
		secret.Data[build.KeyPassword] = []byte(rand.Text())
	}
	secret.UID = live.UID // a Secret that was deleted since does not return with its password
	return r.Apply(ctx, s.index, secret)
}

// ensurePools makes the pools of templates. The replicas of a compute pool are written once, when
// it is made: afterwards they belong to whoever scales it.
func (r *Reconciler) ensurePools(ctx context.Context, s *scope) error {
	for _, p := range s.index.Spec.MemoryPools {
		if p.Template == nil || decision.ImageFor(s.index, p.Template.Transport) == "" {
			continue // the image is pinned first
		}
		if pool := build.MemoryPool(s.index, p, decision.ImageFor(s.index, p.Template.Transport)); pool != nil {
			s.problems.Add(r.Apply(ctx, s.index, pool))
		}
	}
	for _, p := range s.index.Spec.ComputePools {
		if p.Template == nil || decision.ImageFor(s.index, p.Template.Transport) == "" {
			continue
		}
		s.problems.Add(r.ensureComputePool(ctx, s, build.ComputePool(s.index, p, decision.ImageFor(s.index, p.Template.Transport))))
	}
	return nil
}

func (r *Reconciler) ensureComputePool(ctx context.Context, s *scope, pool *dmv1.DMComputePool) error {
	if err := r.Find(ctx, pool, &dmv1.DMComputePool{}); apierrors.IsNotFound(err) {
		if err := r.makeComputePool(ctx, s.index, pool); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	wrote, err := r.ApplyTold(ctx, s.index, pool, []string{"spec", "replicas"})
	if wrote {
		s.rewritten = append(s.rewritten, pool.Name)
	}
	return err
}

// makeComputePool writes what Apply must not own afterwards.
func (r *Reconciler) makeComputePool(ctx context.Context, index *dmv1.DMIndex, pool *dmv1.DMComputePool) error {
	born := &dmv1.DMComputePool{ObjectMeta: pool.ObjectMeta}
	born.Spec.IndexName, born.Spec.Replicas = pool.Spec.IndexName, pool.Spec.Replicas
	if err := ctrl.SetControllerReference(index, born, r.Scheme()); err != nil {
		return err
	}
	err := r.Create(ctx, born, client.FieldOwner("dmindex-operator-creation"))
	if apierrors.IsAlreadyExists(err) {
		return nil // Apply finds out whose it is
	}
	return err
}

func (r *Reconciler) ensureService(ctx context.Context, s *scope) error {
	service := build.ClientService(s.index)
	if decision.Loading(s.index) {
		service.Spec.Selector[dmv1.LabelLoaded] = "true" // which no pod has: it leads nowhere
		open := &corev1.Service{}
		if r.Get(ctx, client.ObjectKeyFromObject(service), open) == nil && open.Spec.Selector[dmv1.LabelLoaded] == "" {
			if err := stillLoading(ctx, &r.Base, s.index); err != nil {
				return err
			}
		}
	}
	return r.Apply(ctx, s.index, service)
}

// checkDataLoss stops an index that lost data, or makes it anew if that is asked for.
func (r *Reconciler) checkDataLoss(ctx context.Context, s *scope) error {
	lost := s.verdict.with(dmv1.ServerLost)
	if len(lost) == 0 && len(s.doubted) > 0 {
		return outcome.WaitFor(dmv1.ReasonMemoryUnreachable, "data seems to be lost at "+names(s.doubted)+"; it is looked at again before that is believed", doubtEvery)
	}
	if len(lost) == 0 {
		return nil
	}
	created := s.index.Annotations[dmv1.AnnotationCreated] != ""
	var again time.Duration
	if created {
		again = r.blockCompute(ctx, s, "data was lost at "+names(lost))
	}
	if s.index.Spec.Paused && s.index.Spec.Recovery.OnDataLoss == dmv1.OnDataLossRecreate {
		return outcome.WaitFor(dmv1.ReasonMemoryLost, "data was lost at "+names(lost)+". The index answers no requests; it is created again, "+contentOf(s.index)+", once spec.paused is false", again)
	}
	// Data that was lost while the index was loaded is in the backup: nobody need decide.
	if created && s.index.Spec.Recovery.OnDataLoss != dmv1.OnDataLossRecreate && (!decision.Loading(s.index) || s.index.Spec.Paused) {
		for _, c := range s.compute {
			if podstate.Leaving(c.pod) && !podstate.Going(c.pod) { // there is nothing to hand over
				if err := serverpod.Delete(ctx, &r.Base, c.pod, "it leaves, and data was lost: there is nothing to hand over"); err != nil {
					return err
				}
			}
		}
		return outcome.WaitFor(dmv1.ReasonMemoryLost, "data was lost at "+names(lost)+". The index answers no requests until you decide: set spec.recovery.onDataLoss to Recreate to start again with an empty index and restore a dump into it, or delete it", again)
	}
	if created {
		r.Events.Eventf(s.index, nil, corev1.EventTypeWarning, dmv1.ReasonRecreating, "Recreate", "data was lost at %s; the index starts again, %s", names(lost), contentOf(s.index))
	}
	if err := r.startAgain(ctx, s.index); err != nil {
		return err
	}
	return outcome.WaitFor(dmv1.ReasonRecreating, "data was lost at "+names(lost)+"; the index is created again, "+contentOf(s.index), outcome.RequeueSoon)
}

// contentOf is what an index that is made anew has at first.
func contentOf(index *dmv1.DMIndex) string {
	if from := index.Spec.Recovery.FromBackup; from != nil {
		return "loaded from backup " + cmp.Or(from.Name, "of schedule "+from.Schedule)
	}
	return "empty"
}

// blockCompute has the compute servers answer nothing any more: those that still reach the memory
// that is left would answer from it. It says when to look again for those that could not be told; 0
// = all know.
func (r *Reconciler) blockCompute(ctx context.Context, s *scope, reason string) (again time.Duration) {
	failed := make([]bool, len(s.compute))
	servers.Each(len(s.compute), func(i int) {
		c := &s.compute[i]
		if c.described == nil { // it runs no more, or not yet: it will be asked again
			failed[i] = c.pod.Status.Phase == corev1.PodRunning
			return
		}
		if c.described.DataLost != "" || c.described.Index != decision.Identity(s.index) {
			return
		}
		client, err := r.Dialer.Compute(servers.TargetOf(c.pod, config.PortRPC, s.authority))
		if err == nil {
			defer client.Close()
			err = client.Block(ctx, reason)
		}
		failed[i] = err != nil
	})
	if slices.Contains(failed, true) {
		return outcome.RequeueSoon
	}
	return 0
}

// chooseMemory remembers on which memory servers the index is made, before anything is written
// there.
func (r *Reconciler) chooseMemory(ctx context.Context, s *scope) error {
	if s.verdict.recorded {
		return nil
	}
	if pools := s.withoutDisk(); pools != "" && s.index.Spec.Durability == dmv1.DurabilityPersistent {
		return outcome.WaitFor(dmv1.ReasonNotPersistent, "durability is Persistent, and these memory pools have no persistence: "+pools+": name pools with persistence in a new index, or write another durability", 0)
	}
	if message := s.missingMemory(); message != "" {
		for _, p := range s.memoryPools {
			if len(p.problems) > 0 {
				return outcome.WaitFor(dmv1.ReasonNodeUnfit, message, outcome.RequeueSoon)
			}
		}
		if t := s.poolTrouble(); t != nil {
			return outcome.WaitFor(t.reason, t.message, outcome.RequeueSoon)
		}
		return outcome.WaitFor(dmv1.ReasonWaitingForMemory, message, outcome.RequeueSoon)
	}
	recorded, of := map[uint16]uint64{}, map[int][]int{}
	for _, m := range s.verdict.servers {
		recorded[m.id] = m.incarnation
		ordinal, id := build.MemoryServerVolume(m.id)
		of[ordinal] = append(of[ordinal], id)
	}
	for ordinal, ids := range of {
		if err := volume.MarkUsed(ctx, &r.Base, s.memoryPools[ordinal].pool, s.memoryPools[ordinal].pods, ids); err != nil {
			return err
		}
	}
	text, err := json.Marshal(recorded)
	if err != nil {
		return err
	}
	if err := r.Annotate(ctx, s.index, map[string]string{dmv1.AnnotationMemory: string(text)}); err != nil {
		return err
	}
	s.verdict.recorded = true
	return nil
}

// notToldUsed are pods with memory of the index whose servers may still begin anew with an empty
// disk (memorypool_disks.go).
func (s *scope) notToldUsed() (names []string) {
	for ordinal, p := range s.memoryPools {
		if p.pool == nil || !volume.IsPersistent(p.pool) {
			continue
		}
		for _, m := range s.verdict.servers {
			of, volume := build.MemoryServerVolume(m.id)
			i := slices.IndexFunc(p.pods, func(p *corev1.Pod) bool { return podstate.VolumeOf(p) == volume })
			if of == ordinal && (i < 0 || p.pods[i].Annotations[dmv1.AnnotationUsed] == "") {
				names = append(names, m.pod)
			}
		}
	}
	return names
}

// transports are those of the memory pools as servers call them. Where all have TCP nothing need be
// said.
func (s *scope) transports() []string {
	names, any := make([]string, len(s.memoryPools)), false
	for i, p := range s.memoryPools {
		names[i] = config.TransportTCP
		if p.pool != nil && p.pool.Spec.Transport == dmv1.TransportRDMA {
			names[i], any = config.TransportIBV, true
		}
	}
	if !any {
		clear(names)
	}
	return names
}

// configure writes what compute servers must know of the index. From then on they can answer
// requests, so from then on lost memory is lost data.
func (r *Reconciler) configure(ctx context.Context, s *scope) error {
	if names := s.notToldUsed(); len(names) > 0 && s.index.Annotations[dmv1.AnnotationCreated] == "" {
		return outcome.WaitFor(dmv1.ReasonWaitingForMemory, "not all servers know that their disks are used: "+strings.Join(names, ", "), outcome.RequeueSoon)
	}
	if err := r.Annotate(ctx, s.index, map[string]string{dmv1.AnnotationCreated: "true"}); err != nil {
		return err
	}
	transports := s.transports()
	var servers []config.MemoryServer
	joined, err := decision.JoinedTo(s.index)
	if err != nil {
		return err
	}
	for _, m := range s.verdict.servers {
		if _, is := joined[m.id]; is {
			continue // the home tells of them
		}
		ordinal, _ := build.MemoryServerVolume(m.id)
		control, copies := s.addressesOf(m)
		servers = append(servers, config.MemoryServer{Transport: transports[ordinal], ID: m.id, Pod: m.pod, Incarnation: m.incarnation, Control: control, Copies: copies})
	}
	configMap, err := build.ConfigMap(s.index, build.IndexConfig(s.index, decision.Identity(s.index), servers))
	if err != nil {
		return err
	}
	return r.Apply(ctx, s.index, configMap)
}
