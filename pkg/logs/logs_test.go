package logs

import (
	"encoding/json"
	"flag"
	"log/slog"
	"strings"
	"testing"
)

// logged is what a program writes that is started with these arguments and this environment.
func logged(t *testing.T, level, format string, args ...string) (string, error) {
	t.Helper()
	t.Setenv(EnvLevel, level)
	t.Setenv(EnvFormat, format)
	c := FromEnv(Text)
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	c.Add(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	handler, err := c.Handler(&out)
	if err != nil {
		return "", err
	}
	log := slog.New(handler)
	log.Debug("fine")
	log.Info("usual")
	log.Warn("odd")
	log.Error("bad")
	return out.String(), nil
}

func TestLevels(t *testing.T) {
	f := func(want string, level string, args ...string) {
		t.Helper()
		out, err := logged(t, level, "", args...)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(out) {
			_, message, _ := strings.Cut(strings.TrimSpace(line), "msg=")
			got = append(got, message)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q %v: %s, want %s", level, args, s, want)
		}
	}
	f("usual odd bad", "")
	f("odd bad", "warn")
	f("fine usual odd bad", "warn", "--log-level=debug") // the flag says more than the environment
	f("bad", "", "--log-level=ERROR")
}

func TestFormats(t *testing.T) {
	out, err := logged(t, "", JSON)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["msg"] == "" {
			t.Errorf("%q: %v", line, err)
		}
	}
	if out, err = logged(t, "", JSON, "--log-format=text"); err != nil || !strings.Contains(out, "msg=usual") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for _, bad := range [][2]string{{"--log-level=loud", "write debug, info, warn or error"}, {"--log-format=xml", "write text or json"}} {
		if _, err := logged(t, "", "", bad[0]); err == nil || !strings.Contains(err.Error(), bad[1]) {
			t.Errorf("%s: %v", bad[0], err)
		}
	}
}
