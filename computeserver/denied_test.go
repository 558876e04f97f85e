package computeserver

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/dmindex/dmindex/api/rpc/dostream"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// TestDeniedIsForThoseWhoKnowIt: a program that says that it knows the outcome DENIED has it for
// keys that its user has no right to. Those of earlier versions have INVALID, as ever.
func TestDeniedIsForThoseWhoKnowIt(t *testing.T) {
	more := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(more, []byte("user u on >p ~u:* +@read\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := withPassword(t, func(cfg *Config) { cfg.Users.UsersFile = more })
	c.split([]uint32{1})
	f := func(want rpcv1.Outcome_Code, knows ...string) {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("u:p")))
		for _, k := range knows {
			ctx = metadata.AppendToOutgoingContext(ctx, dostream.HeaderKnows, k)
		}
		stream, err := rpcv1.NewComputeClient(c.program()).Do(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b := &batches{t: t, stream: stream}
		b.send(0, lookup("b:1"), lookup("u:1"))
		if o := b.receive().Outcomes; o[0].Code != want || o[1].Code != rpcv1.Outcome_NOT_FOUND {
			t.Errorf("to a program that knows %q: %v", knows, o)
		}
	}
	f(rpcv1.Outcome_INVALID)
	f(rpcv1.Outcome_INVALID, "more")
	f(rpcv1.Outcome_DENIED, "more", dostream.KnowsDenied)
}
