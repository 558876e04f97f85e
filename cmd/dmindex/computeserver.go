package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/attach"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/guard"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/preflight"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/version"
	"github.com/dmindex/dmindex/computeserver"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/computeserver/resp"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/logs"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/profile"
	"github.com/dmindex/dmindex/pkg/settings"
)

// openLimit bounds each attempt of a compute server to open its index.
const openLimit = 10 * time.Second

// guardLimit bounds how long a compute server waits for the one before it to be gone.
const guardLimit = 10 * time.Second

// buffers is what a compute server registers with its RDMA device at least, for its sessions.
const buffers = 16 << 20

func computeserverCommand() *cobra.Command {
	c := computeserver.Config{Version: version.String()}
	var indexFile, tlsDir, name, guardDir, respMode, respDir string
	var fabric attach.Fabric
	var insecure bool
	var cache sizeFlag
	logConfig := logs.FromEnv(logs.Text)
	cmd := &cobra.Command{
		Use:     "computeserver",
		GroupID: "serve",
		Short:   "Serve an index: RESP and the SDK's port",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ix, err := config.ReadIndex(indexFile)
			if err != nil {
				return err
			}
			design, err := index.Lookup(ix.Design)
			if err != nil {
				return err
			}
			if insecure != (tlsDir == "") {
				return errors.New("name a TLS directory with --tls-dir, or say --insecure; not both")
			}
			if !insecure {
				if c.TLS, err = identity.Open(tlsDir); err != nil {
					return err
				}
				c.KeySalt = func() []byte {
					// an older operator writes none
					salt, _ := os.ReadFile(filepath.Join(tlsDir, config.KeySaltFile))
					return salt
				}
			}
			if c.RESPTLS, err = respTLS(respMode, cmp.Or(respDir, tlsDir)); err != nil {
				return err
			}
			if fabric.RDMADevice == "" {
				fabric.RDMADevice = givenDevice()
			}
			log, level, err := leveled(logConfig)
			if err != nil {
				return err
			}
			log = log.With("server", c.ID)
			if tlsDir != "" {
				c.Settings = settings.Open(filepath.Join(tlsDir, settings.FileName), level)
			}
			fabric.Report = func(device, event string, note bool) {
				if note {
					log.Warn("the RDMA device reports an event", "device", device, "event", event)
				}
			}
			var proof pool.Guard
			if guardDir != "" {
				if name == "" {
					return errors.New("--guard-dir is of the server of one name: give it one with --name")
				}
				taken, err := guard.Take(guardDir, guardLimit)
				if err != nil {
					return err
				}
				if why := taken.Useless(); why != nil {
					log.Warn("the guard directory proves nothing: when this process ends, its keys wait for its lease", "directory", guardDir, "reason", why)
				} else {
					proof = taken
				}
			}
			attached := func() (*attach.Memory, error) {
				m, err := attach.New(ix, name, fabric, c.TLS)
				if err == nil {
					m.Guard = proof
				}
				return m, err
			}
			needs := preflight.Needs{Device: fabric.RDMADevice, LockBytes: buffers}
			check := needs.Check
			if !fabric.RDMA(ix) {
				check = func() error { return nil }
			}
			ports := preflight.Ports{GRPC: c.ListenRPC, Metrics: c.ListenMetrics, TLS: c.TLS}
			memory, err := preflight.Start(cmd.Context(), check, attached, ports, preflight.Again, log)
			if err != nil {
				return withoutCanceled(cmd.Context(), err)
			}
			defer memory.Close()
			c.Index, c.SharesAll, c.Maps, c.Paths = ix, design.SharesAll, memory.Maps(), memory.Paths
			c.OnNews = memory.Control.OnNews
			c.Open = func() (ownership.Opened, error) {
				// else what is known counts
				if now, err := config.ReadIndex(indexFile); err == nil {
					memory.Readdress(now)
				}
				o, err := memory.Open(int(cache), openLimit)
				if err != nil {
					return nil, err
				}
				return o.Opened(), nil
			}
			c.Logger = log
			server, err := computeserver.New(c)
			if err != nil {
				return err
			}
			return server.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	logConfig.Add(f)
	f.Uint32Var(&c.ID, "id", 0, "number of this server in partition maps")
	f.StringVar(&name, "name", "", "name of this server, at most 64 bytes. No other running process may have it")
	f.StringVar(&guardDir, "guard-dir", os.Getenv(config.EnvGuardDir), "directory on local storage that successive processes of this server share. The running process locks it. "+
		"A process that finds it unlocked knows that its predecessor is dead, and takes its keys over at once. Empty = take-over waits until the lease expires")
	f.StringVar(&indexFile, "index-config", config.IndexFile, "file with the index to serve and the addresses of its memory servers")
	f.StringVar(&fabric.Provider, "transport", "tcp", "fabric for memory servers whose configuration names none: tcp, ibv (RDMA), or shm on one host")
	f.StringVar(&fabric.RDMADevice, "rdma-device", "", "RDMA device for --transport ibv; empty = the one assigned by the device plugin ($DMINDEX_RDMA_DEVICE), or the first with an active port")
	f.BoolVar(&fabric.TLS, "fabric-tls", os.Getenv(config.EnvFabricTLS) == "true", "reach memory servers under TLS only, which --transport tcp alone has, with the certificate of --tls-dir")
	f.StringVar(&c.ListenRESP, "resp", fmt.Sprintf(":%d", config.PortRESP), "address of RESP; empty = not served")
	f.StringVar(&respMode, "resp-tls", cmp.Or(os.Getenv(config.EnvRESPTLS), config.RESPTLSOff), "how --resp speaks: off (in the clear), required (under TLS only), or optional (both, while programs change over)")
	f.StringVar(&respDir, "resp-tls-dir", os.Getenv(config.EnvRESPTLSDir), "directory with tls.crt and tls.key for --resp-tls, read again when they change; empty = that of --tls-dir")
	f.StringVar(&c.ListenRPC, "rpc", fmt.Sprintf(":%d", config.PortRPC), "address of the SDK and of other compute servers")
	f.StringVar(&c.ListenMetrics, "metrics", fmt.Sprintf(":%d", config.PortMetrics), "address of /metrics, /healthz and /readyz; empty = not served")
	f.StringVar(&tlsDir, "tls-dir", "", "directory with tls.crt, tls.key, ca.crt and perhaps authorities.crt, read again when they change")
	f.BoolVar(&c.Pprof, profile.Flag, profile.FromEnv(), profile.Usage)
	f.BoolVar(&insecure, "insecure", false, "serve without TLS")
	f.StringVar(&c.Users.PasswordFile, "password-file", "", "file with the password of the user default, in the clear")
	f.StringVar(&c.Users.DefaultFile, "acl-file", os.Getenv(config.EnvDefaultACL), "ACL file of Redis with the user default and digests of its passwords; it counts in place of --password-file when it is there")
	f.StringVar(&c.Users.UsersFile, "users-file", os.Getenv(config.EnvUsersACL), "ACL file of Redis with further users; it may be missing")
	f.StringVar(&c.Users.ObjectsFile, "objects-file", os.Getenv(config.EnvObjectsACL), "the same, as the operator writes it from DMUser objects; a user that --users-file has too is that one's")
	f.BoolVar(&c.AllowNoPassword, "no-password", false, "accept clients without a password if no file has one")
	f.IntVar(&c.MaxConnections, "max-connections", 0, "most RESP connections at the same time (default 10000)")
	f.Var(&cache, "cache", "memory that caches the index; 0 = 64Mi")
	f.IntVar(&c.MaxSessions, "max-sessions", 0, "most requests that use the index at the same time (default 64)")
	return cmd
}

// respTLS is how RESP is encrypted, with the certificate of a directory; nil = it is not.
func respTLS(mode, dir string) (*resp.TLS, error) {
	switch mode {
	case config.RESPTLSOff:
		return nil, nil
	case config.RESPTLSOptional, config.RESPTLSRequired:
	default:
		return nil, fmt.Errorf("--resp-tls=%s: write %s, %s or %s", mode, config.RESPTLSOff, config.RESPTLSOptional, config.RESPTLSRequired)
	}
	if dir == "" {
		return nil, fmt.Errorf("--resp-tls=%s needs a certificate: name its directory with --resp-tls-dir", mode)
	}
	pair, err := identity.OpenPair(dir)
	if err != nil {
		return nil, err
	}
	return &resp.TLS{Config: pair.ServerConfig(), Optional: mode == config.RESPTLSOptional}, nil
}
