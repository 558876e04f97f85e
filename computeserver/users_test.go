package computeserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

// replaceFile swaps a file as the kubelet does: by a rename.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// guarded is a cluster with users and certificates.
type guarded struct {
	*cluster
	ca *identitytest.CA
}

// secureSDK logs a user in; an empty name is the user default.
func (c *guarded) secureSDK(user, password string) (*client.Client, error) {
	cl, err := client.Connect(context.Background(), client.Options{
		Endpoints: []string{c.servers[1].addresses.RPC}, User: user, Password: password, CA: c.ca.PEM,
		Limit: time.Minute, Attempt: 20 * time.Second,
	})
	if err == nil {
		c.t.Cleanup(func() { _ = cl.Close() })
	}
	return cl, err
}

// withUsers runs two servers, each with half of the keys, with the user default and others.
func withUsers(t *testing.T, others string) (c *guarded, defaults, more string) {
	ca := identitytest.NewCA(t, "index")
	dir := t.TempDir()
	defaults, more = filepath.Join(dir, "default.acl"), filepath.Join(dir, "users.acl")
	replaceFile(t, defaults, "user default on >secret ~* +@all")
	replaceFile(t, more, others)
	c = &guarded{ca: ca}
	c.cluster = newCluster(t, config.RoutingOwner, func(cfg *Config) {
		cfg.Users, cfg.AllowNoPassword = users.Config{DefaultFile: defaults, UsersFile: more, ObjectsFile: filepath.Join(dir, "objects.acl")}, false
		cfg.TLS = openTLS(t, ca)
	}, 1, 2)
	c.split([]uint32{1, 2}, "m")
	return c, defaults, more
}

