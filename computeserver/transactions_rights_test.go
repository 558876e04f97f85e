package computeserver

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/dmindex/dmindex/api/rpc/dostream"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestRightsOfTransactions: a command that the user may not send is refused when it is queued, and
// in its place where the right was taken away before EXEC. So is WATCH of a key that may not be
// read. A group by gRPC needs the rights for all of its operations; one in another, however deep,
// is refused at once.
func TestRightsOfTransactions(t *testing.T) {
	more := filepath.Join(t.TempDir(), "users.acl")
	const may = "user u on >p ~u:* +@read +@write\nuser r on >p %W~w:* %R~u:* +@read +@write\n"
	if err := os.WriteFile(more, []byte(may), 0o600); err != nil {
		t.Fatal(err)
	}
	c := withPassword(t, func(cfg *Config) { cfg.Users.UsersFile = more })
	c.store.AllowGroups()
	c.split([]uint32{1})
	k := newTalk(c, 1)
	ask := func(want string, words string) {
		t.Helper()
		k.Send(computeservertest.Command(strings.Fields(words)...))
		if got := wholeReply(t, k.from); !strings.HasPrefix(got, want) {
			t.Fatalf("%q gave %q, want %q", words, got, want)
		}
	}
	ask("+OK", "AUTH u p")
	ask("$-1", "GET u:1")
	ask("+OK", "MULTI")
	ask("+QUEUED", "SET u:1 1")
	ask("-NOPERM", "SET b:1 1")
	ask("-EXECABORT", "EXEC")
	ask("-NOPERM", "WATCH u:1 b:1")
	ask("-NOPERM", "EVAL return 2 u:1 b:1")
	ask("-NOPERM", "EVAL_RO return 2 u:1 b:1")
	ask("$-1", "EVAL return 1 u:1 b:1")
	ask("+OK", "MULTI")
	ask("+QUEUED", "SET u:1 1")
	ask("+QUEUED", "GET u:1")
	less := strings.ReplaceAll(may, "~u:* +@read +@write\n", "~u:* +@read\n")
	replaceFile(t, more, less)
	other := newTalk(c, 1)
	other.Send(computeservertest.Command("AUTH", "u", "p"))
	wholeReply(t, other.from)
	computeservertest.Await(t, "the file was read", func() bool {
		other.Send(computeservertest.Command("DEL", "u:9"))
		return strings.HasPrefix(wholeReply(t, other.from), "-NOPERM")
	})
	ask("*2\r\n-NOPERM", "EXEC")
	ask("-NOPERM", "EVAL return 1 u:1")
	ask("$-1", "EVAL_RO return 1 u:1")
	if n := c.store.Len(); n != 0 {
		t.Errorf("%d keys are stored", n)
	}

	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("u:p")), dostream.HeaderKnows, dostream.KnowsDenied)
	stream, err := rpcv1.NewComputeClient(c.program()).Do(ctx)
	if err != nil {
		t.Fatal(err)
	}
	group := func(ops ...*rpcv1.Operation) *rpcv1.Operation {
		value, err := rpcv1.AppendGroup(nil, ops)
		if err != nil {
			t.Fatal(err)
		}
		return &rpcv1.Operation{Kind: rpcv1.Operation_GROUP, Key: ops[0].Key, Value: value}
	}
	script := func(kind rpcv1.Operation_Kind, keys ...string) *rpcv1.Operation {
		s := &rpcv1.Script{Text: []byte("return 1")}
		for _, key := range keys {
			s.Keys = append(s.Keys, []byte(key))
		}
		value, err := rpcv1.AppendScript(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		return &rpcv1.Operation{Kind: kind, Key: s.Keys[0], Value: value}
	}
	nested := lookup("u:1")
	for len(nested.Value) < 8<<10 {
		nested = group(nested)
	}
	b := &batches{t: t, stream: stream}
	b.send(0, group(lookup("u:1"), lookup("b:1")), group(lookup("u:1"), lookup("u:2")), group(lookup("u:1"), group(lookup("b:1"))), nested,
		&rpcv1.Operation{Kind: rpcv1.Operation_GROUP, Key: []byte("u:1"), Value: []byte("no batch")},
		group(script(rpcv1.Operation_SCRIPT, "u:1")), group(script(rpcv1.Operation_SCRIPT_READ, "u:1", "b:1")), group(script(rpcv1.Operation_SCRIPT_READ, "u:1", "u:2")))
	for i, o := range b.receive().Outcomes {
		want := []rpcv1.Outcome_Code{rpcv1.Outcome_DENIED, rpcv1.Outcome_OK, rpcv1.Outcome_INVALID, rpcv1.Outcome_INVALID, rpcv1.Outcome_INVALID, rpcv1.Outcome_DENIED, rpcv1.Outcome_DENIED, rpcv1.Outcome_OK}[i]
		if o.Code != want {
			t.Errorf("group %d: %.200v, want %v", i, o, want)
		}
	}
}
