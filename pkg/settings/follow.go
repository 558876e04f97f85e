//env:real looks at a mounted file

package settings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/dmindex/dmindex/pkg/logs"
)

// LookEvery is how often a file is looked at.
const LookEvery = time.Second

// File is a file with Settings that may change at any time. Safe for concurrent use.
type File struct {
	path  string
	level *slog.LevelVar // of the server's log
	flags slog.Level     // its level without LogLevel

	mu    sync.Mutex
	first bool
	stamp stamp
	now   Settings
	err   error
}

// stamp tells one content of the file from another without reading it.
type stamp struct {
	changed time.Time
	size    int64
}

// Open looks at a file for the first time. A bad one is no error: the server's flags count. level
// is what LogLevel sets, and what it has now is what counts without it.
func Open(path string, level *slog.LevelVar) *File {
	f := &File{path: path, level: level, flags: level.Level(), first: true}
	f.Look()
	return f
}

// Settings are those in force.
func (f *File) Settings() Settings {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// Err is what of the file is not in force, or nil. What it said before counts in its place.
func (f *File) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Look reads the file if it changed, sets the level of the log, and reports whether the settings
// are other ones now. A file whose last line does not end may be half written: it is read again at
// the next look.
func (f *File) Look() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, data, err := f.read()
	if err == nil && !f.first && now == f.stamp && f.err == nil {
		return false
	}
	f.first = false
	next := f.now
	switch {
	case err != nil:
	case now == stamp{}: // there is none
		next = Settings{}
	case len(data) == 0 || data[len(data)-1] != '\n':
		now, err = stamp{}, errors.New("its last line does not end")
	default:
		next, err = Parse(data, f.now)
	}
	f.stamp, f.err = now, nil
	if err != nil {
		f.err = fmt.Errorf("the settings in %s: %w", f.path, err)
	}
	changed := !same(next, f.now)
	f.now = next
	level := f.flags
	if l, err := logs.ParseLevel(next.LogLevel); err == nil && next.LogLevel != "" {
		level = l
	}
	f.level.Set(level)
	return changed
}

// read is the file's stamp and content; without a file neither.
func (f *File) read() (stamp, []byte, error) {
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return stamp{}, nil, nil
	}
	if err != nil {
		return stamp{}, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return stamp{}, nil, err
	}
	now := stamp{info.ModTime(), info.Size()}
	if info.Size() > MaxBytes {
		return now, nil, fmt.Errorf("it has %d bytes; at most %d are possible", info.Size(), MaxBytes)
	}
	data, err := io.ReadAll(io.LimitReader(file, MaxBytes))
	return now, data, err
}

func same(a, b Settings) bool {
	slowA, slowB := a.SlowLogMicroseconds, b.SlowLogMicroseconds
	if (slowA == nil) != (slowB == nil) || slowA != nil && *slowA != *slowB {
		return false
	}
	a.SlowLogMicroseconds, b.SlowLogMicroseconds = nil, nil
	return a == b
}

// Follow looks at the file every LookEvery until ctx ends, and calls changed, unless it is nil,
// after each change. What is wrong with the file is logged once.
func (f *File) Follow(ctx context.Context, log *slog.Logger, changed func(Settings)) {
	tick := time.NewTicker(LookEvery)
	defer tick.Stop()
	said := ""
	say := func() {
		now := ""
		if err := f.Err(); err != nil {
			now = err.Error()
		}
		switch {
		case now == said:
		case now == "":
			log.Info("the settings can be read again")
		default:
			log.Error("settings are not taken; those of before stay", "error", now)
		}
		said = now
	}
	say()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if f.Look() {
			if changed != nil {
				changed(f.Settings())
			}
			log.Info("the settings changed", "settings", f.Settings())
		}
		say()
	}
}