// TestUsersOverRESP asks what each user may do, for keys of the server and of the other one.
func TestUsersOverRESP(t *testing.T) {
	c, _, _ := withUsers(t, "user writer on >w ~a:* ~z:* +@all\nuser reader on >r ~a:* %W~z:* +@read\nuser off off >o ~* +@all\nuser blind on >b %W~a:* %W~z:* +@all\n")
	all := c.raw(1)
	all.Send(computeservertest.Command("AUTH", "secret") + computeservertest.Command("MSET", "a:1", "1", "b:1", "2", "z:1", "3"))
	all.Expect("+OK\r\n+OK\r\n")

	f := func(login []string, want string, command ...string) {
		t.Helper()
		r := c.raw(1)
		r.Send(computeservertest.Command(login...) + computeservertest.Command(command...))
		r.Expect("+OK\r\n")
		r.Expect(want)
	}
	const noKey = "-NOPERM No permissions to access a key\r\n"
	writer, reader := []string{"AUTH", "writer", "w"}, []string{"AUTH", "reader", "r"}
	f(writer, "+OK\r\n", "SET", "a:1", "x")
	f(writer, "+OK\r\n", "SET", "z:1", "y")
	f(writer, noKey, "SET", "b:1", "x")
	f(writer, noKey, "MSET", "a:1", "1", "b:1", "x")
	f(writer, noKey, "MGET", "a:1", "b:1")
	f(writer, noKey, "DEL", "a:1", "b:1")
	f(writer, noKey, "GET", "b:1")
	f(writer, "$1\r\nx\r\n", "GET", "a:1") // MSET and DEL did nothing
	f(writer, ":1\r\n", "EXISTS", "z:1")
	f(writer, "*2\r\n$3\r\na:1\r\n$1\r\nx\r\n", "RANGE", "a:", "a:~")
	f(writer, "-NOPERM User writer may not read every key of this range; ask for one within the user's prefixes\r\n", "RANGE", "a:", "b")
	f(writer, "-NOPERM User writer may not read every key of this range; ask for one within the user's prefixes\r\n", "RANGE", "a:", "")
	f(writer, "-NOPERM User writer may not read every key, which 'dbsize' does\r\n", "DBSIZE")
	f(writer, "*2\r\n$1\r\n0\r\n*2\r\n$3\r\na:1\r\n$3\r\nz:1\r\n", "SCAN", "0")
	f(writer, "$6\r\nwriter\r\n", "ACL", "WHOAMI")
	f(writer, "-NOPERM User writer may not forget scripts, which others use, too: it needs the rights to read and to write every key\r\n", "SCRIPT", "FLUSH")
	f([]string{"AUTH", "secret"}, "+OK\r\n", "SCRIPT", "FLUSH")
	f(writer, noKey, "MSETEX", "2", "a:1", "x", "b:1", "x")
	f(writer, noKey, "RENAME", "a:1", "b:1")
	f(writer, noKey, "COPY", "b:1", "a:1", "REPLACE")
	f(reader, "$1\r\nx\r\n", "GET", "a:1")
	f(reader, noKey, "SET", "a:1", "x")
	f(reader, noKey, "SETNX", "a:2", "x")
	f(reader, noKey, "UNLINK", "a:1")
	f(reader, noKey, "SET", "z:1", "x") // the prefix may be written, and the user may not write
	f(reader, noKey, "GET", "z:1")
	f(reader, "*2\r\n$1\r\n0\r\n*1\r\n$3\r\na:1\r\n", "SCAN", "0")
	f([]string{"AUTH", "secret"}, ":3\r\n", "DBSIZE")
	blind := []string{"AUTH", "blind", "b"} // it may write the keys, and not read them
	for _, prefix := range []string{"a:", "z:"} {
		f(blind, "+OK\r\n", "SET", prefix+"1", "4")
		f(blind, ":2\r\n", "APPEND", prefix+"1", "2")
		f(blind, ":2\r\n", "SETRANGE", prefix+"1", "0", "1")
		for _, tells := range [][]string{{"INCR"}, {"GETSET", "1"}, {"GETDEL"}, {"SET", "1", "GET"}, {"SET", "1", "IFEQ", "12"}, {"SET", "1", "IFNE", "1"}, {"DELIFEQ", "12"}, {"DELEX", "IFEQ", "12"}} {
			f(blind, noKey, slices.Insert(tells, 1, prefix+"1")...)
			f(reader, noKey, slices.Insert(tells, 1, prefix+"1")...)
		}
		f(writer, ":13\r\n", "INCR", prefix+"1")
		f(writer, "$2\r\n13\r\n", "SET", prefix+"1", "x", "GET")
	}

	for _, bad := range [][]string{{"AUTH", "off", "o"}, {"AUTH", "reader", "secret"}, {"AUTH", "default", "r"}, {"AUTH", "r"}} {
		r := c.raw(1)
		r.Send(computeservertest.Command(bad...) + computeservertest.Command("GET", "a:1"))
		r.Expect("-WRONGPASS invalid username-password pair or user is disabled.\r\n-NOAUTH Authentication required.\r\n")
	}
	// RESET logs out.
	r := c.raw(1)
	r.Send(computeservertest.Command(writer...) + computeservertest.Command("RESET") + computeservertest.Command("GET", "a:1"))
	r.Expect("+OK\r\n+RESET\r\n-NOAUTH Authentication required.\r\n")
}

