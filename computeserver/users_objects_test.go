package computeserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"path/filepath"
	"testing"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestUsersOfObjects follows the file that the operator writes from DMUser objects: both passwords
// are right in an overlap, connections of a user that is deleted end, and a user of the other file
// keeps its rights and its password whatever the objects say of that name.
func TestUsersOfObjects(t *testing.T) {
	c, _, more := withUsers(t, "user both on >file ~a:* +@read\n")
	read := func(text string) {
		t.Helper()
		replaceFile(t, filepath.Join(filepath.Dir(more), "objects.acl"), text)
		for _, s := range c.servers {
			computeservertest.Await(t, "the file was read", func() bool { return s.users.ObjectsDigest() == sha256.Sum256([]byte(text)) })
		}
	}
	login := func(name, password string) *computeservertest.Conn {
		t.Helper()
		r := c.raw(1)
		r.Send(computeservertest.Command("AUTH", name, password))
		r.Expect("+OK\r\n")
		return r
	}
	const wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	refused := func(name, password string) {
		t.Helper()
		r := c.raw(1)
		r.Send(computeservertest.Command("AUTH", name, password))
		r.Expect(wrong)
	}
	read("user shop on >one ~a:* ~z:* +@read +@write\nuser both on >object ~* +@all\n")
	one := login("shop", "one")
	one.Send(computeservertest.Command("SET", "z:1", "x") + computeservertest.Command("SET", "b:1", "x") + computeservertest.Command("PUBLISH", "a:1", "x"))
	one.Expect("+OK\r\n-NOPERM No permissions to access a key\r\n-NOPERM ")
	refused("both", "object")
	both := login("both", "file")
	both.Send(computeservertest.Command("SET", "a:1", "x"))
	both.Expect("-NOPERM No permissions to access a key\r\n")

	read("user shop on >one >two ~a:* ~z:* +@read +@write\n")
	two := login("shop", "two")
	login("shop", "one")
	sdk, err := c.secureSDK("shop", "two")
	if err != nil {
		t.Fatal(err)
	}
	if err := sdk.Put(context.Background(), []byte("b:1"), nil); !errors.Is(err, client.ErrDenied) {
		t.Errorf("a key outside of the prefixes: %v", err)
	}

	read("user shop on >two ~a:* ~z:* +@read +@write\n")
	refused("shop", "one")
	one.SkipReply()
	one.ExpectEnd()
	two.Send(computeservertest.Command("GET", "z:1"))
	two.Expect("$1\r\nx\r\n")

	read("# no users\n")
	two.ExpectEnd()
	refused("shop", "two")
	both.Send(computeservertest.Command("PING"))
	both.Expect("+PONG\r\n")
	if err := sdk.Put(context.Background(), []byte("a:1"), nil); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("a user that is deleted may write: %v", err)
	}
}
