package deviceplugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	callLimit  = 5 * time.Second  // for a call to the kubelet
	watchLimit = 10 * time.Second // within which a kubelet that was registered with begins to watch
	kubeletAt  = "kubelet.sock"   // in its folder of device plugins
)

// registration is with which kubelet a server is registered.
type registration struct {
	kubelet identity // of its socket; zero = none
	since   time.Time
}

// register registers the server with the kubelet, if it is not: it never was, or the kubelet has
// started anew since (its socket is another one), or it has stopped watching. Errors are of calls;
// the next round tries again.
func (s *server) register(ctx context.Context, dir string, kubelet identity, now time.Time) error {
	if kubelet == (identity{}) {
		s.registration.kubelet = identity{}
		return fmt.Errorf("the kubelet has no socket %s: it is starting, or another folder is mounted there", filepath.Join(dir, kubeletAt))
	}
	r := &s.registration
	if r.kubelet == kubelet && (s.watched() > 0 || now.Sub(r.since) < watchLimit) {
		return nil
	}
	if r.kubelet == kubelet {
		s.log.Warn("the kubelet does not watch any more; does another plugin advertise the same resource?", "resource", s.resource)
	}
	r.kubelet = identity{}
	if err := s.callRegister(ctx, filepath.Join(dir, kubeletAt)); err != nil {
		return err
	}
	r.kubelet, r.since = kubelet, now
	s.metrics.registrations.WithLabelValues(s.resource).Inc()
	s.log.Info("registered with the kubelet", "resource", s.resource)
	return nil
}

func (s *server) callRegister(ctx context.Context, socket string) error {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("register %s: %w", s.resource, err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(s.socket), ResourceName: s.resource, Options: options(),
	})
	if err != nil {
		return fmt.Errorf("register %s with the kubelet: %w", s.resource, err)
	}
	return nil
}

// registered reports whether the kubelet knows and watches us.
func (s *server) registered() bool { return s.registration.kubelet != (identity{}) && s.watched() > 0 }

func inodeOf(info os.FileInfo) (device, inode uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), st.Ino
	}
	return 0, 0
}
