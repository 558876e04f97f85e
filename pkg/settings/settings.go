// Package settings is what servers can be told while they run: the form of it in a file, which
// the operator writes, and how a server follows the file.
package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/dmindex/dmindex/pkg/logs"
)

// FileName is the file with the Settings of a pool's servers, in their TLS directory
// (config.TLSDir). It is a key of a Secret that every pod of the pool mounts anyhow, so servers
// that run can be told without a new pod. It may be missing: then the server's flags count.
const FileName = "settings.json"

// Settings of a server. What is not set is as the server's flags say. Servers leave alone what is
// not of their kind.
type Settings struct {
	// MaxConnections bounds the connections of programs, over RESP and as many of the SDK. Of
	// compute servers.
	MaxConnections int64 `json:"maxConnections,omitempty"`
	// IdleTimeoutSeconds is after how long a silent RESP connection is closed. Of compute servers.
	IdleTimeoutSeconds int64 `json:"idleTimeoutSeconds,omitempty"`
	// SlowLogMicroseconds is from which duration on SLOWLOG has a pipeline; 0 = every one. Of
	// compute servers.
	SlowLogMicroseconds *int64 `json:"slowLogMicroseconds,omitempty"`
	// LogLevel is the least level of the log, as --log-level takes it. Of every server.
	LogLevel string `json:"logLevel,omitempty"`
}

// Ranges of the numbers. The CRDs have them too.
const (
	MostConnections = 10_000 // pods have memory for as many
	LeastIdle       = 10
	MostIdle        = 7 * 24 * 3600
	MostSlow        = 60_000_000
)

// MaxBytes of a file.
const MaxBytes = 16 << 10

// Append appends s as the file has it.
func Append(dst []byte, s Settings) ([]byte, error) {
	data, err := json.Marshal(s)
	return append(append(dst, data...), '\n'), err
}

// Parse is what data says. A setting that it does not have is not set. One that this version does
// not understand stays as it is in former, and the error names all of those: a newer operator, or
// whoever wrote the file, must not take the others out of force, and never end a server.
func Parse(data []byte, former Settings) (s Settings, err error) {
	var fields map[string]json.RawMessage
	decoder := json.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&fields); err != nil {
		return former, fmt.Errorf("not a JSON object: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return former, errors.New("something follows the JSON object")
	}
	var errs []error
	refuse := func(name, why string) { errs = append(errs, fmt.Errorf("%s: %s", name, why)) }
	number := func(name string, to *int64, least, most int64) (ok bool) {
		var n int64
		if err := json.Unmarshal(fields[name], &n); err != nil || n < least || n > most {
			refuse(name, fmt.Sprintf("%.40s is not a number from %d to %d", fields[name], least, most))
			return false
		}
		*to = n
		return true
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch name {
		case "maxConnections":
			if !number(name, &s.MaxConnections, 1, MostConnections) {
				s.MaxConnections = former.MaxConnections
			}
		case "idleTimeoutSeconds":
			if !number(name, &s.IdleTimeoutSeconds, LeastIdle, MostIdle) {
				s.IdleTimeoutSeconds = former.IdleTimeoutSeconds
			}
		case "slowLogMicroseconds":
			s.SlowLogMicroseconds = new(int64)
			if !number(name, s.SlowLogMicroseconds, 0, MostSlow) {
				s.SlowLogMicroseconds = former.SlowLogMicroseconds
			}
		case "logLevel":
			err := json.Unmarshal(fields[name], &s.LogLevel)
			if err == nil {
				_, err = logs.ParseLevel(s.LogLevel)
			}
			if err != nil {
				refuse(name, fmt.Sprintf("%.40s is none of debug, info, warn and error", fields[name]))
				s.LogLevel = former.LogLevel
			}
		default:
			refuse(fmt.Sprintf("%.64s", name), "this version does not know it")
		}
	}
	return s, errors.Join(errs...)
}
