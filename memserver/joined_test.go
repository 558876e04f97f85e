package memserver

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
)

// TestServerJoins: a server joins an index over the wire. The home tells its clients, and names
// those that do not reach the server yet; a client uses it without being opened again; and the list
// survives a restart of the home.
func TestServerJoins(t *testing.T) {
	dir := t.TempDir()
	home, stop := start(t, dirConfig(dir))
	added, _ := start(t, dirConfig(t.TempDir()))
	config := func(name string) control.Config {
		// as compute servers name it: for each server
		return control.Config{Index: "a", Name: name, Servers: []control.Server{{ID: 7, Control: home.Addresses().Control, Provider: "tcp"}}}
	}
	c := must(control.New(config("")))
	defer c.Close()
	must(c.Admit(1, 8, limit))
	var own *control.Client // of the last client that was opened
	open := func(name string) *pool.Pool {
		t.Helper()
		own = must(control.New(config(name)))
		t.Cleanup(func(c *control.Client) func() { return func() { c.Close() } }(own))
		return must(pool.Open(pool.Config{Env: env.Real(), Control: own, Devices: []verbs.Device{tcp.NewDevice()}, Identity: "a", RenewEvery: 5 * time.Millisecond}))
	}
	p := open("one")
	one := own
	t.Cleanup(func() { p.Close() })
	for {
		if _, err := p.Allocate(64<<10, pool.Nil); err != nil {
			if !errors.Is(err, pool.ErrPoolFull) {
				t.Fatal(err)
			}
			break
		}
	}

	m, theirs := admin(t, home.Addresses().Control, nil), admin(t, added.Addresses().Control, nil)
	admitted := must(theirs.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "a", Locks: 8}))
	server := &rpcv1.JoinedServer{Id: 9, Control: added.Addresses().Control, Incarnation: admitted.Incarnation}
	note := func(state rpcv1.JoinedServer_State) {
		t.Helper()
		server.State = state
		if got := must(m.JoinServer(t.Context(), &rpcv1.JoinServerRequest{Index: "a", Server: server})); got.State != state {
			t.Errorf("the server has state %v, want %v", got.State, state)
		}
	}
	list := func() *rpcv1.ListServersReply {
		t.Helper()
		return must(m.ListServers(t.Context(), &rpcv1.ListServersRequest{Index: "a"}))
	}
	follow := func() {
		t.Helper()
		for end := time.Now().Add(limit); len(list().Behind) > 0; <-time.After(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("clients %v do not reach the server", list().Behind)
			}
		}
	}
	_, err := m.JoinServer(t.Context(), &rpcv1.JoinServerRequest{Index: "a", Server: &rpcv1.JoinedServer{Id: 9, Control: "x:1", State: rpcv1.JoinedServer_MEMBER}})
	wantCode(t, "a member that never joined", err, codes.NotFound, "never joined")
	_, err = m.JoinServer(t.Context(), &rpcv1.JoinServerRequest{Index: "a"})
	wantCode(t, "no server", err, codes.InvalidArgument, "server 0")
	silent := must(c.Register(limit)) // it never follows, as a program of an earlier version
	must(c.Connect(7, silent, limit))
	note(rpcv1.JoinedServer_JOINING)
	for end := time.Now().Add(limit); len(list().Behind) != 1; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("clients %v do not reach the server, want %d alone", list().Behind, silent)
		}
	}
	if b := list().Behind[0]; b.Client != silent {
		t.Errorf("client %d does not reach the server, want %d", b.Client, silent)
	}
	if err := c.Fence(7, []uint32{silent}, limit); err != nil {
		t.Fatal(err)
	}
	_, err = m.ListServers(t.Context(), &rpcv1.ListServersRequest{Index: "a", Client: silent})
	wantCode(t, "the list for a fenced client", err, codes.Aborted, "fenced")
	follow()
	note(rpcv1.JoinedServer_MEMBER)
	follow()
	must(theirs.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "a", QuotaChunks: 2}))
	a := must(p.Allocate(64<<10, pool.Nil))
	if a.Server() != 9 {
		t.Errorf("a full index has node %v", a)
	}
	if list := one.Newcomers(); len(list) != 1 || list[0].ID != 9 || list[0].Provider != "tcp" {
		t.Errorf("the client says that it reaches %v, which joined", list)
	}
	if list := c.Newcomers(); len(list) != 0 {
		t.Errorf("a client that connected to none reaches %v", list)
	}
	s := must(p.NewSession(4096))
	b := must(s.Buffer(64))
	s.Begin()
	s.Read(a, b)
	if err := s.Post(); err != nil {
		t.Fatal(err)
	}
	s.Close()

	stop()
	home, _ = start(t, dirConfig(dir))
	again := open("two")
	if ids := again.Servers(); len(ids) != 2 || ids[1] != 9 {
		t.Errorf("a client that opens later has servers %v", ids)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
