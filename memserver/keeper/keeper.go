//env:real calls of gRPC and their limits are of the machine

// Package keeper does for one volume what the operator does in Kubernetes: it asks the memory
// servers that have a copy, decides by volumes.Step who serves, and tells them. Its record is in
// this process's memory: a volume has one keeper, and ends with it.
package keeper

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// Pod is a memory server with a copy, or one that may get one.
type Pod struct {
	Name    string // by which views name it
	Control string // host:port of its control service
	Moving  bool   // its copy shall be elsewhere
}

// Config of a keeper.
type Config struct {
	Volume uint32 // its number
	Copies int    // wanted: 1 or 2
	// Suspect is how long a process must be missed before it is replaced, Look the time between two
	// looks at all pods.
	Suspect, Look time.Duration
	// Pods returns those there are. One that is missing is gone for good, with its content.
	Pods func() []Pod
	// Make makes another pod.
	Make func() error
	// Delete ends a pod for good.
	Delete func(name string)
	// Changed, unless nil, is called by Run when there is another view or status: why says what led
	// to the view, or what is waited for. It must not wait.
	Changed func(v volumes.View, s volumes.Status, why string)
	Logger  *slog.Logger
}

// Keeper keeps one volume.
type Keeper struct {
	config Config
	began  time.Time
	memory volumes.Memory
	conns  map[string]*grpc.ClientConn // by address

	mu     sync.Mutex
	record volumes.View
	status volumes.Status
	pods   []Pod         // as seen last
	news   chan struct{} // closed and replaced when something changed
}

// New makes a keeper; Run runs it.
func New(c Config) *Keeper {
	return &Keeper{config: c, began: time.Now(), conns: map[string]*grpc.ClientConn{}, news: make(chan struct{})}
}

const (
	tellLimit   = 5 * time.Second
	silentLimit = 500 * time.Millisecond // of a question to a pod that did not answer the last one
	joinBackoff = 500 * time.Millisecond
)

// Run keeps the volume until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	defer func() {
		for _, c := range k.conns {
			c.Close()
		}
	}()
	look := time.NewTicker(k.config.Look)
	defer look.Stop()
	for ctx.Err() == nil {
		if k.step(ctx) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-look.C:
		}
	}
}

// View returns the newest view, how the volume is, and the pod of its primary.
func (k *Keeper) View() (v volumes.View, s volumes.Status, primary Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.Name == k.record.Primary.Pod {
			primary = p
		}
	}
	return k.record, k.status, primary
}

// Await waits until the volume is as is says, or ctx ends.
func (k *Keeper) Await(ctx context.Context, is func(volumes.View, volumes.Status) bool) error {
	for {
		k.mu.Lock()
		news, v, s := k.news, k.record, k.status
		k.mu.Unlock()
		if is(v, s) {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("volume %d is %s in view %v: %w", k.config.Volume, s, v, context.Cause(ctx))
		}
	}
}

// step looks and acts once; again: the next look should follow at once.
func (k *Keeper) step(ctx context.Context) (again bool) {
	pods := k.config.Pods()
	for address, c := range k.conns {
		if !slices.ContainsFunc(pods, func(p Pod) bool { return p.Control == address }) {
			c.Close()
			delete(k.conns, address)
		}
	}
	o := volumes.Observed{Record: k.record, Copies: k.config.Copies, SuspectAfter: k.config.Suspect, JoinBackoff: joinBackoff, Memory: k.memory}
	reports := make([]*rpcv1.ReportVolumeReply, len(pods))
	var asking sync.WaitGroup
	begun := time.Since(k.began)
	for i, p := range pods {
		client, limit := k.client(p), k.config.Suspect/2
		if k.memory.IsSilent(p.Name) {
			limit = min(limit, silentLimit)
		}
		asking.Go(func() {
			soon, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			// a pod that does not answer is missed
			reports[i], _ = client.Report(soon, &rpcv1.ReportVolumeRequest{Volume: k.config.Volume, Pod: p.Name})
		})
	}
	asking.Wait()
	mirrors := map[string]string{}
	for i, p := range pods {
		seen := volumes.Pod{Name: p.Name, Version: p.Name, Moving: p.Moving}
		if reports[i] != nil {
			// another process may have got the port of one that ended
			if r, err := control.ReportIn(reports[i]); err == nil && r.Proc.Pod == p.Name {
				seen.Report = &r
				mirrors[p.Name] = reports[i].Mirror
			}
		} else {
			o.Memory = o.Memory.Silent(p.Name, begun)
		}
		o.Pods = append(o.Pods, seen)
	}
	o.Now = time.Since(k.began)
	a := volumes.Step(o)
	k.memory = a.Memory
	if k.note(o.Record, a, pods) && k.config.Changed != nil {
		why := a.Waiting
		if a.Record != nil {
			why = a.Reason
		}
		k.config.Changed(k.record, a.Status, why)
	}
	again = a.Record != nil
	if again { // those that have to hear of it do at once: to ask all of them takes time again
		o.Record, o.Memory = *a.Record, a.Memory
		a = volumes.Actions{Tell: volumes.Step(o).Tell}
	}
	k.act(ctx, &o, &a, pods, mirrors)
	return again || len(a.Tell) > 0 || a.Stop != ""
}

