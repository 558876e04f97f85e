package computeserver

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

// TestAuthorities: certificates count where the index's own authority signed them, for the operator
// and for the index. The authority of a memory pool, which compute servers know too, speaks for
// its memory servers alone.
func TestAuthorities(t *testing.T) {
	own, next, pool, other := identitytest.NewCA(t, "own"), identitytest.NewCA(t, "own"), identitytest.NewCA(t, "pool"), identitytest.NewCA(t, "other")
	self := identity.Index(computeservertest.Index)
	dir := t.TempDir()
	own.Write(dir, identitytest.Options{URIs: []*url.URL{identity.Compute(computeservertest.Index)}}, own, next, pool)
	identitytest.WriteAuthorities(t, dir, own.SpeaksFor(identity.Operator(), self), next.SpeaksFor(identity.Operator(), self),
		pool.SpeaksFor(identity.Pool("m.ns.svc")))
	files, err := identity.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, config.RoutingOwner, func(cfg *Config) { cfg.TLS, cfg.Users.PasswordFile, cfg.AllowNoPassword = files, password, false }, 1, 2)
	c.split([]uint32{1, 2}, "m")
	ctx := t.Context()
	// calls are the codes of a call that members make, and of one of the operator's that asks for
	// nothing.
	calls := func(ca *identitytest.CA, claim *url.URL) (member, operator codes.Code) {
		t.Helper()
		conn, err := grpc.NewClient("passthrough:///"+c.servers[1].addresses.RPC, grpc.WithTransportCredentials(credentials.NewTLS(ca.Insistent(claim))))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		server := rpcv1.NewComputeClient(conn)
		_, err = server.GetMap(ctx, &rpcv1.GetComputeMapRequest{})
		_, err2 := server.Block(ctx, &rpcv1.BlockComputeRequest{})
		return status.Code(err), status.Code(err2)
	}
	f := func(what string, ca *identitytest.CA, claim *url.URL, wantMember, wantOperator codes.Code) {
		t.Helper()
		if member, operator := calls(ca, claim); member != wantMember || operator != wantOperator {
			t.Errorf("%s signs %s: GetMap %v, Block %v; want %v, %v", what, claim, member, operator, wantMember, wantOperator)
		}
	}
	for _, ca := range []*identitytest.CA{own, next} {
		f("the index's authority", ca, identity.Operator(), codes.OK, codes.InvalidArgument)
		f("the index's authority", ca, self, codes.OK, codes.PermissionDenied)
		f("the index's authority", ca, identity.Compute(computeservertest.Index), codes.OK, codes.PermissionDenied)
		f("the index's authority", ca, identity.Index("other"), codes.Unavailable, codes.Unavailable)
		f("the index's authority", ca, identity.Compute("other"), codes.Unavailable, codes.Unavailable)
		f("the index's authority", ca, identity.Pool("m.ns.svc"), codes.Unavailable, codes.Unavailable)
	}
	for _, ca := range []*identitytest.CA{pool, other, identitytest.NewCA(t, "own")} {
		for _, claim := range []*url.URL{identity.Operator(), self, identity.Compute(computeservertest.Index), identity.Index("other"), identity.Pool("m.ns.svc")} {
			f("another authority", ca, claim, codes.Unavailable, codes.Unavailable)
		}
	}

	// servers believe each other: the key is of server 2
	cl, err := client.Connect(ctx, client.Options{Endpoints: []string{c.servers[1].addresses.RPC}, Password: "secret", CA: own.PEM})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, k := range []string{"a", "x"} {
		if err := cl.Put(ctx, []byte(k), []byte("1")); err != nil {
			t.Error(err)
		}
	}
	r := c.raw(1)
	r.Send(computeservertest.Command("AUTH", "secret") + computeservertest.Command("GET", "x"))
	r.Expect("+OK\r\n$1\r\n1\r\n")
}
