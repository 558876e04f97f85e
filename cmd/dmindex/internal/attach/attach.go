// Package attach opens an index from its configuration: control path, fabric, pool and design put
// together.
package attach

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/index"
	_ "github.com/dmindex/dmindex/pkg/index/chime" // registers itself, as the next
	_ "github.com/dmindex/dmindex/pkg/index/dex"
	_ "github.com/dmindex/dmindex/pkg/index/dolphin"
	_ "github.com/dmindex/dmindex/pkg/index/sherman"
	_ "github.com/dmindex/dmindex/pkg/index/smart"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/ibv"
	"github.com/dmindex/dmindex/pkg/verbs/shm"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
)

// Providers are the fabrics that this program speaks.
var Providers = []string{"shm", "tcp", "ibv"}

// Fabric says how to reach memory servers.
type Fabric struct {
	Provider   string // one of Providers: of memory servers whose configuration names none
	RDMADevice string // for "ibv"; empty = the first with an active port
	TLS        bool   // memory is reached under TLS only, which "tcp" alone has
	// is told of asynchronous events of an RDMA device, as ibv.Options says; nil = nobody is
	Report func(device, event string, note bool)
}

// RDMA reports whether an index is reached by RDMA, all or a part of it.
func (f Fabric) RDMA(c *config.Index) bool {
	for _, s := range c.MemoryServers {
		if s.Transport == config.TransportIBV || s.Transport == "" && f.Provider == "ibv" {
			return true
		}
	}
	return false
}

// device makes the device of a provider. files is nil where connections over tcp are in the clear.
func (f Fabric) device(provider string, files *identity.Files) (verbs.Device, error) {
	switch provider {
	case "shm":
		return shm.NewDevice(), nil
	case "tcp":
		if files != nil {
			return tcp.NewTLSDevice(func(server string) *tls.Config { return files.ClientConfig(server, tcp.Protocol) }), nil
		}
		return tcp.NewDevice(), nil
	case "ibv":
		return ibv.NewDevice(ibv.Options{Device: f.RDMADevice, Report: f.Report})
	}
	return nil, fmt.Errorf("transport %q: there are %v", provider, Providers)
}

// Memory is the memory servers of an index, as one client reaches them.
type Memory struct {
	Control *control.Client
	// proves earlier clients of the name dead; nil proves none; set before Open
	Guard   pool.Guard
	maps    *control.Client // apart, so that a long poll can be cut short
	config  *config.Index
	devices []verbs.Device // one for each provider
	paths   []computeserver.MemoryPath
}

// New makes a client of the memory servers in c; nothing is dialled yet. name is this process
// alone: an earlier client of the name has ended, and is fenced when the index is opened. files =
// nil is without TLS.
func New(c *config.Index, name string, fabric Fabric, files *identity.Files) (*Memory, error) {
	m := &Memory{config: c}
	var overTLS *identity.Files
	if fabric.TLS {
		if overTLS = files; files == nil {
			return nil, errors.New("memory is to be reached under TLS (--fabric-tls): name a directory with a certificate (--tls-dir)")
		}
	}
	servers := make([]control.Server, len(c.MemoryServers))
	for i, s := range c.MemoryServers {
		servers[i] = control.Server{ID: s.ID, Control: s.Control, Copies: s.Copies, Incarnation: s.Incarnation, Provider: s.Transport}
		if servers[i].Provider == "" {
			servers[i].Provider = fabric.Provider
		}
		if servers[i].TLS = fabric.TLS; fabric.TLS && servers[i].Provider != config.TransportTCP {
			return nil, errors.Join(fmt.Errorf("memory is to be reached under TLS (--fabric-tls), and memory server %d has transport %s: only %s has TLS",
				s.ID, servers[i].Provider, config.TransportTCP), m.closeDevices())
		}
		d, err := m.deviceOf(fabric, servers[i].Provider, overTLS)
		if err != nil {
			return nil, errors.Join(err, m.closeDevices())
		}
		m.paths = append(m.paths, pathBy(d, s.ID))
	}
	var err error
	cc := control.Config{Index: c.Identity, Name: name, Servers: servers, TLS: files}
	if m.Control, err = control.New(cc); err != nil {
		return nil, errors.Join(err, m.closeDevices())
	}
	m.maps = m.Control.Apart()
	return m, nil
}

