// Package logs makes the logger of a program as its flags say: from which level on, and as text for
// people or as JSON for machines.
package logs

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// EnvLevel and EnvFormat are the defaults of the flags. The operator sets them in the pods that it
// makes: an older image does not know the flags.
const (
	EnvLevel  = "DMINDEX_LOG_LEVEL"
	EnvFormat = "DMINDEX_LOG_FORMAT"
)

// The names and meanings of the flags.
const (
	FlagLevel   = "log-level"
	UsageLevel  = "least level of the log: debug, info, warn or error (or " + EnvLevel + ")"
	FlagFormat  = "log-format"
	UsageFormat = "format of the log: text or json (or " + EnvFormat + ")"
)

// Formats.
const (
	Text = "text"
	JSON = "json"
)

// Config is what the flags say.
type Config struct {
	Level  string // debug, info, warn, error; empty = info
	Format string // Text, JSON; empty = Text
}

// FromEnv is what the environment says, else the level info and this format.
func FromEnv(format string) Config {
	return Config{Level: cmp.Or(os.Getenv(EnvLevel), "info"), Format: cmp.Or(os.Getenv(EnvFormat), format)}
}

// Flags is as much of a set of flags as Add needs: flag and pflag have it.
type Flags interface {
	StringVar(p *string, name, value, usage string)
}

// Add defines the flags, with what is in c as their defaults.
func (c *Config) Add(f Flags) {
	f.StringVar(&c.Level, FlagLevel, c.Level, UsageLevel)
	f.StringVar(&c.Format, FlagFormat, c.Format, UsageFormat)
}

// Handler is a handler that writes to w. The error says what to write instead.
func (c Config) Handler(w io.Writer) (slog.Handler, error) {
	h, _, err := c.HandlerAndLevel(w)
	return h, err
}

// HandlerAndLevel is the same, and the level, which may be changed at any time.
func (c Config) HandlerAndLevel(w io.Writer) (slog.Handler, *slog.LevelVar, error) {
	at, err := ParseLevel(c.Level)
	if err != nil {
		return nil, nil, fmt.Errorf("--%s=%w", FlagLevel, err)
	}
	level := &slog.LevelVar{}
	level.Set(at)
	o := &slog.HandlerOptions{Level: level}
	switch strings.ToLower(c.Format) {
	case JSON:
		return slog.NewJSONHandler(w, o), level, nil
	case "", Text:
		return slog.NewTextHandler(w, o), level, nil
	}
	return nil, nil, fmt.Errorf("--%s=%s: write text or json", FlagFormat, c.Format)
}

// ParseLevel is the level of a name; empty = info.
func ParseLevel(name string) (slog.Level, error) {
	switch strings.ToLower(name) {
	case "debug":
		return slog.LevelDebug, nil
	case "", "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("%s: write debug, info, warn or error", name)
}
