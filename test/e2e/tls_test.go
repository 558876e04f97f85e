//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// TestTLS: an index whose fabric and RESP are under TLS works, and neither speaks in the clear any
// more, not even with a member of the index. Its certificate names what the spec says. A memory
// server that joins it is reached under TLS, too.
func TestTLS(t *testing.T) {
	s := newSpace(t)
	s.newIndex(strings.Replace(indexManifest, "  design: DEX\n",
		"  design: DEX\n  security: {fabricTLS: true}\n  endpoints: {externalNames: [x.example.com], resp: {tls: {mode: Optional}}}\n", 1), "2/2", "2/2")
	redis := func(flags, command string) string {
		out, _ := s.tools("sh", "-c", "redis-cli -h x --no-auth-warning -a \"$(cat /conn/password)\" "+flags+" "+command+" 2>&1")
		return strings.TrimSpace(out)
	}
	const secure = "--tls --cacert /conn/ca.crt"
	s.is(redis(secure, "set a 1"), "OK")
	s.is(redis("", "get a"), "1")
	s.patch("dmi/x", `{"endpoints":{"resp":{"tls":{"mode":"Required"}}}}`)
	s.eventually(long, "nobody is served in the clear", func() (bool, string) {
		out := redis("", "get a")
		return strings.Contains(out, "this port speaks TLS"), out
	})
	s.settled("2/2", "2/2")
	s.is(redis(secure, "get a"), "1")
	s.is(redis(secure+" --sni x.example.com", "get a"), "1")

	// A member of the index, by its certificate, that does not want TLS.
	uid := s.jsonpath("dmindex/x", "{.metadata.uid}")
	config := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{s.mint("x-ca", "dmindex://index/"+uid+"/compute")}}
	conn, err := grpc.NewClient("passthrough:///"+s.forward(s.memoryPods()[0], "7471"), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	memory := rpcv1.NewMemoryClient(conn)
	connect := func(overTLS bool) string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := memory.Register(ctx, &rpcv1.RegisterRequest{Index: uid, Name: "probe"})
		if err == nil {
			_, err = memory.Connect(ctx, &rpcv1.ConnectRequest{Index: uid, Client: c.Client, Provider: "tcp", Tls: overTLS})
		}
		return status.Convert(err).Message()
	}
	s.eventually(long, "memory servers require TLS", func() (bool, string) {
		out := connect(false)
		return strings.Contains(out, "must come under TLS (fabricTLS)"), out
	})
	s.is(connect(true), "")

	s.kubectl("patch", "dmi", "x", "--type=json", "-p", `[{"op": "replace", "path": "/spec/memoryPools/0/template/servers", "value": 3}]`)
	s.settled("3/3", "2/2")
	s.eventually(long, "the compute servers reach all three", func() (bool, string) {
		out := s.jsonpath("dmi/x", "{.status.computeServers[*].paths[*].count}")
		return out == "3 3", out
	})
	s.is(redis(secure, "set b 2"), "OK")
	s.is(redis(secure, "get a"), "1")
}
