package computeserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/users"
)

const noChannel = "-NOPERM No permissions to access a channel\r\n"

// TestRightsToChannels: who may publish, who may subscribe, and to which patterns; and a connection
// ends whose user loses the right to what it has subscribed to.
func TestRightsToChannels(t *testing.T) {
	const rules = "user news on >n ~a* +@all &news:* &one\nuser keys on >k ~* +@all\nuser reads on >r ~* +@read allchannels\nuser only on >o +@pubsub allchannels\n"
	c, _, more := withUsers(t, rules)
	login := func(user, password string) *talk {
		k := newTalk(c.cluster, 1)
		k.Send(computeservertest.Command("AUTH", user, password))
		if got := wholeReply(t, k.from); got != "+OK\r\n" {
			t.Fatal(got)
		}
		return k
	}
	f := func(k *talk, want, command string) {
		t.Helper()
		k.Send(computeservertest.Command(words(command)...))
		if got := message(t, k.from); got != want {
			t.Errorf("%s gave %q, want %q", command, got, want)
		}
	}
	const first = ":1\r\n"
	all, news, keys, reads, only := login("default", "secret"), login("news", "n"), login("keys", "k"), login("reads", "r"), login("only", "o")
	f(news, ":0\r\n", "PUBLISH news:1 x")
	f(news, ":0\r\n", "PUBLISH one x")
	f(news, noChannel, "PUBLISH one1 x")
	f(news, noChannel, "SPUBLISH new x")
	f(news, noChannel, "SUBSCRIBE news:1 other")
	f(news, noChannel, "PSUBSCRIBE news*")
	f(news, noChannel, "PSUBSCRIBE *")
	f(news, noChannel, "PSUBSCRIBE one")
	f(keys, noChannel, "PUBLISH a x")
	f(keys, noChannel, "SUBSCRIBE a")
	f(reads, noChannel, "SUBSCRIBE a")
	f(reads, "-NOPERM User reads has no permissions to run the 'pubsub' command\r\n", "PUBSUB NUMPAT")
	f(all, "*3\r\n$9\r\nsubscribe\r\n$5\r\nother\r\n"+first, "SUBSCRIBE other")
	f(only, ":1\r\n", "PUBLISH other x")
	if got := message(t, all.from); got != "*3\r\n$7\r\nmessage\r\n$5\r\nother\r\n$1\r\nx\r\n" {
		t.Errorf("a message is %q", got)
	}
	f(only, "*1\r\n$5\r\nother\r\n", "PUBSUB CHANNELS")
	f(news, "*0\r\n", "PUBSUB CHANNELS")
	f(news, noChannel, "PUBSUB NUMSUB other")
	f(news, "+OK\r\n", "MULTI")
	f(news, noChannel, "PUBLISH other x")
	f(news, "-EXECABORT Transaction discarded because of previous errors.\r\n", "EXEC")
	f(news, "*3\r\n$10\r\npsubscribe\r\n$7\r\nnews:a?\r\n"+first, "PSUBSCRIBE news:a?")

	replaceFile(t, more, strings.Replace(rules, "&news:*", "&news:b*", 1))
	if _, err := news.from.ReadByte(); err == nil {
		t.Error("a connection is sent something whose user may not hear that any more")
	}
	f(all, "*2\r\n$4\r\npong\r\n$0\r\n\r\n", "PING")
}

// basic is a name and a password that calls show.
type basic string

func (b basic) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(b))}, nil
}

func (basic) RequireTransportSecurity() bool { return false }

// TestMessagesAreOfServers: programs do not call what servers tell each other with.
func TestMessagesAreOfServers(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, func(cfg *Config) {
		dir := t.TempDir()
		replaceFile(t, dir+"/password", "secret")
		replaceFile(t, dir+"/users.acl", "user other on >o ~* +@all allchannels\n")
		cfg.Users, cfg.AllowNoPassword = users.Config{PasswordFile: dir + "/password", UsersFile: dir + "/users.acl"}, false
	}, 1)
	c.split([]uint32{1})
	conn, err := grpc.NewClient("passthrough:///"+c.servers[1].addresses.RPC, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(basic("other:o")))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	calls := rpcv1.NewComputeClient(conn)
	if _, err := calls.Publish(ctx, &rpcv1.PublishRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("Publish of a program: %v", err)
	}
	const most = 48 << 20
	empty := sharedCodec{bytes.Repeat([]byte{4<<3 | 2, 0}, 3<<20)} // messages, of two bytes each
	if grew := peak(func() {
		err := conn.Invoke(ctx, rpcv1.Compute_Publish_FullMethodName, &rpcv1.PublishRequest{}, &rpcv1.PublishReply{}, grpc.ForceCodecV2(empty), grpc.MaxCallSendMsgSize(8<<20))
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("Publish of a program, many messages: %v", err)
		}
	}); grew > most {
		t.Errorf("the heap grew by %d bytes, at most %d are right", grew, most)
	}
	if _, err := calls.ListSubscriptions(ctx, &rpcv1.ListSubscriptionsRequest{List: true}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("ListSubscriptions of a program: %v", err)
	}
}