// note keeps what was decided: the record before anybody is told. It reports whether view or status
// changed.
func (k *Keeper) note(record volumes.View, a volumes.Actions, pods []Pod) (changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a.Record != nil {
		k.record = *a.Record
		k.config.Logger.Info("a view of a volume", "volume", k.config.Volume, "view", k.record.String(), "because", a.Reason)
	}
	changed = k.status != a.Status || k.record != record
	if !changed && slices.Equal(k.pods, pods) {
		return false
	}
	k.status, k.pods = a.Status, pods
	close(k.news)
	k.news = make(chan struct{})
	return changed
}

func (k *Keeper) act(ctx context.Context, o *volumes.Observed, a *volumes.Actions, pods []Pod, mirrors map[string]string) {
	soon, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	failed := func(what, pod string, err error) {
		if err != nil && ctx.Err() == nil {
			k.config.Logger.Warn("a memory server does not do what its volume needs", "volume", k.config.Volume, "pod", pod, "what", what, "err", err)
		}
	}
	copies := make([]*rpcv1.VolumeCopy, len(pods))
	for i, p := range pods {
		copies[i] = &rpcv1.VolumeCopy{Pod: p.Name, Control: p.Control}
	}
	for _, name := range a.Tell {
		_, err := k.named(pods, name).Obey(soon, &rpcv1.ObeyViewRequest{Volume: k.config.Volume, View: control.ViewOut(o.Record), Copies: copies})
		failed("obey", name, err)
	}
	if j := a.Join; j != nil {
		_, err := k.named(pods, j.Primary.Pod).Join(soon, &rpcv1.JoinCopyRequest{
			Volume: k.config.Volume, View: o.Record.Number, Copy: control.ProcOut(j.Copy), Mirror: mirrors[j.Copy.Pod],
		})
		failed("join", j.Primary.Pod, err)
	}
	if a.Stop != "" {
		_, err := k.named(pods, a.Stop).Stop(soon, &rpcv1.StopPrimaryRequest{Volume: k.config.Volume, View: o.Record.Number})
		failed("stop", a.Stop, err)
	}
	for range a.MakePods {
		if err := k.config.Make(); err != nil {
			failed("start", "another one", err)
		}
	}
	for _, p := range a.DeletePods {
		k.config.Delete(p.Name)
	}
}

func (k *Keeper) named(pods []Pod, name string) rpcv1.VolumeClient {
	return k.client(pods[slices.IndexFunc(pods, func(p Pod) bool { return p.Name == name })])
}

func (k *Keeper) client(p Pod) rpcv1.VolumeClient {
	c := k.conns[p.Control]
	if c == nil {
		var err error
		if c, err = control.Dial(p.Control, nil); err != nil {
			return refused{err: err}
		}
		k.conns[p.Control] = c
	}
	return rpcv1.NewVolumeClient(c)
}

// refused is a client of an address that cannot be one.
type refused struct {
	rpcv1.VolumeClient
	err error
}

// Report implements rpcv1.VolumeClient. Who gives no report is asked nothing else.
func (r refused) Report(context.Context, *rpcv1.ReportVolumeRequest, ...grpc.CallOption) (*rpcv1.ReportVolumeReply, error) {
	return nil, r.err
}