// TestUsersOfTheSDK does the same with the SDK, whose calls show name and password.
func TestUsersOfTheSDK(t *testing.T) {
	c, _, _ := withUsers(t, "user reader on >r ~a:* ~z:* +@read\nuser anyone on nopass ~a:* +@read\nuser other on >p\xc3\xa4ss ~a:* +@read\n")
	ctx := context.Background()
	all, err := c.secureSDK("", "secret")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a:1", "b:1", "z:1"} {
		if err := all.Put(ctx, []byte(key), []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	reader, err := c.secureSDK("reader", "r")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a:1", "z:1"} {
		if v, err := reader.Get(ctx, []byte(key)); err != nil || string(v) != key {
			t.Errorf("%s is %q, %v", key, v, err)
		}
		if err := reader.Put(ctx, []byte(key), nil); !errors.Is(err, client.ErrDenied) || !strings.Contains(err.Error(), "reader may not") {
			t.Errorf("a reader may write %s: %v", key, err)
		}
	}
	if _, err := reader.Get(ctx, []byte("b:1")); !errors.Is(err, client.ErrDenied) || !strings.Contains(err.Error(), "reader may not") {
		t.Errorf("a reader may read another prefix: %v", err)
	}
	for user, password := range map[string]string{"anyone": "", "other": "p\xc3\xa4ss"} {
		cl, err := c.secureSDK(user, password)
		if err == nil {
			_, err = cl.Get(ctx, []byte("a:1"))
		}
		if err != nil {
			t.Errorf("the user %s: %v", user, err)
		}
	}
	// One operation of a batch that is refused leaves the others as they are.
	values, err := reader.GetMany(ctx, [][]byte{[]byte("a:1"), []byte("b:1"), []byte("z:1")})
	if !errors.Is(err, client.ErrDenied) || len(values) > 0 && values[1] != nil {
		t.Errorf("a batch with a key that may not be read: %q, %v", values, err)
	}
	scan := func(cl *client.Client, start, end string) ([]string, error) {
		var keys []string
		for p, err := range cl.Scan(ctx, []byte(start), []byte(end), client.ScanOptions{}) {
			if err != nil {
				return keys, err
			}
			keys = append(keys, string(p.Key))
		}
		return keys, nil
	}
	if keys, err := scan(reader, "a:", "a:~"); err != nil || !slices.Equal(keys, []string{"a:1"}) {
		t.Errorf("a range within the prefix: %q, %v", keys, err)
	}
	if keys, err := scan(reader, "a:", "c"); !errors.Is(err, client.ErrDenied) || len(keys) > 0 {
		t.Errorf("a range beyond the prefix: %q, %v", keys, err)
	}
	if _, err := c.secureSDK("reader", "secret"); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("the password of another user: %v", err)
	}
	if _, err := c.secureSDK("nobody", "r"); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("a user that there is not: %v", err)
	}
}

