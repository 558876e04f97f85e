package computeserver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/memserver"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	_ "github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
)

// onSherman makes every server of a cluster open the same Sherman tree on a memory server of this
// process.
func onSherman(t *testing.T) func(*Config) {
	t.Helper()
	memory, err := memserver.New(memserver.Config{
		ID: 1, MemoryBytes: 256 << 20, Control: "127.0.0.1:0", Fabric: "127.0.0.1:0", Insecure: true, Version: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- memory.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("memory server: %v", err)
		}
	})
	address := memory.Addresses().Control
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	admit, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err = rpcv1.NewMemoryClient(conn).Admit(admit, &rpcv1.AdmitRequest{Index: computeservertest.Index, QuotaChunks: 24}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return func(cfg *Config) {
		cfg.Index.Design = "sherman"
		cfg.Index.MemoryServers = []config.MemoryServer{{ID: 1, Control: address}}
		device := tcp.NewDevice()
		client, err := control.New(control.Config{
			Index: computeservertest.Index, Name: fmt.Sprintf("test-%d", cfg.ID), Provider: "tcp", Servers: []control.Server{{ID: 1, Control: address}},
		})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Open = func() (ownership.Opened, error) {
			p, err := pool.Open(pool.Config{Env: env.Real(), Control: client, Devices: []verbs.Device{device}, Identity: computeservertest.Index, Limit: 10 * time.Second})
			if err != nil {
				return nil, err
			}
			design, err := index.Lookup("sherman")
			if err != nil {
				return nil, err
			}
			ix, err := design.Open(p, index.Options{MaxKeyBytes: 512, MaxValueBytes: 2048})
			if err != nil {
				return nil, err
			}
			return &closing{ix, p}, nil
		}
	}
}

// closing is an index that closes its pool, too.
type closing struct {
	index.Index
	pool *pool.Pool
}

func (c *closing) Close() error         { return errors.Join(c.Index.Close(), c.pool.Close()) }
func (c *closing) Alive() error         { return c.pool.Alive() }
func (c *closing) Condemn(reason error) { c.pool.Condemn(reason) }

// The tests of scans and of maps that change, with a real tree below.

func TestShermanScansAgainstAModel(t *testing.T) {
	scansAgainstAModel(t, onSherman(t), config.RoutingOwner)
}

func TestShermanMapsChangeUnderLoad(t *testing.T) {
	mapsChangeUnderLoad(t, onSherman(t), config.RoutingOwner)
}
