package memserver

import (
	"crypto/tls"
	"net/url"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

func dialTLS(t *testing.T, address string, config *tls.Config) rpcv1.MemoryClient {
	t.Helper()
	conn := must(grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config))))
	t.Cleanup(func() { conn.Close() })
	return rpcv1.NewMemoryClient(conn)
}

// TestAuthorities: whoever has the authority of one index of a shared pool is that index, whatever
// certificate it signs, and nobody else: not the operator, not another index.
func TestAuthorities(t *testing.T) {
	pool, a, next, b := identitytest.NewCA(t, "pool"), identitytest.NewCA(t, "a"), identitytest.NewCA(t, "a"), identitytest.NewCA(t, "b")
	c := localConfig(t)
	c.Insecure, c.TLSDir = false, t.TempDir()
	// ca.crt is as servers of earlier versions need it
	pool.Write(c.TLSDir, identitytest.Options{DNSNames: []string{"m-0.m.ns.svc"}}, pool, a, next, b)
	identitytest.WriteAuthorities(t, c.TLSDir, pool.SpeaksFor(identity.Operator()),
		a.SpeaksFor(identity.Index("a")), next.SpeaksFor(identity.Index("a")), b.SpeaksFor(identity.Index("b")))
	s, _ := start(t, c)
	address, ctx := s.Addresses().Control, t.Context()

	operator := dialTLS(t, address, pool.Insistent(identity.Operator()))
	for _, index := range []string{"a", "a/2", "b"} {
		must(operator.Admit(ctx, &rpcv1.AdmitRequest{Index: index, QuotaChunks: 2}))
	}
	claims := []*url.URL{identity.Operator(), identity.Pool("m.ns.svc")}
	for _, index := range []string{"a", "a/2", "b", "ab"} {
		claims = append(claims, identity.Index(index), identity.Compute(index))
	}
	f := func(what string, ca *identitytest.CA, indexes ...string) {
		t.Helper()
		for _, claim := range claims {
			caller := dialTLS(t, address, ca.Insistent(claim))
			believed := ""
			for _, index := range indexes {
				if claim.String() == identity.Index(index).String() || claim.String() == identity.Compute(index).String() {
					believed = index
				}
			}
			for _, index := range []string{"a", "a/2", "b"} {
				_, err := caller.Register(ctx, &rpcv1.RegisterRequest{Index: index})
				switch {
				case believed == "" && status.Code(err) != codes.Unavailable:
					t.Errorf("%s signs %s and is let in: register with index %s: %v", what, claim, index, err)
				case believed == index && err != nil:
					t.Errorf("%s signs %s: register with index %s: %v", what, claim, index, err)
				case believed != "" && believed != index && status.Code(err) != codes.PermissionDenied:
					t.Errorf("%s signs %s: register with index %s: %v", what, claim, index, err)
				}
			}
			_, err := caller.Evict(ctx, &rpcv1.EvictRequest{Index: "none"})
			if want := map[bool]codes.Code{true: codes.Unavailable, false: codes.PermissionDenied}[believed == ""]; status.Code(err) != want {
				t.Errorf("%s signs %s: evict: %v", what, claim, err)
			}
		}
	}
	f("the authority of a", a, "a", "a/2")
	f("the next authority of a", next, "a", "a/2")
	f("the authority of b", b, "b")
	f("an authority of the pool's name", identitytest.NewCA(t, "pool"))

	// the pool's own speaks for the operator, and for no index
	must(operator.Evict(ctx, &rpcv1.EvictRequest{Index: "b"}))
	if _, err := dialTLS(t, address, pool.Insistent(identity.Compute("a"))).Describe(ctx, &rpcv1.DescribeMemoryRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("the pool's authority signs an index: %v", err)
	}

	// a client that looks for a server of the pool takes none that its index's authority signed
	dir := t.TempDir()
	a.Write(dir, identitytest.Options{URIs: []*url.URL{identity.Compute("a")}}, a, pool)
	identitytest.WriteAuthorities(t, dir, pool.SpeaksFor(identity.Pool("m.ns.svc")), a.SpeaksFor(identity.Operator(), identity.Index("a")))
	files := must(identity.Open(dir))
	dial := func(address string) error {
		_, err := dialTLS(t, address, files.ClientConfig("m-0.m.ns.svc")).Describe(ctx, &rpcv1.DescribeMemoryRequest{})
		return err
	}
	if err := dial(address); err != nil {
		t.Errorf("a server of the pool: %v", err)
	}
	c = localConfig(t)
	c.Insecure, c.TLSDir = false, a.Dir(identitytest.Options{DNSNames: []string{"m-0.m.ns.svc"}})
	imposter, _ := start(t, c)
	if err := dial(imposter.Addresses().Control); status.Code(err) != codes.Unavailable {
		t.Errorf("a server that the index's authority signed: %v", err)
	}
}
