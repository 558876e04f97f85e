// Exercise is load with a memory, for end-to-end tests and the demo: writers count up the values of
// their keys through the SDK, readers check that no value is older than what was acknowledged
// before they asked, and at the end every acknowledged write is read back. While it runs, phases
// name stretches of time, each with its own latencies and failures:
//
//	exercise run --secret /etc/dmindex/conn --for 60s
//	exercise phase scaling        # from another process of the pod
//	exercise await 5000           # returns when the phase has that many operations
//	exercise stop
//
// Exercise sets is load on one sorted set, counters and transactions that adds up (package sets);
// await and stop are for it, too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dmindex/dmindex/client"
)

// controlAddress is where a running exercise listens for phases.
const controlAddress = "127.0.0.1:8088"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "exercise:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say run, sets, phase NAME, await OPERATIONS or stop")
	}
	switch args[0] {
	case "run":
		return exercise(ctx, args[1:])
	case "sets":
		return exerciseSets(ctx, args[1:])
	case "phase":
		if len(args) != 2 {
			return errors.New("phase takes one name")
		}
		return tell(ctx, "/phase?name="+url.QueryEscape(args[1]))
	case "await":
		if len(args) != 2 {
			return errors.New("await takes a number of operations")
		}
		return tell(ctx, "/await?operations="+url.QueryEscape(args[1]))
	case "stop":
		return tell(ctx, "/stop")
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// tell asks the exercise that runs on this host for something and prints its answer.
func tell(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+controlAddress+path, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Timeout: awaitLimit + 10*time.Second}).Do(req)
	if err != nil {
		return fmt.Errorf("no exercise runs here: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}

// exercise runs the load until its time is over or it is stopped, and fails if anything failed.
func exercise(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	secret := flags.String("secret", "/etc/dmindex/conn", "directory of the mounted NAME-conn Secret")
	limit := flags.Duration("for", time.Minute, "how long at the most")
	writers := flags.Int("writers", 4, "goroutines that write")
	readers := flags.Int("readers", 4, "goroutines that read")
	keys := flags.Int("keys", 2000, "keys of each writer")
	spread := flags.Int("spread", 256, "the keys lie in so many 256ths of the key space, the lowest")
	rate := flags.Int("rate", 0, "operations per second of all together; 0 = as fast as they come")
	prefix := flags.String("prefix", "exercise/", "what the keys begin with")
	wait := flags.Duration("limit", 20*time.Second, "of one operation, retries included")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *writers < 1 || *readers < 0 || *keys < 1 || *rate < 0 || *spread < 1 || *spread > 256 {
		return errors.New("--writers and --keys must be 1 or more, --readers and --rate 0 or more, --spread 1 to 256")
	}
	o, err := client.FromSecret(*secret)
	if err != nil {
		return err
	}
	c, err := client.Connect(ctx, o)
	if err != nil {
		return err
	}
	defer c.Close()

	l := newLoad(c, *prefix, *writers, *keys, *spread, *wait)
	running, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	server := &http.Server{Addr: controlAddress, Handler: l.control(cancel), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() {
		failed <- server.ListenAndServe()
		cancel()
	}()
	defer server.Close()

	l.run(running, *readers, *rate)
	select {
	case err := <-failed:
		return fmt.Errorf("listen for phases: %w", err)
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.finish(ctx, os.Stdout)
}
