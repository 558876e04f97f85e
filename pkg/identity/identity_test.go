package identity_test

import (
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/identity"
)

func TestRoundTrip(t *testing.T) {
	f := func(id identity.Identity, want string) {
		t.Helper()
		uri := id.URI()
		if uri.String() != want {
			t.Errorf("URI %s, want %s", uri, want)
		}
		parsed, err := url.Parse(uri.String()) // as crypto/x509 does
		if err != nil {
			t.Fatal(err)
		}
		got, err := identity.FromCertificate(&x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "x"}, parsed}})
		if err != nil || got != id {
			t.Errorf("%s gives %v, %v", uri, got, err)
		}
	}
	f(identity.Identity{Role: identity.RoleOperator}, "dmindex://operator")
	f(identity.Identity{Role: identity.RoleClient, Index: "0b7c-1"}, "dmindex://index/0b7c-1")
	f(identity.Identity{Role: identity.RoleCompute, Index: "0b7c-1"}, "dmindex://index/0b7c-1/compute")
	f(identity.Identity{Role: identity.RoleCompute, Index: "0b7c/2"}, "dmindex://index/0b7c%2F2/compute")
	f(identity.Identity{Role: identity.RoleClient, Index: "a/compute"}, "dmindex://index/a%2Fcompute")
	f(identity.Identity{Role: identity.RoleClient, Index: "compute"}, "dmindex://index/compute")
	f(identity.Identity{Role: identity.RoleMemory, Pool: "0b7c-1"}, "dmindex://pool/0b7c-1/memory")
}

func TestRefused(t *testing.T) {
	f := func(uris ...string) {
		t.Helper()
		var c x509.Certificate
		for _, u := range uris {
			parsed, err := url.Parse(u)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, parsed)
		}
		if id, err := identity.FromCertificate(&c); !errors.Is(err, identity.ErrNone) || id != (identity.Identity{}) {
			t.Errorf("%v gives %v, %v", uris, id, err)
		}
	}
	f()
	f("spiffe://operator")
	f("dmindex://operator", "dmindex://index/a")
	f("dmindex:operator")
	f("dmindex://operator/")
	f("dmindex://operator/x")
	f("dmindex://operator?x=1")
	f("dmindex://operator#x")
	f("dmindex://me@operator")
	f("dmindex://operator:80")
	f("dmindex://index")
	f("dmindex://index/")
	f("dmindex://index//compute")
	f("dmindex://index/a/")
	f("dmindex://index/a/other")
	f("dmindex://index/a/compute/")
	f("dmindex://index/a/2/compute")
	f("dmindex://index/a%2f2") // another spelling of a%2F2
	f("dmindex://index/%61")
	f("dmindex://index/a?x")
	f("dmindex://index/a%20b")
	f("dmindex://index/a%00")
	f("dmindex://index/-a")
	f("dmindex://index/a/memory")
	f("dmindex://pool/a")
	f("dmindex://pool/a/compute")
	f("dmindex://pool//memory")
	f("dmindex://pool/a/memory/")
	f("dmindex://pool/-a/memory")
	f("dmindex://index/" + strings.Repeat("a", 129))
}

func TestMayUse(t *testing.T) {
	f := func(id identity.Identity, index string, want bool) {
		t.Helper()
		if got := id.MayUse(index); got != want {
			t.Errorf("%v may use %q: %v", id, index, got)
		}
	}
	f(identity.Identity{}, "", false)
	f(identity.Identity{}, "a", false)
	f(identity.Identity{Index: "a"}, "a", false)
	f(identity.Identity{Role: identity.RoleOperator}, "a", true)
	f(identity.Identity{Role: identity.RoleClient, Index: "a"}, "a", true)
	f(identity.Identity{Role: identity.RoleClient, Index: "a"}, "a/2", false)
	f(identity.Identity{Role: identity.RoleCompute, Index: "a"}, "b", false)
	f(identity.Identity{Role: identity.RoleCompute}, "", false)
}

// FuzzParse checks that what is understood has one spelling only, and reads back as the same
// identity.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"dmindex://operator", "dmindex://index/a%2F2/compute", "dmindex://index/a", "dmindex://index/a/b/../compute", "//index/%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		id, err := identity.Parse(u)
		if err != nil {
			if id != (identity.Identity{}) {
				t.Fatal("an identity beside an error")
			}
			return
		}
		if id.URI().String() != u.String() {
			t.Fatalf("%s reads as %v, which is %s", u, id, id.URI())
		}
		if id.Role != identity.RoleOperator && identity.CheckIndex(id.Index) != nil {
			t.Fatalf("impossible index in %v", id)
		}
	})
}
