//go:build ibv

package pooltest

import (
	"sync"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/ibv"
)

// One device serves all clusters of the process: nobody closes it.
func init() {
	device := sync.OnceValues(func() (verbs.Device, error) { return ibv.NewDevice(ibv.Options{}) })
	server := func(o verbs.ServerOptions) (verbs.Server, error) { return ibv.NewServer(ibv.Options{}, o) }
	providers = append(providers, provider{"ibv", "tcp", device, server})
}
