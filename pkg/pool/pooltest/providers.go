package pooltest

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/shm"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
)

// provider makes both halves of a fabric.
type provider struct {
	name    string
	network string // of its listener
	device  func() (verbs.Device, error)
	server  func(verbs.ServerOptions) (verbs.Server, error)
}

// providers are those of this build; the files of build tags add theirs.
var providers = []provider{
	{"shm", "unix", func() (verbs.Device, error) { return shm.NewDevice(), nil }, shm.NewServer},
	{"tcp", "tcp", func() (verbs.Device, error) { return tcp.NewDevice(), nil }, tcp.NewServer},
}

// Providers are the names of the fabrics that this program was built with.
func Providers() (names []string) {
	for _, p := range providers {
		names = append(names, p.name)
	}
	return names
}

// Devices are the client's halves of all of them.
func Devices() (list []verbs.Device, err error) {
	for _, p := range providers {
		d, err := p.device()
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

func find(name string) (*provider, error) {
	for i := range providers {
		if providers[i].name == name {
			return &providers[i], nil
		}
	}
	return nil, fmt.Errorf("pooltest: unknown provider %q; this program was built with %v", name, Providers())
}
