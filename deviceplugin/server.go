package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/dmindex/dmindex/deviceplugin/slots"
	"github.com/dmindex/dmindex/pkg/accept"
)

// stopLimit bounds how long a server waits for calls under way when it stops.
const stopLimit = 2 * time.Second

// server is what the kubelet sees of one resource: a gRPC service on a socket of its own. The
// kubelet's calls come at any time; all else is called by the plugin's loop only.
type server struct {
	pluginapi.UnimplementedDevicePluginServer

	resource string
	socket   string
	dev      string // where the machine's /dev is, for the kubelet
	log      *slog.Logger
	metrics  *metrics
	wake     func() // the loop should look at us

	grpc         *grpc.Server
	listening    identity // of the socket while grpc serves
	registration registration

	mu      sync.Mutex
	offer   offer
	changed chan struct{} // closed when the next offer is there
	streams int           // ListAndWatch calls under way
	ended   chan struct{} // closed when the streams are to end
}

// offer is what a server gives out.
type offer struct {
	set      *slots.Set
	cm       bool // and the connection manager
	topology bool // tell NUMA nodes
	sriov    bool // tell what the SR-IOV plugin would
}

// socketName is the file name of a resource's socket.
func socketName(resource string) string { return strings.ReplaceAll(resource, "/", "_") + ".sock" }

// listen serves on the socket, anew if it is gone: the kubelet empties the folder when it starts. A
// server that starts takes the socket over from whoever has it. One that finds another process at
// its socket later leaves it to that one while it lives: two that take it from each other would go
// on for ever.
func (s *server) listen() error {
	if s.grpc != nil {
		switch now := identify(s.socket); {
		case now == s.listening:
			return nil
		case now != identity{} && answers(s.socket):
			return fmt.Errorf("another process serves at %s: is a second device plugin running on this node? End one of them", s.socket)
		}
	}
	s.close()
	if err := os.Remove(s.socket); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove the socket of an earlier process: %w", err)
	}
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		return fmt.Errorf("listen at %s: %w; is the kubelet's folder of device plugins mounted there, writable?", s.socket, err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // by then it may be somebody else's
	s.grpc = grpc.NewServer(grpc.MaxConcurrentStreams(64), grpc.ConnectionTimeout(10*time.Second))
	pluginapi.RegisterDevicePluginServer(s.grpc, s)
	s.listening = identify(s.socket)
	s.registration = registration{}
	s.mu.Lock()
	s.ended = make(chan struct{})
	s.mu.Unlock()
	go s.grpc.Serve(accept.Patiently(l, nil)) //nolint:errcheck // ends with close; the loop looks at the socket
	return nil
}

// answers reports whether somebody listens at a socket. The kernel says so at once; what else goes
// wrong says nothing of that, so somebody may.
func answers(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err == nil {
		conn.Close()
	}
	return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, os.ErrNotExist)
}

// close ends the service; calls under way may finish.
func (s *server) close() {
	if s.grpc == nil {
		return
	}
	s.mu.Lock()
	close(s.ended)
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(stopLimit):
		s.grpc.Stop()
		<-done
	}
	s.grpc = nil
}

// stop ends the service for good and takes the socket away.
func (s *server) stop() error {
	s.close()
	if s.listening != identify(s.socket) {
		return nil // not ours
	}
	return os.Remove(s.socket)
}

// set makes an offer the one in force; the kubelet hears of it if its slots have changed.
func (s *server) set(o offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.offer
	s.offer = o
	if before.set == nil || before.topology != o.topology || !slices.Equal(before.set.Slots(), o.set.Slots()) {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// current is the offer in force, and what is closed when there is another one.
func (s *server) current() (offer, <-chan struct{}, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offer, s.changed, s.ended
}

// watched is how many ListAndWatch calls are under way.
func (s *server) watched() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams
}

func (s *server) countStream(n int) {
	s.mu.Lock()
	s.streams += n
	s.mu.Unlock()
	s.wake()
}

// GetDevicePluginOptions implements the kubelet's API.
func (s *server) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return options(), nil
}

func options() *pluginapi.DevicePluginOptions {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}
}

// ListAndWatch implements the kubelet's API: all slots, and all of them again whenever one has
// changed.
func (s *server) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	s.countStream(1)
	defer s.countStream(-1)
	for {
		now, changed, ended := s.current()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: now.devices()}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ended:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (o offer) devices() []*pluginapi.Device {
	var devices []*pluginapi.Device
	for _, slot := range o.set.Slots() {
		d := &pluginapi.Device{ID: slot.ID, Health: pluginapi.Unhealthy}
		if slot.Healthy {
			d.Health = pluginapi.Healthy
		}
		if o.topology && slot.NUMANode >= 0 {
			d.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(slot.NUMANode)}}}
		}
		devices = append(devices, d)
	}
	return devices
}

// GetPreferredAllocation implements the kubelet's API.
func (s *server) GetPreferredAllocation(_ context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	now, _, _ := s.current()
	reply := &pluginapi.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		picked, err := now.set.Prefer(c.AvailableDeviceIDs, c.MustIncludeDeviceIDs, int(c.AllocationSize))
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "%s: %v", s.resource, err)
		}
		reply.ContainerResponses = append(reply.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: picked})
	}
	return reply, nil
}

// Allocate implements the kubelet's API: what containers with certain slots get.
func (s *server) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	now, _, _ := s.current()
	reply := &pluginapi.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		hcas, err := now.set.Allocate(c.DevicesIds)
		if err != nil {
			s.metrics.allocations.WithLabelValues(s.resource, "refused").Inc()
			s.log.Warn("refused an allocation", "resource", s.resource, "slots", c.DevicesIds, "reason", err)
			return nil, status.Errorf(codes.FailedPrecondition, "%s: %v", s.resource, err)
		}
		env := environment(hcas)
		if now.sriov {
			maps.Copy(env, sriovEnvironment(s.resource, hcas, now.cm))
		}
		s.metrics.allocations.WithLabelValues(s.resource, "given").Inc()
		s.log.Info("allocated", "resource", s.resource, "slots", c.DevicesIds, "devices", env[EnvDevice])
		reply.ContainerResponses = append(reply.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Envs: env, Devices: deviceNodes(s.dev, hcas, now.cm),
		})
	}
	return reply, nil
}

// PreStartContainer implements the kubelet's API, which does not call it.
func (s *server) PreStartContainer(context.Context, *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, nil
}

// identity tells one file of a name from the next.
type identity struct {
	device, inode uint64
	born          time.Time
}

// identify is zero if there is no such file.
func identify(file string) identity {
	info, err := os.Stat(file)
	if err != nil {
		return identity{}
	}
	device, inode := inodeOf(info)
	return identity{device, inode, info.ModTime()}
}

func newServer(c Config, resource string, m *metrics, wake func()) *server {
	return &server{
		resource: resource, socket: filepath.Join(c.KubeletDir, socketName(resource)),
		dev: c.Dev, log: c.Log, metrics: m, wake: wake, changed: make(chan struct{}),
	}
}