// deviceOf is the device of a provider, which is opened unless it is there.
func (m *Memory) deviceOf(fabric Fabric, provider string, files *identity.Files) (verbs.Device, error) {
	for _, d := range m.devices {
		if d.Provider() == provider {
			return d, nil
		}
	}
	d, err := fabric.device(provider, files)
	if err == nil {
		m.devices = append(m.devices, d)
	}
	return d, err
}

// Paths are those to the memory servers, in the order of the configuration, and then to those that
// joined the index and that this process reaches.
func (m *Memory) Paths() []computeserver.MemoryPath {
	paths := slices.Clone(m.paths)
	for _, s := range m.Control.Newcomers() {
		for _, d := range m.devices {
			if d.Provider() == s.Provider {
				paths = append(paths, pathBy(d, s.ID))
			}
		}
	}
	return paths
}

func pathBy(d verbs.Device, server uint16) computeserver.MemoryPath {
	path := computeserver.MemoryPath{Server: server, Provider: d.Provider()}
	if named, ok := d.(verbs.OfDevice); ok {
		path.Device = named.DeviceName()
	}
	return path
}

func (m *Memory) closeDevices() error {
	var errs []error
	for _, d := range m.devices {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// Open connects to all memory servers and opens the index, or makes it if it is new, with a cache
// of so many bytes; 0 = the design's default. The error wraps index.ErrDataLost if a memory server
// came back without its content.
func (m *Memory) Open(cache int, limit time.Duration) (*Index, error) {
	most := m.config.MaxValueBytes
	if m.config.Expires() {
		most += expiry.Bytes
	}
	design, err := index.Lookup(m.config.Design)
	if err != nil {
		return nil, err
	}
	return m.OpenWith(design, index.Options{
		Uint64:        m.config.KeyType == config.KeyUint64,
		MaxKeyBytes:   m.config.MaxKeyBytes,
		MaxValueBytes: most,
		NodeBytes:     m.config.NodeBytes,
		CacheBytes:    cache,
	}, limit)
}

// OpenWith is Open of a design with options, whatever the configuration says of them.
func (m *Memory) OpenWith(design index.Design, o index.Options, limit time.Duration) (*Index, error) {
	p, err := pool.Open(pool.Config{
		Env: env.Real(), Control: m.Control, Devices: m.devices, Identity: m.config.Identity, Limit: limit, Guard: m.Guard,
	})
	if err != nil {
		if errors.Is(err, verbs.ErrLostMemory) {
			err = fmt.Errorf("%w: %w", index.ErrDataLost, err)
		}
		return nil, fmt.Errorf("open the memory of the index: %w", err)
	}
	i, err := design.Open(p, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the index: %w", err), p.Close())
	}
	return &Index{i, p}, nil
}

// Close ends the control path and the devices. Indexes must be closed before.
func (m *Memory) Close() error {
	m.Maps().Close()
	return errors.Join(m.Control.Close(), m.closeDevices())
}

// Readdress takes where the memory servers are by now, as their index's configuration says. Nothing
// else of that changes.
func (m *Memory) Readdress(c *config.Index) {
	if c.Identity != m.config.Identity {
		return
	}
	for i := range c.MemoryServers {
		m.Control.Give(c.MemoryServers[i].ID, c.MemoryServers[i].Addresses())
	}
}

// Index is an open index and the pool that is its client's: it implements ownership.Opened.
type Index struct {
	index.Index
	pool *pool.Pool
}

// Alive is nil while this client holds its leases on all memory servers; it wraps index.ErrFenced.
func (i *Index) Alive() error { return i.pool.Alive() }

// Condemn gives this client up; what remains to do is Close.
func (i *Index) Condemn(reason error) { i.pool.Condemn(reason) }

// Close closes the pool, too.
func (i *Index) Close() error { return errors.Join(i.Index.Close(), i.pool.Close()) }

// Maps is where a compute server gets its partition map: the home memory server.
func (m *Memory) Maps() Maps { return Maps{m.maps} }

// Maps reads partition maps over a control path of its own.
type Maps struct{ control *control.Client }

// Map implements engine.MapSource.
func (s Maps) Map(newerThan uint64, wait time.Duration) ([]byte, error) {
	_, encoded, err := s.control.Map(newerThan, wait, pool.DefaultLimit)
	return encoded, err
}

// Close ends the Map that waits, and all later ones.
func (s Maps) Close() {
	_ = s.control.Close() // nothing is sent on it any more
}
