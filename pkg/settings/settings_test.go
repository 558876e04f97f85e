package settings

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func show(s Settings) string {
	slow := "-"
	if s.SlowLogMicroseconds != nil {
		slow = fmt.Sprint(*s.SlowLogMicroseconds)
	}
	return fmt.Sprint(s.MaxConnections, " ", s.IdleTimeoutSeconds, " ", slow, " ", s.LogLevel)
}

func TestParse(t *testing.T) {
	slow := int64(5)
	former := Settings{MaxConnections: 7, IdleTimeoutSeconds: 70, SlowLogMicroseconds: &slow, LogLevel: "warn"}
	f := func(data, want string, refused ...string) {
		t.Helper()
		s, err := Parse([]byte(data), former)
		if got := show(s); got != want {
			t.Errorf("%s: %s, want %s", data, got, want)
		}
		if (err == nil) != (len(refused) == 0) {
			t.Errorf("%s: %v", data, err)
		}
		for _, r := range refused {
			if err != nil && !strings.Contains(err.Error(), r) {
				t.Errorf("%s: %v does not say %s", data, err, r)
			}
		}
	}
	f(`{}`, "0 0 - ")
	f(`{"maxConnections":10000,"idleTimeoutSeconds":10,"slowLogMicroseconds":0,"logLevel":"debug"}`, "10000 10 0 debug")
	f(`{"maxConnections":0,"logLevel":"error"}`, "7 0 - error", "maxConnections: 0 is not a number from 1 to 10000")
	f(`{"maxConnections":10001}`, "7 0 - ", "maxConnections")
	f(`{"maxConnections":"5"}`, "7 0 - ", "maxConnections")
	f(`{"maxConnections":1.5,"idleTimeoutSeconds":9,"slowLogMicroseconds":-1,"logLevel":"loud"}`, "7 70 5 warn", "maxConnections", "idleTimeoutSeconds", "slowLogMicroseconds", `"loud" is none of debug`)
	f(`{"logLevel":5}`, "0 0 - warn", "logLevel")
	f(`{"newer":{"a":1},"maxConnections":3}`, "3 0 - ", "newer: this version does not know it")
	f(`{"maxConnections":3} {}`, "7 70 5 warn", "something follows")
	f(`[]`, "7 70 5 warn", "not a JSON object")
	f(``, "7 70 5 warn", "not a JSON object")
	f(`{"maxConn`, "7 70 5 warn", "not a JSON object")

	text, err := Append(nil, former)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Parse(text, Settings{}); err != nil || show(s) != show(former) {
		t.Errorf("%s gave %s, %v", text, show(s), err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"maxConnections":3,"x":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, _ := Parse(data, Settings{})
		if s.MaxConnections < 0 || s.MaxConnections > MostConnections || s.IdleTimeoutSeconds != 0 && (s.IdleTimeoutSeconds < LeastIdle || s.IdleTimeoutSeconds > MostIdle) {
			t.Errorf("%q gave %s", data, show(s))
		}
	})
}

// TestFile: a file that comes, changes, is bad in part, half written, too large, or goes.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	level := &slog.LevelVar{}
	level.Set(slog.LevelWarn) // as flags say
	file := Open(path, level)
	write := func(text string) {
		t.Helper()
		err := os.WriteFile(path+".new", []byte(text), 0o600)
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f := func(changed bool, want string, at slog.Level, refused string) {
		t.Helper()
		if got := file.Look(); got != changed {
			t.Errorf("changed: %v, want %v", got, changed)
		}
		if got := show(file.Settings()); got != want || level.Level() != at {
			t.Errorf("%s at %s, want %s at %s", got, level.Level(), want, at)
		}
		if err := file.Err(); (err == nil) != (refused == "") || err != nil && !strings.Contains(err.Error(), refused) {
			t.Errorf("error %v, want %q", err, refused)
		}
	}
	f(false, "0 0 - ", slog.LevelWarn, "")
	write(`{"maxConnections":3,"logLevel":"debug"}` + "\n")
	f(true, "3 0 - debug", slog.LevelDebug, "")
	f(false, "3 0 - debug", slog.LevelDebug, "")
	write(`{"maxConnections":99999,"idleTimeoutSeconds":60}` + "\n")
	f(true, "3 60 - ", slog.LevelWarn, "maxConnections")
	f(false, "3 60 - ", slog.LevelWarn, "maxConnections") // it is said as long as it is so
	write(`{"maxConnections":4`)
	f(false, "3 60 - ", slog.LevelWarn, "its last line does not end")
	write(strings.Repeat(" ", MaxBytes) + "\n")
	f(false, "3 60 - ", slog.LevelWarn, "at most")
	write(`{"maxConnections":4,"slowLogMicroseconds":0}` + "\n")
	f(true, "4 0 0 ", slog.LevelWarn, "")
	write(`{"maxConnections":4,"slowLogMicroseconds":10}` + "\n")
	f(true, "4 0 10 ", slog.LevelWarn, "")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f(true, "0 0 - ", slog.LevelWarn, "")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	f(false, "0 0 - ", slog.LevelWarn, path)
}
