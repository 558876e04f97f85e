package computeserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/settings"
)

// TestSettingsWhileServing changes the settings of a server while programs use it: each change is
// in force without a lost connection or a failed command, one that is not understood leaves the
// former in force and is said, and without the file the flags count.
func TestSettingsWhileServing(t *testing.T) {
	path := filepath.Join(t.TempDir(), settings.FileName)
	level := &slog.LevelVar{}
	c := newCluster(t, config.RoutingAny, func(cfg *Config) {
		cfg.Settings, cfg.MaxConnections = settings.Open(path, level), 50
	}, 1)
	server := c.servers[1]

	const programs = 4
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	var failures [programs]error
	for n := range programs {
		r := c.redis(1).Conn() // a connection that is lost is not made anew
		working.Go(func() {
			defer r.Close()
			for i := 0; ctx.Err() == nil; i++ {
				if err := r.Set(context.Background(), fmt.Sprint(n, " ", i%100), i, 0).Err(); err != nil {
					failures[n] = err
					return
				}
			}
		})
	}
	admin := c.redis(1).Conn()
	defer admin.Close()
	known := func(name string) string {
		t.Helper()
		all, err := admin.ConfigGet(t.Context(), name).Result()
		if err != nil {
			t.Fatal(err)
		}
		return all[name]
	}
	await := func(name, want string) {
		t.Helper()
		computeservertest.Await(t, name+" is "+want, func() bool { return known(name) == want })
	}
	await("maxclients", "50")
	await("timeout", "3600")
	computeservertest.Await(t, "all programs are connected", func() bool { return server.core.Count.Connections.Load() == programs+1 })

	replaceFile(t, path, `{"maxConnections":2,"idleTimeoutSeconds":600,"slowLogMicroseconds":0,"logLevel":"debug"}`+"\n")
	await("maxclients", "2")
	await("timeout", "600")
	await("slowlog-log-slower-than", "0")
	if level.Level() != slog.LevelDebug {
		t.Errorf("the log is at %s", level.Level())
	}
	if got := c.raw(1).ExpectEnd(); !strings.Contains(got, "max number of clients") {
		t.Errorf("a connection beyond the lower bound got %q", got)
	}
	if server.gate.most.Load() != 2 {
		t.Errorf("the SDK may have %d connections", server.gate.most.Load())
	}
	computeservertest.Await(t, "SLOWLOG has commands that were fast", func() bool { return len(server.resp.Slow(-1)) > 50 })

	replaceFile(t, path, `{"maxConnections":77777,"idleTimeoutSeconds":700,"tomorrow":true}`+"\n")
	await("timeout", "700")
	await("maxclients", "2")
	await("slowlog-log-slower-than", "10000")
	if said := server.describe().SettingsRefused; !strings.Contains(said, "maxConnections: 77777") || !strings.Contains(said, "tomorrow: this version does not know it") {
		t.Errorf("what is not taken is described as %q", said)
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	await("maxclients", "50")
	await("timeout", "3600")
	if said := server.describe().SettingsRefused; said != "" || level.Level() != slog.LevelInfo {
		t.Errorf("without the file %q is refused, and the log is at %s", said, level.Level())
	}
	late := c.redis(1)
	if err := late.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a connection within the bound: %v", err)
	}

	for name, field := range map[string]string{"maxclients": "maxConnections", "TIMEOUT": "idleTimeoutSeconds", "slowlog-log-slower-than": "slowLogMicroseconds", "loglevel": "logLevel", "save": "spec.settings"} {
		err := admin.ConfigSet(t.Context(), name, "5").Err()
		var refused redis.Error
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "settings."+field) && field != "spec.settings" || !strings.Contains(err.Error(), "DMComputePool") {
			t.Errorf("CONFIG SET %s: %v", name, err)
		}
	}
	stop()
	working.Wait()
	if err := errors.Join(failures[:]...); err != nil {
		t.Error(err)
	}
}

// TestIdleLimitIsLowered: a connection that is silent already ends by the new limit.
func TestIdleLimitIsLowered(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	r := c.raw(1)
	r.Send("PING\r\n")
	r.Expect("+PONG\r\n")
	l := c.servers[1].cfg.limitsNow()
	if l.Idle < time.Minute {
		t.Fatalf("the limit is %s before", l.Idle)
	}
	l.Idle = 50 * time.Millisecond
	c.servers[1].resp.SetLimits(l)
	if got := r.ExpectEnd(); got != "" {
		t.Errorf("a silent client got %q", got)
	}
}
