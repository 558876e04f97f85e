// Package kubelettest is a kubelet as device plugins see it, for tests: it takes registrations,
// watches devices, asks for allocations, starts anew, and says what plugins advertise.
package kubelettest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// limit is how long to wait for what a plugin does.
const limit = 30 * time.Second

// Kubelet is a fake one. Its methods fail the test when something does not work.
type Kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	podresources.UnimplementedPodResourcesListerServer

	t    testing.TB
	Dir  string
	life context.CancelFunc
	ctx  context.Context // of the connections since it was started
	grpc *grpc.Server
	done sync.WaitGroup

	mu            sync.Mutex
	changed       chan struct{}
	refuse        string
	silent        bool
	plugins       map[string]*plugin
	registrations map[string]int
	others        map[string][]string // resource of another plugin -> devices
}

// plugin is a registered one.
type plugin struct {
	conn    *grpc.ClientConn
	client  pluginapi.DevicePluginClient
	request *pluginapi.RegisterRequest
	devices map[string]*pluginapi.Device
	lists   int // how often it told its devices
	ended   bool
}

// Start starts one in a folder. It ends with the test.
func Start(t testing.TB, dir string) *Kubelet {
	t.Helper()
	k := &Kubelet{t: t, Dir: dir, changed: make(chan struct{}), registrations: map[string]int{}, others: map[string][]string{}}
	k.Up()
	t.Cleanup(k.Down)
	return k
}

// Up starts it, as after Down. As the real one it empties its folder first.
func (k *Kubelet) Up() {
	k.t.Helper()
	names, err := os.ReadDir(k.Dir)
	k.must(err)
	for _, n := range names {
		k.must(os.RemoveAll(filepath.Join(k.Dir, n.Name())))
	}
	k.ctx, k.life = context.WithCancel(context.Background())
	k.mu.Lock()
	k.plugins = map[string]*plugin{}
	k.mu.Unlock()
	l, err := net.Listen("unix", k.PodResources()+".new")
	k.must(err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	k.must(os.Rename(k.PodResources()+".new", k.PodResources())) // who sees the socket is answered
	k.grpc = grpc.NewServer()
	pluginapi.RegisterRegistrationServer(k.grpc, k)
	podresources.RegisterPodResourcesListerServer(k.grpc, k)
	k.done.Go(func() { _ = k.grpc.Serve(l) })
}

// Down ends it. Its socket goes, those of plugins stay.
func (k *Kubelet) Down() {
	if err := os.Remove(k.PodResources()); !os.IsNotExist(err) {
		k.must(err)
	}
	k.life()
	k.grpc.Stop()
	k.done.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.plugins {
		p.conn.Close()
	}
}

// PodResources is the socket by which the fake says what is advertised; the real one has another.
func (k *Kubelet) PodResources() string { return filepath.Join(k.Dir, "kubelet.sock") }

// Refuse makes registrations fail with a reason; empty = no more.
func (k *Kubelet) Refuse(reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuse = reason
}

// Silent makes it take registrations, but not watch.
func (k *Kubelet) Silent(silent bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.silent = silent
}

// Other makes it say that another plugin advertises devices.
func (k *Kubelet) Other(resource string, devices ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.others[resource] = devices
}

// notify tells those who wait to look again. The lock is held.
func (k *Kubelet) notify() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// Register implements the kubelet's API.
func (k *Kubelet) Register(_ context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.notify()
	k.registrations[r.ResourceName]++
	if k.refuse != "" {
		return nil, status.Error(codes.Unknown, k.refuse)
	}
	conn, err := grpc.NewClient("unix:"+filepath.Join(k.Dir, r.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	if old := k.plugins[r.ResourceName]; old != nil {
		old.conn.Close()
	}
	p := &plugin{conn: conn, client: pluginapi.NewDevicePluginClient(conn), request: r}
	k.plugins[r.ResourceName] = p
	if !k.silent {
		ctx := k.ctx
		k.done.Go(func() { k.watch(ctx, p) })
	}
	return &pluginapi.Empty{}, nil
}

func (k *Kubelet) watch(ctx context.Context, p *plugin) {
	stream, err := p.client.ListAndWatch(ctx, &pluginapi.Empty{})
	for err == nil {
		var list *pluginapi.ListAndWatchResponse
		if list, err = stream.Recv(); err == nil {
			k.mu.Lock()
			p.lists++
			p.devices = map[string]*pluginapi.Device{}
			for _, d := range list.Devices {
				p.devices[d.ID] = d
			}
			k.notify()
			k.mu.Unlock()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p.ended = true
	p.devices = nil
	k.notify()
}

// GetAllocatableResources implements the PodResources API.
func (k *Kubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &podresources.AllocatableResourcesResponse{}
	for name, devices := range k.others {
		r.Devices = append(r.Devices, &podresources.ContainerDevices{ResourceName: name, DeviceIds: devices})
	}
	for name, p := range k.plugins {
		r.Devices = append(r.Devices, &podresources.ContainerDevices{ResourceName: name, DeviceIds: slices.Sorted(maps.Keys(p.devices))})
	}
	return r, nil
}

// State is what the kubelet knows of a resource.
type State struct {
	Capacity, Allocatable int
	Registrations         int  // ever
	Lists                 int  // of devices, since the last registration
	Watching              bool // the plugin's stream is open
}

// State of a resource.
func (k *Kubelet) State(resource string) State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state(resource)
}

func (k *Kubelet) state(resource string) State {
	s := State{Registrations: k.registrations[resource]}
	p := k.plugins[resource]
	if p == nil {
		return s
	}
	s.Capacity, s.Lists, s.Watching = len(p.devices), p.lists, p.lists > 0 && !p.ended
	for _, d := range p.devices {
		if d.Health == pluginapi.Healthy {
			s.Allocatable++
		}
	}
	return s
}

// Await waits until the state of a resource is as it should be.
func (k *Kubelet) Await(resource, what string, ok func(State) bool) State {
	k.t.Helper()
	expired := time.After(limit)
	for {
		k.mu.Lock()
		now, changed := k.state(resource), k.changed
		k.mu.Unlock()
		if ok(now) {
			return now
		}
		select {
		case <-changed:
		case <-expired:
			k.t.Fatalf("not within %v: %s: %s; it is %+v", limit, resource, what, now)
		}
	}
}

// Has waits until a resource has a capacity and of that an allocatable part.
func (k *Kubelet) Has(resource string, capacity, allocatable int) State {
	k.t.Helper()
	return k.Await(resource, fmt.Sprintf("%d of %d allocatable", allocatable, capacity), func(s State) bool {
		return s.Watching && s.Capacity == capacity && s.Allocatable == allocatable
	})
}

// Devices of a resource by ID.
func (k *Kubelet) Devices(resource string) map[string]*pluginapi.Device {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.plugins[resource]; p != nil {
		return maps.Clone(p.devices)
	}
	return nil
}

// Client calls the plugin of a resource.
func (k *Kubelet) Client(resource string) pluginapi.DevicePluginClient {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.plugins[resource]
	if p == nil {
		k.t.Fatalf("nobody has registered %s", resource)
	}
	return p.client
}

// Allocate asks for what a container with certain devices gets.
func (k *Kubelet) Allocate(resource string, ids ...string) (*pluginapi.ContainerAllocateResponse, error) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	reply, err := k.Client(resource).Allocate(ctx, &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
	})
	if err != nil {
		return nil, err
	}
	if len(reply.ContainerResponses) != 1 {
		k.t.Fatalf("%d answers for one container", len(reply.ContainerResponses))
	}
	return reply.ContainerResponses[0], nil
}

func (k *Kubelet) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}
