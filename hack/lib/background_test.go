// Package lib tests the shell functions in this folder.
package lib

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// run runs a script of bash with the functions. It fails the test if a process that the script
// started still has its output open a while after the script ended.
func run(t *testing.T, script string) (output string, err error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail\n. ./say.sh\n. ./background.sh\n"+script)
	cmd.Stdout, cmd.Stderr = w, w // a file, so that Run does not wait for those who inherit it
	err = cmd.Run()
	w.Close()
	if ctx.Err() != nil {
		t.Fatal("the script did not end")
	}
	if err := r.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	text, late := io.ReadAll(r)
	if late != nil {
		t.Fatalf("a process outlived the script that started it (%v); output: %s", late, text)
	}
	return string(text), err
}

// TestBackgroundEndsWithTheScript: a command in the background has a child of its own, as a build
// has; the script fails beside it, or is told to end.
func TestBackgroundEndsWithTheScript(t *testing.T) {
	const command = `in_background bash -c 'sleep 50 & sleep 50'` + "\n"
	for name, rest := range map[string]string{
		"a command fails": "false",
		"the script says": `fail "no image"`,
		"ends":            "exit 0",
		"is terminated":   "kill -TERM $$; sleep 50",
		"late":            "sleep 0.2; false", // after all of them have started
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, command+rest)
			if failed := err != nil; failed != (name != "ends") {
				t.Errorf("the script ended with %v", err)
			}
		})
	}
}

// TestWaitFor: the script goes on when the command has ended, and fails if the command failed.
func TestWaitFor(t *testing.T) {
	if out, err := run(t, `in_background true; wait_for "$background"; echo went on`); err != nil || strings.TrimSpace(out) != "went on" {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := run(t, `in_background false; wait_for "$background"; echo went on`); err == nil || strings.Contains(out, "went on") {
		t.Errorf("a script went on after its command had failed: %s", out)
	}
}
