package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dmindex/dmindex/test/exercise/sets"
)

// checkLimit is how long the end of an exercise on sets may take.
const checkLimit = 5 * time.Minute

// exerciseSets runs load on a sorted set until its time is over or it is stopped, and fails if what
// is there then is not what was acknowledged.
func exerciseSets(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("sets", flag.ContinueOnError)
	secret := flags.String("secret", "/etc/dmindex/conn", "directory of the mounted NAME-conn Secret")
	limit := flags.Duration("for", time.Minute, "how long at the most")
	workers := flags.Int("workers", 8, "connections")
	members := flags.Int("members", 2000, "members of each worker")
	if err := flags.Parse(args); err != nil {
		return err
	}
	address, err := os.ReadFile(filepath.Join(*secret, "resp"))
	if err != nil {
		return err
	}
	password, err := os.ReadFile(filepath.Join(*secret, "password"))
	if err != nil {
		return err
	}
	l := sets.New(sets.Options{
		Dial: func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimSpace(string(address)))
		},
		Password: strings.TrimSpace(string(password)), Limit: 20 * time.Second, Workers: *workers, Members: *members, Shared: 40, Late: 6 * time.Second,
	})
	running, stop := context.WithTimeout(ctx, *limit)
	defer stop()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { stop() })
	mux.HandleFunc("POST /await", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.URL.Query().Get("operations"), 10, 64)
		if err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), awaitLimit)
			defer cancel()
			l.Await(ctx, n)
			err = ctx.Err()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	server := &http.Server{Addr: controlAddress, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() {
		failed <- server.ListenAndServe()
		stop()
	}()
	defer server.Close()
	if err := l.Begin(running); err != nil {
		return err
	}
	l.Run(running)
	select {
	case err := <-failed:
		return fmt.Errorf("listen: %w", err)
	default:
	}
	checking, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	err = l.Check(checking)
	fmt.Println("sets:", l)
	return err
}