// TestPasswordRotates: programs that show the new password before the old one is taken away see
// nothing of a rotation; connections with the old one are cut, idle ones too.
func TestPasswordRotates(t *testing.T) {
	c, defaults, _ := withUsers(t, "")
	ctx := context.Background()
	file := filepath.Join(t.TempDir(), "password")
	replaceFile(t, file, "secret\n")
	sdk, err := client.Connect(ctx, client.Options{
		Endpoints: []string{c.servers[1].addresses.RPC}, PasswordFile: file, CA: c.ca.PEM, Limit: time.Minute, Attempt: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sdk.Close()
	password := func() string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(text))
	}
	// A pool that asks for the password as it is, when it connects. go-redis tries a command again
	// on another connection only if this one ended before it was read.
	pool := redis.NewClient(&redis.Options{
		Addr: c.servers[1].addresses.RESP, MaxRetries: 3, Protocol: 2, DisableIdentity: true, PoolSize: 4,
		CredentialsProvider: func() (string, string) { return "default", password() },
	})
	defer pool.Close()
	// Programs work all the time. Nothing of what they ask may fail.
	var done [2]atomic.Int64
	stop := make(chan struct{})
	var programs sync.WaitGroup
	for kind, put := range []func(key string) error{
		func(key string) error { return sdk.Put(ctx, []byte(key), []byte("v")) },
		func(key string) error { return pool.Set(ctx, key, "v", 0).Err() },
	} {
		for range 2 {
			programs.Go(func() {
				for {
					for _, key := range []string{"a", "z"} { // of both servers
						if err := put(key); err != nil {
							t.Errorf("%s failed: %v", []string{"SDK", "RESP"}[kind], err)
							return
						}
					}
					done[kind].Add(1)
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
	}
	defer func() { close(stop); programs.Wait() }()
	use := func() {
		t.Helper()
		for kind := range done {
			before := done[kind].Load()
			computeservertest.Await(t, "the programs went on", func() bool { return done[kind].Load() > before+8 || t.Failed() })
		}
	}
	use()
	idle, stays := c.raw(1), c.raw(2)
	idle.Send(computeservertest.Command("AUTH", "secret"))
	idle.Expect("+OK\r\n")

	read := func(line string) {
		t.Helper()
		replaceFile(t, defaults, line)
		for _, s := range c.servers {
			computeservertest.Await(t, "the file was read", func() bool { return s.users.Digest() == sha256.Sum256([]byte(line)) })
		}
	}
	read("user default on >secret >new ~* +@all")
	stays.Send(computeservertest.Command("AUTH", "new") + computeservertest.Command("PING"))
	stays.Expect("+OK\r\n+PONG\r\n")
	use()
	replaceFile(t, file, "new\n")
	use()
	read("user default on >new ~* +@all")
	idle.ExpectEnd()
	use()
	stays.Send(computeservertest.Command("PING"))
	stays.Expect("+PONG\r\n")
	late := c.raw(1)
	late.Send(computeservertest.Command("AUTH", "secret"))
	late.Expect("-WRONGPASS invalid username-password pair or user is disabled.\r\n")
}

// TestUserLosesRights: a stream and a connection that are open have the new rights at once.
func TestUserLosesRights(t *testing.T) {
	c, _, more := withUsers(t, "user u on >p ~* +@all\n")
	ctx := context.Background()
	sdk, err := c.secureSDK("u", "p")
	if err != nil {
		t.Fatal(err)
	}
	r := c.raw(1)
	r.Send(computeservertest.Command("AUTH", "u", "p") + computeservertest.Command("SET", "a", "1"))
	r.Expect("+OK\r\n+OK\r\n")
	if err := sdk.Put(ctx, []byte("z"), nil); err != nil {
		t.Fatal(err)
	}
	replaceFile(t, more, "user u on >p ~* +@read\n")
	computeservertest.Await(t, "the SDK may not write any more", func() bool {
		return errors.Is(sdk.Put(ctx, []byte("a"), nil), client.ErrDenied) && errors.Is(sdk.Put(ctx, []byte("z"), nil), client.ErrDenied)
	})
	r.Send(computeservertest.Command("SET", "a", "2"))
	r.Expect("-NOPERM No permissions to access a key\r\n")
	replaceFile(t, more, "# nobody\n")
	r.ExpectEnd()
	if err := sdk.Put(ctx, []byte("a"), nil); !errors.Is(err, client.ErrUnauthorized) && !errors.Is(err, client.ErrDenied) {
		t.Errorf("a user that is gone may write: %v", err)
	}
}

// TestUserLosesRightsWithinAScan: a scan that is read slowly ends soon after its user may not read
// any more. A program with a new password goes on where it was.
func TestUserLosesRightsWithinAScan(t *testing.T) {
	c, _, more := withUsers(t, "user u on >p ~* +@all\n")
	ctx := context.Background()
	sdk, err := c.secureSDK("u", "p")
	if err != nil {
		t.Fatal(err)
	}
	const keys = 3000 // far more than what a connection holds on its way
	value := make([]byte, 2<<10)
	var pairs []client.Pair
	for i := range keys {
		pairs = append(pairs, client.Pair{Key: fmt.Appendf(nil, "a%04d", i), Value: value})
	}
	if err := sdk.PutMany(ctx, pairs); err != nil {
		t.Fatal(err)
	}
	mayScan := func() bool { // at the server that scans: each server reads the users for itself
		next, stop := iter.Pull2(sdk.Scan(ctx, nil, nil, client.ScanOptions{}))
		defer stop()
		_, err, _ := next()
		return err == nil
	}
	for change, want := range map[string]error{"user u on >p ~* +@write\n": client.ErrDenied, "user u on >q ~* +@all\n": client.ErrUnauthorized} {
		replaceFile(t, more, "user u on >p ~* +@all\n")
		computeservertest.Await(t, "the user may read", mayScan)
		read := 0
		var end error
		for _, err := range sdk.Scan(ctx, nil, nil, client.ScanOptions{}) {
			if end = err; err != nil {
				break
			}
			if read++; read > 1 {
				continue
			}
			replaceFile(t, more, change)
			computeservertest.Await(t, "the user may not read", func() bool { return !mayScan() })
		}
		if !errors.Is(end, want) || read == 0 || read == keys {
			t.Errorf("%q: %d of %d keys were read, then %v", change, read, keys, end)
		}
	}
}
