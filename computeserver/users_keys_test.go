package computeserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
)

// TestUsersSeeNoKeysOfOthers: whatever a user asks for, and however it fails, no answer has a key
// that the user may not read. The user default sees where ranges begin.
func TestUsersSeeNoKeysOfOthers(t *testing.T) {
	c, _, _ := withUsers(t, "user reader on >r ~order:* +@read\nuser writer on >w %W~order:* +@all\n")
	m := &partition.Map{Generation: 2, Index: computeservertest.Index, Servers: c.members(1, 2), Ranges: []partition.Range{
		{Owner: 1, Epoch: 1}, {Start: []byte("alice:secret"), Owner: 2, Epoch: 2}, {Start: []byte("order:5secret"), Owner: 1, Epoch: 2}, {Start: []byte("zoe:secret"), Owner: 2, Epoch: 1}}}
	c.publish(m)
	ctx := context.Background()
	sdks := map[string]*client.Client{}
	for name, password := range map[string]string{"": "secret", "reader": "r", "writer": "w"} {
		cl, err := c.secureSDK(name, password)
		if err != nil {
			t.Fatal(err)
		}
		sdks[name] = cl
	}
	for i := range 200 {
		if err := sdks[""].Put(ctx, fmt.Appendf(nil, "alice:secret%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"order:1", "order:5secret", "order:6"} {
		if err := sdks["writer"].Put(ctx, []byte(key), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	pairs := 0
	for _, err := range sdks["reader"].Scan(ctx, []byte("order:"), []byte("order;"), client.ScanOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		pairs++
	}
	if pairs != 3 {
		t.Errorf("%d pairs of the user, want 3", pairs)
	}

	hidden := 0
	f := func(user, what, answer string) {
		t.Helper()
		forms := []string{"alice", "zoe"}
		if user == "writer" {
			forms = append(forms, "order:5")
		}
		for _, key := range forms {
			if strings.Contains(answer, key) != (user == "") {
				t.Errorf("%s of the user %q: %q is shown: %v, in %s", what, user, key, user != "", answer)
			}
		}
		hidden++
	}
	described := func(user string) {
		f(user, "the map", fmt.Sprint(partition.Describe(nil, sdks[user].Map())))
		all := ""
		for _, s := range sdks[user].Status(ctx) {
			if s.Err != nil {
				t.Fatal(s.Err)
			}
			for _, k := range s.Reply.Load.Keys { // in JSON they are base64
				all += string(k.Key)
			}
			text, err := protojson.Marshal(s.Reply)
			if err != nil {
				t.Fatal(err)
			}
			all += string(text)
		}
		if user != "" {
			f(user, "the status", all)
		} else if !strings.Contains(all, "alice") {
			t.Error("the user default sees no sampled key")
		}
	}
	for user := range sdks {
		described(user)
	}
	c.store.Fail(index.ErrPoolFull)
	login := map[string][]string{"": {"AUTH", "secret"}, "reader": {"AUTH", "reader", "r"}, "writer": {"AUTH", "writer", "w"}}
	for user, cl := range sdks {
		// The first is the end of a range of others, the other one begins where one of others ends.
		for _, key := range []string{"order:1", "order:6"} {
			_, err := cl.Get(ctx, []byte(key))
			set := cl.Put(ctx, []byte(key), nil)
			if user != "writer" && !errors.Is(err, client.ErrPoolFull) || user != "reader" && !errors.Is(set, client.ErrPoolFull) {
				t.Errorf("user %q: %v, %v", user, err, set)
			}
			var scan error
			for _, err := range cl.Scan(ctx, []byte("order:"), []byte("order;"), client.ScanOptions{}) {
				scan = err
			}
			r := c.raw(1)
			r.Send(computeservertest.Command(login[user]...) + computeservertest.Command("GET", key) + computeservertest.Command("SET", key, "v") +
				computeservertest.Command("RANGE", "order:", "order;") + computeservertest.Command("MGET", key, key))
			text := fmt.Sprintln(err, set, scan)
			for range 5 {
				text += r.Line()
			}
			if user != "" {
				f(user, "an error on "+key, text)
			} else if !strings.Contains(text, "zoe") && !strings.Contains(text, "alice") {
				t.Errorf("errors of the user default: %s", text)
			}
		}
	}
	if hidden != 3+2+4 {
		t.Errorf("%d answers were looked at", hidden)
	}
}
