package memserver

import (
	"testing"

	"google.golang.org/grpc/codes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

// TestServerWithoutCopy: a server that has no copy is its volume's only primary, in a view without
// a number. Everybody may ask for the view, and the operator alone for the rest.
func TestServerWithoutCopy(t *testing.T) {
	ca := identitytest.NewCA(t, "pool")
	c := localConfig(t)
	c.Insecure, c.TLSDir = false, ca.Dir(identitytest.Options{})
	s, _ := start(t, c)
	ask := func(who identity.Identity) rpcv1.VolumeClient {
		conn, err := control.Dial(s.Addresses().Control, tlsFiles(t, ca, who.URI()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return rpcv1.NewVolumeClient(conn)
	}
	operator, client := ask(identity.Identity{Role: identity.RoleOperator}), ask(identity.Identity{Role: identity.RoleClient, Index: "i"})
	r := must(operator.Report(t.Context(), &rpcv1.ReportVolumeRequest{Volume: 7, Pod: "pod"}))
	if r.Role != rpcv1.ReportVolumeReply_PRIMARY || r.Process.Pod != "pod" || r.View.Number != 0 || r.View.Primary.String() != r.Process.String() ||
		r.Incarnation != s.Incarnation() || r.Version != "test" {
		t.Errorf("it reports %v", r)
	}
	_, err := operator.Report(t.Context(), &rpcv1.ReportVolumeRequest{Volume: 8})
	wantCode(t, "another volume", err, codes.NotFound, "volume 7, not 8")
	_, err = client.Report(t.Context(), &rpcv1.ReportVolumeRequest{})
	wantCode(t, "a client asks for the report", err, codes.PermissionDenied)
	if v := must(client.AwaitView(t.Context(), &rpcv1.AwaitViewRequest{Volume: 7, WaitMilliseconds: 1})); !v.Serves || v.View.Number != 0 {
		t.Errorf("the view is %v", v)
	}
	_, err = client.AwaitView(t.Context(), &rpcv1.AwaitViewRequest{Volume: 8})
	wantCode(t, "the view of another volume", err, codes.NotFound)
}
