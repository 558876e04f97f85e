package computeserver

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// TestPlacesForTheDefaultUser: a user that opens all the connections that it gets does not keep the
// user default out.
func TestPlacesForTheDefaultUser(t *testing.T) {
	more := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(more, []byte("user u on >p ~u:* +@read\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := withPassword(t, func(cfg *Config) { cfg.Users.UsersFile, cfg.MaxConnections = more, 8 })
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("u:p")))
	for n := range 9 {
		want := codes.OK
		if n >= 7 {
			want = codes.ResourceExhausted
		}
		_, err := rpcv1.NewComputeClient(c.program()).GetMap(ctx, &rpcv1.GetComputeMapRequest{})
		if status.Code(err) != want {
			t.Errorf("connection %d of a user: %v", n+1, err)
		}
	}
	c.served(c.program())
}
